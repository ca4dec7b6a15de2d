"""Compare both sides with kafka-python's own consumer: the demo must not trust the wire client that it demonstrates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from kafka import KafkaConsumer, TopicPartition

_SHOWN = 5  # differences that are listed


@dataclass
class Verdict:
    """The result: how much was compared, and the first few differences."""

    records: int = 0
    partitions: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """True if no difference was found."""
        return not self.differences


def compare(source: str, target: str, topics: list[str], progress: Callable[[int], None] = lambda _: None) -> Verdict:
    """Compare key, value, headers, timestamp and order of every record of these topics, partition by partition."""
    verdict = Verdict()
    ours, theirs = _consumer(source), _consumer(target)
    try:
        for topic in topics:
            partitions = sorted(ours.partitions_for_topic(topic) or ())
            if partitions != sorted(theirs.partitions_for_topic(topic) or ()):
                verdict.differences.append(
                    f"{topic}: partitions {partitions} against {theirs.partitions_for_topic(topic)}"
                )
                continue
            for partition in partitions:
                _compare_partition(ours, theirs, TopicPartition(topic, partition), verdict)
                verdict.partitions += 1
                progress(verdict.records)
    finally:
        ours.close()
        theirs.close()
    return verdict


def _compare_partition(ours: KafkaConsumer, theirs: KafkaConsumer, where: TopicPartition, verdict: Verdict) -> None:
    for number, (left, right) in enumerate(zip_longest(records(ours, where), records(theirs, where))):
        if left != right and len(verdict.differences) < _SHOWN:
            verdict.differences.append(
                f"{where.topic}-{where.partition}, record {number}: {_short(left)} against {_short(right)}"
            )
        verdict.records += left is not None


def records(consumer: KafkaConsumer, where: TopicPartition) -> Iterator[tuple[Any, ...]]:
    """Yield timestamp, key, value and headers of every record of a partition, up to its present end."""
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    end = consumer.end_offsets([where])[where]
    while consumer.position(where) < end:
        for batch in consumer.poll(timeout_ms=1000).values():
            for record in batch:
                if record.offset < end:
                    yield record.timestamp, record.key, record.value, tuple(record.headers)


def _consumer(bootstrap: str) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        enable_auto_commit=False,
        max_poll_records=5000,
        max_partition_fetch_bytes=4 << 20,
    )


def _short(record: tuple[Any, ...] | None) -> str:
    text = "nothing" if record is None else repr(record)
    return text if len(text) < 120 else text[:117] + "..."
