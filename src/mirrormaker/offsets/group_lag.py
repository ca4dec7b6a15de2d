"""Where a group stands at one moment, and how fast it moves."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

Key = tuple[str, int]

NONE = -1  # the group has no offset for a partition
_WINDOW = 90.0  # seconds over which rates are averaged: the old consumers commit only once a minute


@dataclass(frozen=True)
class Row:
    """One partition of the group."""

    topic: str
    partition: int
    leader: int | None
    offset: int | None  # None: it could not be read
    log_size: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        if self.offset is None or self.offset == NONE or self.log_size is None:
            return None
        return self.log_size - self.offset


@dataclass(frozen=True)
class GroupLag:
    """All partitions of the group that were asked for, in order."""

    group: str
    rows: tuple[Row, ...]
    brokers: dict[int, tuple[str, int]]  # those that lead one of the partitions
    failures: tuple[str, ...] = ()

    @property
    def lag(self) -> int:
        """Of the partitions whose lag is known."""
        return sum(row.lag or 0 for row in self.rows)

    @property
    def unknown(self) -> int:
        """Partitions whose lag is not known: no leader, or nothing committed yet."""
        return sum(row.lag is None for row in self.rows)


@dataclass(frozen=True)
class Pace:
    """How fast records are consumed, and how fast the lag shrinks, per second."""

    consumed: float
    closing: float

    def seconds_left(self, lag: int | None) -> float | None:
        """Until it has caught up; None if it never does at this pace."""
        if lag is None:
            return None
        if lag <= 0:
            return 0.0
        return lag / self.closing if self.closing > 0 else None


class Paces:
    """The last standings, and what they say together."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[Key, tuple[int, int]]]] = deque()

    def add(self, now: float, standing: GroupLag) -> None:
        known = {(r.topic, r.partition): (r.offset, r.lag) for r in standing.rows if r.offset is not None}
        self._seen.append((now, {key: (offset, lag) for key, (offset, lag) in known.items() if lag is not None}))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()

    def of(self, *keys: Key) -> Pace | None:
        """The pace of these partitions together; None before there is anything to compare."""
        if len(self._seen) < 2:
            return None
        (before, then), (after, now) = self._seen[0], self._seen[-1]
        seconds = max(1e-6, after - before)
        both = [key for key in keys if key in then and key in now]
        if not both:
            return None
        consumed = sum(now[key][0] - then[key][0] for key in both)
        closed = sum(then[key][1] - now[key][1] for key in both)
        return Pace(consumed / seconds, closed / seconds)
