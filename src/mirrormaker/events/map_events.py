"""Events of the offset map, and of fences in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.events.event import Event, Kind


@dataclass(frozen=True)
class OffsetMapUnwritten(
    Event,
    kind=Kind.WAITING,
    words="the offset map cannot be kept, so offsets mirrored from now on cannot be translated: {reason}; records flow on,"
    " and it is tried again",
):
    """The target does not take the rows of the offset map."""

    reason: str


@dataclass(frozen=True)
class OffsetMapLimited(
    Event,
    kind=Kind.NOTE,
    words="the offset map is as large as a process may keep it: offsets of {topic}-{partition} before {offset} are translated to"
    " the beginning of the target's log",
):
    """The oldest blocks of the partition with most runs are forgotten."""

    topic: str
    partition: int
    offset: int = field(compare=False)


@dataclass(frozen=True)
class OffsetMapLost(
    Event,
    kind=Kind.NOTE,
    words="{topic} was deleted on the target: this process stores the offset map of its {partitions} partitions again",
):
    """The topic of the offset map is gone, or another one has its name."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class OffsetMapMissing(
    Event,
    kind=Kind.NOTE,
    words="the offset map has nothing of {partitions} partitions that are mirrored already (the first one is {first}): what the"
    " ends of both logs show is rebuilt, and earlier offsets are translated to the beginning of the target's log",
):
    """The topic was deleted while the partitions were not mirrored, or they were mirrored without it."""

    partitions: int
    first: str


@dataclass(frozen=True)
class OffsetMapRebuilt(
    Event,
    kind=Kind.RECOVERED,
    words="the offset map of {partitions} partitions is rebuilt from the logs: it has their last {records} records again",
):
    """The map has again what both logs still show."""

    partitions: int
    records: int


@dataclass(frozen=True)
class FenceUnreadable(
    Event,
    kind=Kind.WAITING,
    words="{topic} on {target} cannot be read, so this mirror would not notice a failover that closes its flow: {reason};"
    " records flow on, and it is tried again",
):
    """A running mirror has not been able to look for a fence for a while."""

    topic: str
    target: str
    reason: str


@dataclass(frozen=True)
class FenceReadable(Event, kind=Kind.RECOVERED, words="{topic} can be read again: no failover has closed this flow"):
    """A mirror that could not look for a fence can do so again."""

    topic: str


@dataclass(frozen=True)
class OffsetMapWritten(Event, kind=Kind.RECOVERED, words="the offset map is kept again"):
    """The target takes the rows of the offset map again."""
