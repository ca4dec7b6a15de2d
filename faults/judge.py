"""What the target holds, counted against what the source holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from faults.load import PARTITIONS, VALUE
from mirrormaker.embedded import Cluster, metadata
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack

# What follows offset and timestamp in each record of the load: key length, key, value length, value, no headers.
_TAIL = np.dtype([("key_size", "i1"), ("key", "V3"), ("value_size", "i1"), ("number", ">i8"), ("headers", "i1")])
_ROW = np.dtype([("number", "i8"), ("timestamp", "i8"), ("key", "V3")])

Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class Count:
    """Of the source's records: how many there are, and what became of them."""

    records: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.records + other.records,
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.out_of_order + other.out_of_order,
        )

    def __sub__(self, other: Count) -> Count:
        return self + Count(-other.records, -other.lost, -other.doubled, -other.out_of_order)

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.out_of_order)


def count(source: Cluster, target: Cluster, topic: str) -> Count:
    """Compare both sides partition by partition."""
    total = Count()
    for partition in range(PARTITIONS):
        total += count_rows(read(source, topic, partition), read(target, topic, partition))
    return total


def count_anywhere(source: Cluster, target: Cluster, topic: str) -> Count:
    """As `count`, for mirrors that choose a partition by key; order counts within each partition that a record came to."""
    ours = [read(source, topic, partition) for partition in range(PARTITIONS)]
    theirs = [read(target, topic, partition) for partition in range(PARTITIONS)]
    total = count_rows(np.concatenate(ours), np.concatenate(theirs))
    return replace(total, out_of_order=sum(_steps_back(rows) for rows in theirs))


def _steps_back(rows: Rows) -> int:
    """How often a record comes after a later one of the same source partition, repetitions aside."""
    numbers = rows["number"]
    firsts = np.sort(np.unique(numbers, return_index=True)[1])
    once = numbers[firsts]
    origins = [once[once % PARTITIONS == partition] for partition in range(PARTITIONS)]
    return sum(int((np.diff(origin) < 0).sum()) for origin in origins)


def count_rows(ours: Rows, theirs: Rows) -> Count:
    """Another key or time under the same number counts as lost, and as one too many."""
    if np.array_equal(ours, theirs):
        return Count(records=len(ours))
    left, right = _as_text(ours), _as_text(theirs)
    wanted, first = np.unique(left, return_index=True)
    found, at, times = np.unique(right, return_index=True, return_counts=True)
    there = np.isin(found, wanted, assume_unique=True)
    order = first[np.searchsorted(wanted, found[there])][np.argsort(at[there])]
    return Count(
        records=len(ours),
        lost=len(wanted) - int(there.sum()),
        doubled=int((times - there).sum()) - (len(left) - len(wanted)),
        out_of_order=int((np.diff(order) < 0).sum()),
    )


def new_rows(count: int) -> Rows:
    return np.zeros(count, _ROW)


def _as_text(rows: Rows) -> npt.NDArray[np.bytes_]:
    """Each row as one sortable value."""
    return np.ascontiguousarray(rows).view(f"S{_ROW.itemsize}")


def read(cluster: Cluster, topic: str, partition: int) -> Rows:
    """Every record in the leader's log: far quicker than a consumer, and nothing is left out."""
    broker = next(broker for broker in cluster.brokers if broker.pid is not None)
    known = metadata.ask(broker.port)
    assert known is not None, f"{broker.name} does not answer"
    directory = cluster.directory / f"broker-{known.topics[topic][partition].leader}" / f"{topic}-{partition}"
    parts = [_rows(file.read_bytes()) for file in sorted(directory.glob("*.log"))]
    return np.concatenate(parts) if parts else new_rows(0)


def _rows(log: bytes) -> Rows:
    rows: list[Rows] = [new_rows(0)]
    for batches in split(memoryview(log)):
        assert isinstance(batches, Batches)
        batches.check()
        records = unpack(batches)
        if (records.ends - records.starts != _TAIL.itemsize).any():
            raise AssertionError("a record that the load has not written")
        tails: Any = records.data[records.starts[:, None] + np.arange(_TAIL.itemsize)]
        tails = np.ascontiguousarray(tails).view(_TAIL)[:, 0]
        found = new_rows(len(records))
        found["number"], found["timestamp"], found["key"] = tails["number"], records.timestamps, tails["key"]
        rows.append(found)
    return np.concatenate(rows)


assert VALUE.size == _TAIL["number"].itemsize
