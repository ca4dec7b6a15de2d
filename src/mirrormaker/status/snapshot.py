"""A mirror at one moment, in all its parts. Status page, metrics and history are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.status.counts import Counts, StreamFigures

FLOWING, WAITING, STOPPED = "flowing", "waiting", "stopped"


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
    # True if its partitions are known and a stream runs.
    is_ready: bool
    # Chosen topics that are not mirrored at the moment, and why.
    topics_left_out: tuple[tuple[str, str], ...]
    dropped: int
    lost: int
    counts: Counts


@dataclass(frozen=True)
class Stream:
    """One stream of a source."""

    source: str
    number: int
    partitions: int
    figures: StreamFigures


@dataclass(frozen=True)
class Partition:
    """One source partition that this process mirrors."""

    source: str
    topic: str
    partition: int
    stream: int | None
    state: str
    # Why the partition does not flow; empty if it does.
    why: str
    offset: int
    lag: int


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
    is_stopping: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def lag(self) -> int:
        """The lag of all partitions together."""
        return sum(partition.lag for partition in self.partitions)

    def in_state(self, state: str) -> int:
        """Return the number of partitions in a state."""
        return sum(partition.state == state for partition in self.partitions)
