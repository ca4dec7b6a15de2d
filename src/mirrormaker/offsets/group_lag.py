"""How far a consumer group is at one moment, and how fast it moves."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from mirrormaker.wire.protocol.codec import TopicPartition

NO_OFFSET = -1  # the group has committed nothing for a partition
_WINDOW = 90.0  # seconds over which rates are averaged: old consumers commit only once a minute


@dataclass(frozen=True)
class PartitionLag:
    """One partition: the group's committed offset, and the end of the log."""

    topic: str
    partition: int
    leader: int | None
    offset: int | None  # None if it cannot be read
    log_size: int | None  # the log end offset
    owner: str | None

    @property
    def key(self) -> TopicPartition:
        """Return topic and partition."""
        return self.topic, self.partition

    @property
    def lag(self) -> int | None:
        """Return the records between the committed offset and the end of the log; None if either is unknown."""
        if self.offset is None or self.offset == NO_OFFSET or self.log_size is None:
            return None
        return self.log_size - self.offset


@dataclass(frozen=True)
class GroupLag:
    """A consumer group at one moment."""

    group: str
    partitions: tuple[PartitionLag, ...]  # in the order in which they are shown
    brokers: dict[int, tuple[str, int]]  # those that lead one of the partitions
    failures: tuple[str, ...] = ()

    @property
    def keys(self) -> list[TopicPartition]:
        """Return all partitions as keys."""
        return [partition.key for partition in self.partitions]

    @property
    def lag(self) -> int:
        """Return the lag of all partitions whose lag is known."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def unknown(self) -> int:
        """Return the number of partitions whose lag is not known: they have no leader, or nothing is committed yet."""
        return sum(partition.lag is None for partition in self.partitions)


@dataclass(frozen=True)
class Pace:
    """Records per second: how many are consumed, and by how many the lag shrinks."""

    consumed: float
    closing: float

    def seconds_left(self, lag: int | None) -> float | None:
        """Return the time until the group has caught up; None if it never does at this pace."""
        if lag is None:
            return None
        if lag <= 0:
            return 0.0
        return lag / self.closing if self.closing > 0 else None


class LagHistory:
    """The lags of the last 90 seconds, and the pace that follows from them."""

    def __init__(self) -> None:
        # The time, and offset and lag of each partition whose lag was known.
        self._entries: deque[tuple[float, dict[TopicPartition, tuple[int, int]]]] = deque()

    def add(self, now: float, group_lag: GroupLag) -> None:
        """Remember the lag at the time `now`, in seconds."""
        known = {
            partition.key: (partition.offset, partition.lag)
            for partition in group_lag.partitions
            if partition.offset is not None and partition.lag is not None
        }
        self._entries.append((now, known))
        while len(self._entries) > 2 and now - self._entries[0][0] > _WINDOW:
            self._entries.popleft()

    def pace(self, *keys: TopicPartition) -> Pace | None:
        """Return the pace of these partitions together; None before there is anything to compare."""
        if len(self._entries) < 2:
            return None
        (first_time, first), (last_time, last) = self._entries[0], self._entries[-1]
        seconds = max(1e-6, last_time - first_time)
        known = [key for key in keys if key in first and key in last]
        if not known:
            return None
        consumed = sum(last[key][0] - first[key][0] for key in known)
        closed = sum(first[key][1] - last[key][1] for key in known)
        return Pace(consumed / seconds, closed / seconds)
