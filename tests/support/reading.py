"""Read topics with kafka-python, or from a broker's log files."""

from __future__ import annotations

from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition

from mirrormaker.embedded import Cluster
from mirrormaker.wire.records.batch import Batches, split


class Read(NamedTuple):
    """One record and its place."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> tuple[object, ...]:
        """Everything that a mirror must keep."""
        return self.timestamp, self.key, self.value, self.headers


def read(cluster: Cluster, topic: str, *, committed: bool = False) -> dict[int, list[Read]]:
    """Return every record of a topic by partition; with `committed`, without those of aborted transactions."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","),
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=8 << 20,
        max_poll_records=5000,
    )
    by_partition: dict[int, list[Read]] = {}
    try:
        for partition in sorted(consumer.partitions_for_topic(topic) or ()):
            topic_partition = TopicPartition(topic, partition)
            consumer.assign([topic_partition])
            consumer.seek_to_beginning(topic_partition)
            end = consumer.end_offsets([topic_partition])[topic_partition]
            rows = by_partition[partition] = []
            while consumer.position(topic_partition) < end:
                for batch in consumer.poll(500).values():
                    rows += [
                        Read(partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in batch
                        if r.offset < end
                    ]
    finally:
        consumer.close()
    return by_partition


def end_offsets(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    """Return the end offset of each partition."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        topic_partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
        ends = consumer.end_offsets(topic_partitions)
        return [ends[topic_partition] for topic_partition in topic_partitions]
    finally:
        consumer.close()


def in_the_log(cluster: Cluster, topic: str, partition: int = 0) -> Batches:
    """Return the record batches in the only log file of a partition, at a cluster of one broker."""
    (file,) = cluster.directory.rglob(f"{topic}-{partition}/*.log")
    (batches,) = split(memoryview(file.read_bytes()))
    assert isinstance(batches, Batches)
    batches.check()
    return batches
