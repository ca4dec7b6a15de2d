"""A mirror at one moment, in all its parts. Status page, metrics and history are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mirrormaker.status.counts import Counts, StreamFigures

FLOWING, WAITING, STOPPED = "flowing", "waiting", "stopped"
NO_STREAM = "no stream is at work"


class GroupRow(NamedTuple):
    """A consumer group in one target topic. Offsets and records of its partitions are added up; None if there are none."""

    group: str
    topic: str
    state: str
    is_ready: bool
    source_offset: int | None
    target_offset: int | None
    again: int | None
    missing: int | None
    # When the target was last seen to have what the mirror wrote, in seconds since 1970; 0: never.
    synced_at: float


@dataclass(frozen=True)
class GroupFigures:
    """The consumer groups that this process keeps in step on the target, as the last round left them."""

    # By state: a group in several topics counts once, in the state that users must hear of first.
    states: Mapping[str, int] = field(default_factory=dict)
    ready: int = 0
    again: int = 0
    missing: int = 0
    round_seconds: float = 0.0
    last_round: float = 0.0  # seconds since 1970; 0: none yet
    # Why the last attempt failed; empty if it did not.
    trouble: str = ""
    # The rows that users must see first, and how many there are in all.
    rows: tuple[GroupRow, ...] = ()
    all_rows: int = 0

    @property
    def groups(self) -> int:
        """Return the number of groups."""
        return sum(self.states.values())


@dataclass(frozen=True)
class Source:
    """One source cluster: one `--consumer.config`."""

    name: str  # the name of its file, without the extension
    address: str
    group: str
    cluster: str
    member: str  # the group instance id of this process
    # Why the source is not mirrored at the moment; empty if it is.
    trouble: str
    # True once the group has assigned partitions, and it is known where each of them starts.
    is_assigned: bool
    # Chosen topics that are not mirrored at the moment, and why.
    topics_left_out: tuple[tuple[str, str], ...]
    dropped: int
    lost: int
    counts: Counts
    # None: no groups are kept in step.
    groups: GroupFigures | None = None

    @property
    def streams_at_work(self) -> int:
        """The number of streams that are connected to the driver."""
        return sum(stream.at_work for stream in self.counts.streams.values())

    @property
    def not_ready(self) -> str:
        """Why the source is not mirrored; empty if its partitions are known and a stream is at work."""
        if self.trouble:
            return self.trouble
        if not self.is_assigned:
            return f"{self.address}: no partition is assigned yet"
        return "" if self.streams_at_work else f"{self.address}: {NO_STREAM}"


@dataclass(frozen=True)
class Stream:
    """One stream of a source."""

    source: str
    number: int
    partitions: int
    figures: StreamFigures


class Partition(NamedTuple):
    """One source partition that this process mirrors. A tuple, because thousands of them are made every second."""

    source: str
    topic: str
    partition: int
    stream: int | None
    state: str
    # Why the partition does not flow; empty if it does.
    why: str
    # The next source offset; -1 if it is not known yet where the partition starts.
    offset: int
    # As the source last said; 0 if it never did.
    lag: int
    # False if the source has not said it yet, or did not answer when it was last asked.
    lag_known: bool = True


@dataclass(frozen=True)
class Snapshot:
    """The whole mirror at one moment."""

    sources: tuple[Source, ...]
    target: str
    target_cluster: str
    guarantee: str
    # The reason for that guarantee.
    why: str
    buffer_limit: int  # bytes per stream
    streams: tuple[Stream, ...]
    partitions: tuple[Partition, ...]
    # The longest time in seconds for which the driver's event loop stood still lately.
    loop_blocked: float = 0.0
    # The same without the time in which the loop had no CPU core.
    loop_busy: float = 0.0
    is_stopping: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def streams_at_work(self) -> int:
        """The number of streams that are connected to the driver."""
        return sum(source.streams_at_work for source in self.sources)
