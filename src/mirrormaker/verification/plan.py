"""What there is to compare, as values: partitions, topics, a window of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

TARGET = -1  # the side that is no source


class Window(NamedTuple):
    """Timestamps to compare, in milliseconds: from the first up to the second."""

    since: int | None = None
    until: int | None = None


EVERYTHING = Window()


@dataclass(frozen=True)
class Part:
    """One partition of one side as it was when we looked."""

    side: int
    topic: str
    partition: int
    log_start: int
    start: int  # of what is compared: later than the log's, if only some timestamps are
    until: int
    end: int
    open_end: bool = False  # its last records may have no counterpart yet
    producer: int = -1  # under which a source partition is mirrored now


@dataclass(frozen=True)
class TopicPlan:
    """One topic: its partitions on all sides, and what is known of them."""

    name: str
    by_key: frozenset[int]  # sources whose records go where their keys say; others' to the partition of the same number
    sources: tuple[Part, ...]
    targets: tuple[Part, ...]
    limits: dict[tuple[int, int], int] = field(default_factory=dict)  # (target partition, producer): where it stood
    timestamps: bool = True  # can be compared
    headers: bool = True
    compacted: bool = False  # on either side, or it cannot be told
    starts_late: bool = False  # the mirror may have begun with the newest records
    notes: tuple[str, ...] = ()

    @property
    def one_to_one(self) -> bool:
        """Each target partition has the records of one source partition."""
        return not self.by_key and len({part.side for part in self.sources}) == 1

    @property
    def size(self) -> int:
        return sum(max(0, part.until - part.start) for part in (*self.sources, *self.targets))

    @property
    def unmirrored(self) -> int:
        return sum(max(0, part.end - max(part.start, part.until)) for part in self.sources)
