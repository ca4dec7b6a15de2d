"""The plan of a comparison, as values: offsets of partitions, topics, a window of timestamps.

A mirror may run while both sides are compared. `CompareLimits` decides up to which offsets they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import SettingError
from mirrormaker.model.position import Position
from mirrormaker.wire.records.varints import Ints

Time = int | datetime  # milliseconds since 1970, or a datetime

TARGET = -1  # the target's `side`; source clusters are 0, 1, ...


class Window(NamedTuple):
    """Compare only records with `since` <= timestamp < `until`, in milliseconds."""

    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, since: Time | None, until: Time | None) -> Window:
        """Return the window between two times. Raise SettingError if it is empty."""
        window = cls(_milliseconds(since), _milliseconds(until))
        if window.since is not None and window.until is not None and window.since >= window.until:
            raise SettingError(f"since={since} and until={until}: there is no time between them")
        return window

    @property
    def is_everything(self) -> bool:
        """Return True if no record is left out."""
        return self.since is None and self.until is None

    def contains(self, timestamps: Ints) -> npt.NDArray[np.bool_]:
        """Return True for each timestamp that lies in the window."""
        inside = np.ones(len(timestamps), np.bool_)
        if self.since is not None:
            inside &= timestamps >= self.since
        if self.until is not None:
            inside &= timestamps < self.until
        return inside


def _milliseconds(time: Time | None) -> int | None:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time


class CommittedOffset(NamedTuple):
    """The group's committed offset of a source partition."""

    offset: int
    position: Position | None  # None if another program committed the offset


@dataclass(frozen=True)
class PartitionRange:
    """One partition of one side, as it was at the time of the survey."""

    side: int
    topic: str
    partition: int
    log_start: int
    # The offsets to compare: from `start` up to `stop`. `start` is later than `log_start` if a window leaves out old
    # records.
    start: int
    stop: int
    end: int
    # True if the last records may have no counterpart yet.
    open_end: bool = False
    # The producer id under which the mirror writes this source partition; -1 if unknown.
    producer_id: int = -1


@dataclass(frozen=True)
class TopicPlan:
    """One topic: its partitions on all sides, and what is known of them."""

    name: str
    # Sources whose records go to the partition of their key. The others' go to the partition of the same number.
    by_key: frozenset[int]
    sources: tuple[PartitionRange, ...]
    targets: tuple[PartitionRange, ...]
    # (target partition, producer id): the target offset from which records of this producer are still arriving.
    arrival_limits: dict[tuple[int, int], int] = field(default_factory=dict)
    # False if the target's Kafka is too old to keep timestamps or headers.
    keeps_timestamps: bool = True
    keeps_headers: bool = True
    # True if the target's broker replaces timestamps by its own.
    log_append_time: bool = False
    # True if either side is compacted, or if nobody tells.
    compacted: bool = False
    # True if the mirror may have begun with the newest records (auto.offset.reset=latest).
    starts_at_latest: bool = False
    notes: tuple[str, ...] = ()

    @property
    def compares_timestamps(self) -> bool:
        """Return True if both sides have the timestamps that producers gave."""
        return self.keeps_timestamps and not self.log_append_time

    @property
    def is_one_to_one(self) -> bool:
        """Return True if each target partition has the records of one source partition."""
        return not self.by_key and len({part.side for part in self.sources}) == 1

    @property
    def size(self) -> int:
        """Return the number of offsets to read on all sides."""
        return sum(max(0, part.stop - part.start) for part in (*self.sources, *self.targets))

    @property
    def unmirrored(self) -> int:
        """Return the number of source offsets that the mirror has not reached yet."""
        return sum(max(0, part.end - max(part.start, part.stop)) for part in self.sources)

    @property
    def has_deleted_records(self) -> bool:
        """Return True if a log may have lost its first records: then equal records are paired from the end."""
        return any(part.log_start > 0 for part in (*self.sources, *self.targets))

    def limits_of(self, target_partition: int) -> dict[int, int]:
        """Return the arrival limits of one target partition, by producer id."""
        return {
            producer: limit for (place, producer), limit in self.arrival_limits.items() if place == target_partition
        }


class CompareLimits:
    """Decide up to which offsets one topic is compared: first all source partitions, then those of the target."""

    def __init__(self) -> None:
        # The highest target offset that a position names, by target partition.
        self._reached: dict[int, int] = {}
        # Target partitions whose sources are not completely mirrored: more records may arrive while we read.
        self._unfinished: set[int] = set()
        # Target partitions for which no position says where the arriving records begin.
        self._unbounded: set[int] = set()
        self._limits: dict[tuple[int, int], int] = {}

    def limit_source(
        self, part: PartitionRange, target_partitions: Sequence[int], committed: CommittedOffset | None
    ) -> PartitionRange:
        """Return a source partition with the offsets that are compared, given how far it is mirrored."""
        offset, position = committed or (0, None)
        caught_up = offset >= part.end
        ahead = position is not None and any(cut.ahead for cut in position.cuts if not cut.topic)
        producer_id = position.identity.producer_id if position is not None else -1
        if not caught_up:
            self._unfinished |= set(target_partitions)
        # Targets before Kafka 0.11 do not tell producers apart.
        if position is None or ahead or producer_id < 0:
            self._unbounded |= set(target_partitions)
        if position is not None:
            for cut in map(position.cut, target_partitions):
                self._reached[cut.partition] = max(self._reached.get(cut.partition, 0), cut.offset)
                if not caught_up:
                    self._limits[cut.partition, producer_id] = cut.offset
        part = replace(part, producer_id=producer_id)
        if caught_up:
            return part
        if committed is None or ahead:
            return replace(part, open_end=True)
        return replace(part, stop=max(part.start, offset))

    def limit_target(self, part: PartitionRange) -> PartitionRange:
        """Return a target partition with the offsets that are compared.

        If all of its sources are mirrored, that is the whole log; otherwise everything before the last offset that a
        position names. A log that ends before that offset has an open transaction, which hides its last records.
        """
        reached = self._reached.get(part.partition, 0)
        if part.partition not in self._unfinished:
            return replace(part, open_end=part.end < reached)
        if part.partition in self._unbounded:
            return replace(part, open_end=True)
        return replace(part, stop=max(part.start, min(part.end, reached)), open_end=part.end < reached)

    @property
    def arrival_limits(self) -> dict[tuple[int, int], int]:
        """Return the target offset from which each producer's records are still arriving, where positions say it."""
        bounded = self._unfinished - self._unbounded
        return {key: limit for key, limit in self._limits.items() if key[0] in bounded}
