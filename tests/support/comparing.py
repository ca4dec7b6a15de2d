"""Compare both clusters of a mirror."""

from __future__ import annotations

from collections import Counter

from kafka.partitioner.default import murmur2

from mirrormaker.console.compare import compare
from mirrormaker.embedded import Cluster
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import Read, end_offsets
from tests.support.waiting import wait_until


def wait_until_equal(
    source: Cluster, target: Cluster, topic: str, partitions: int, mirror: MirrorProcess, within: float = 60
) -> None:
    """Wait until the target has the end offsets that the source has now."""
    wanted = end_offsets(source, topic, partitions)
    found: list[int] = []

    def equal() -> bool:
        nonlocal found
        has_ended = mirror.has_ended  # before the look at the target: it may have written until then
        try:
            found = end_offsets(target, topic, partitions)
        except Exception:  # the topic does not exist yet
            found = []
        if found != wanted and has_ended:
            raise AssertionError(f"the mirror has ended with {mirror.wait()}; the target has {found}\n{mirror.text}")
        return found == wanted

    wait_until(f"end offsets {wanted}", equal, within, lambda: f"the target has {found}\n{mirror.text}")


def assert_same(source: Cluster, target: Cluster, topic: str, records: int) -> None:
    """Check that both clusters hold the same records in the same order, and how many."""
    verdict = compare(source.bootstrap, target.bootstrap, [topic])
    assert verdict.same, "\n".join(verdict.differences)
    assert verdict.records == records


def assert_mirrored_by_key(source: dict[int, list[Read]], target: dict[int, list[Read]]) -> None:
    """Check that every record of a topic was mirrored once, by key and in the order of its source partition.

    The values of all records must be different. A key belongs into the partition that Java's partitioner chooses.
    """
    by_value = {row.value: row for rows in source.values() for row in rows}
    assert len(by_value) == sum(map(len, source.values())), "the test's own values are not unique"
    times = Counter(row.value for rows in target.values() for row in rows)
    assert not [value for value, count in times.items() if count > 1], "records are duplicated"
    assert not by_value.keys() - times.keys(), (
        f"{len(by_value.keys() - times.keys())} of {len(by_value)} records are lost"
    )
    assert times.keys() == by_value.keys()
    for partition, rows in target.items():
        last_offset = dict.fromkeys(source, -1)
        for row in rows:
            origin = by_value[row.value]
            assert row.content == origin.content
            if row.key is not None:
                wanted = (murmur2(row.key) & 0x7FFFFFFF) % len(target)
                assert partition == wanted, f"{row.key!r} is in partition {partition}, not {wanted}"
            assert origin.offset > last_offset[origin.partition], "records are out of order"
            last_offset[origin.partition] = origin.offset
