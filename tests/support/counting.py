"""Count the records of a `Load` on both clusters: how many were lost, duplicated, or are out of order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mirrormaker.embedded import Cluster, metadata
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack
from tests.support.load import PARTITIONS, VALUE

# The bytes of each record of the load after its offset and timestamp. It has no headers.
_TAIL = np.dtype([("key_size", "i1"), ("key", "V3"), ("value_size", "i1"), ("number", ">i8"), ("headers", "i1")])
_ROW = np.dtype([("number", "i8"), ("timestamp", "i8"), ("key", "V3")])

Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class Count:
    """The number of records on the source, and what is wrong with them on the target."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.records + other.records,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.out_of_order + other.out_of_order,
        )

    def __sub__(self, other: Count) -> Count:
        return self + Count(-other.records, -other.lost, -other.duplicated, -other.out_of_order)

    @property
    def is_exact(self) -> bool:
        """True if every record is on the target once and in order."""
        return not (self.lost or self.duplicated or self.out_of_order)


def count(source: Cluster, target: Cluster, topic: str) -> Count:
    """Compare both clusters partition by partition."""
    total = Count()
    for partition in range(PARTITIONS):
        total += count_rows(read_log(source, topic, partition), read_log(target, topic, partition))
    return total


def count_in_any_partition(source: Cluster, target: Cluster, topic: str) -> Count:
    """Compare both clusters, for mirrors that choose the partition by key.

    The order counts within each partition of the target, for the records of each partition of the source.
    """
    source_rows = [read_log(source, topic, partition) for partition in range(PARTITIONS)]
    target_rows = [read_log(target, topic, partition) for partition in range(PARTITIONS)]
    total = count_rows(np.concatenate(source_rows), np.concatenate(target_rows))
    return replace(total, out_of_order=sum(_steps_back(rows) for rows in target_rows))


def _steps_back(rows: Rows) -> int:
    """Count the records after a later record of the same source partition; duplicates do not count."""
    numbers = rows["number"]
    first_positions = np.sort(np.unique(numbers, return_index=True)[1])
    distinct = numbers[first_positions]
    by_source = [distinct[distinct % PARTITIONS == partition] for partition in range(PARTITIONS)]
    return sum(int((np.diff(numbers) < 0).sum()) for numbers in by_source)


def count_rows(source: Rows, target: Rows) -> Count:
    """Compare two logs. A record with another key or timestamp counts as lost, and as one too many."""
    if np.array_equal(source, target):
        return Count(records=len(source))
    left, right = _as_bytes(source), _as_bytes(target)
    wanted, first_at_source = np.unique(left, return_index=True)
    found, first_at_target, times = np.unique(right, return_index=True, return_counts=True)
    is_wanted = np.isin(found, wanted, assume_unique=True)
    order = first_at_source[np.searchsorted(wanted, found[is_wanted])][np.argsort(first_at_target[is_wanted])]
    return Count(
        records=len(source),
        lost=len(wanted) - int(is_wanted.sum()),
        duplicated=int((times - is_wanted).sum()) - (len(left) - len(wanted)),
        out_of_order=int((np.diff(order) < 0).sum()),
    )


def new_rows(count: int) -> Rows:
    """Return rows to be filled."""
    return np.zeros(count, _ROW)


def _as_bytes(rows: Rows) -> npt.NDArray[np.bytes_]:
    """Return each row as one sortable value."""
    return np.ascontiguousarray(rows).view(f"S{_ROW.itemsize}")


def read_log(cluster: Cluster, topic: str, partition: int) -> Rows:
    """Read every record from the files of the partition's leader: far quicker than with a consumer."""
    broker = next(broker for broker in cluster.brokers if broker.pid is not None)
    known = metadata.ask(broker.port)
    assert known is not None, f"{broker.name} does not answer"
    directory = cluster.directory / f"broker-{known.topics[topic][partition].leader}" / f"{topic}-{partition}"
    parts = [_rows(file.read_bytes()) for file in sorted(directory.glob("*.log"))]
    return np.concatenate(parts) if parts else new_rows(0)


def _rows(log: bytes) -> Rows:
    parts: list[Rows] = [new_rows(0)]
    for batches in split(memoryview(log)):
        assert isinstance(batches, Batches)
        batches.check()
        records = unpack(batches)
        if (records.ends - records.starts != _TAIL.itemsize).any():
            raise AssertionError("the log holds a record that the load has not written")
        tails: Any = records.data[records.starts[:, None] + np.arange(_TAIL.itemsize)]
        tails = np.ascontiguousarray(tails).view(_TAIL)[:, 0]
        rows = new_rows(len(records))
        rows["number"], rows["timestamp"], rows["key"] = tails["number"], records.timestamps, tails["key"]
        parts.append(rows)
    return np.concatenate(parts)


assert VALUE.size == _TAIL["number"].itemsize


def steps_back(parts: Sequence[npt.NDArray[np.integer[Any]]], origins: Sequence[npt.NDArray[np.integer[Any]]]) -> int:
    """Return how often a number in a target partition is smaller than the one before from the same source partition.

    `parts` are the numbers in each target partition, `origins` those in each source partition. Records of several source
    partitions may mix in any way. Records that the source has no more count as one partition's.
    """
    back = 0
    for part in parts:
        left = part
        for origin in origins:
            back += int((np.diff(part[np.isin(part, origin)].astype(np.int64)) < 0).sum())
            left = left[~np.isin(left, origin)]
        back += int((np.diff(left.astype(np.int64)) < 0).sum())
    return back
