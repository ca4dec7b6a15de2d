"""Both sides of a mirror, read by kafka-python, and what a reader may expect of them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner.default import murmur2

from mirrormaker.embedded import Cluster
from mirrormaker.wire.records.batch import Batches, split


class Read(NamedTuple):
    """One record, where it lies, and what is in it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> tuple[object, ...]:
        return self.timestamp, self.key, self.value, self.headers


def read(cluster: Cluster, topic: str, *, committed: bool = False) -> dict[int, list[Read]]:
    """Every record of a topic, by partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","),
        isolation_level="read_committed" if committed else "read_uncommitted",
        max_partition_fetch_bytes=8 << 20,
        max_poll_records=5000,
    )
    found: dict[int, list[Read]] = {}
    try:
        for partition in sorted(consumer.partitions_for_topic(topic) or ()):
            where = TopicPartition(topic, partition)
            consumer.assign([where])
            consumer.seek_to_beginning(where)
            end = consumer.end_offsets([where])[where]
            rows = found[partition] = []
            while consumer.position(where) < end:
                for batch in consumer.poll(500).values():
                    rows += [
                        Read(partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in batch
                        if r.offset < end
                    ]
    finally:
        consumer.close()
    return found


def assert_mirrored_by_key(source: dict[int, list[Read]], target: dict[int, list[Read]]) -> None:
    """Each record once; where Java's partitioner puts its key; in the order of its source partition. Values are unique."""
    origin = {row.value: row for rows in source.values() for row in rows}
    assert len(origin) == sum(map(len, source.values())), "the test's own values are not unique"
    seen = Counter(row.value for rows in target.values() for row in rows)
    assert not [v for v, n in seen.items() if n > 1], "doubled"
    assert not origin.keys() - seen.keys(), f"lost {len(origin.keys() - seen.keys())} of {len(origin)}"
    assert seen.keys() == origin.keys()
    count = len(target)
    for partition, rows in target.items():
        last = dict.fromkeys(source, -1)
        for row in rows:
            was = origin[row.value]
            assert row.content == was.content
            if row.key is not None:
                assert partition == (murmur2(row.key) & 0x7FFFFFFF) % count, f"{row.key!r} is in partition {partition}"
            assert was.offset > last[was.partition], "out of order"
            last[was.partition] = was.offset


def in_the_log(cluster: Cluster, topic: str, partition: int = 0) -> Batches:
    """What the broker wrote into its file."""
    (file,) = cluster.directory.rglob(f"{topic}-{partition}/*.log")
    (found,) = split(memoryview(file.read_bytes()))
    assert isinstance(found, Batches)
    found.check()
    return found
