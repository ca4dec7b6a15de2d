"""A mirror at one moment, in all its parts: what the page, the metrics and the history are made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.status.counts import Counts, StreamFigures

FLOWING, WAITING, STOPPED = "flowing", "waiting", "stopped"


@dataclass(frozen=True)
class Source:
    """One `--consumer.config`."""

    name: str  # of the file, without its ending
    address: str
    group: str
    cluster: str
    member: str  # this process in the group
    trouble: str  # why it is not mirrored at the moment
    is_ready: bool  # its partitions are known, and a stream is at work
    dropped: int
    lost: int
    counts: Counts


@dataclass(frozen=True)
class Stream:
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
    why: str  # it does not flow
    offset: int
    lag: int


@dataclass(frozen=True)
class Snapshot:
    sources: tuple[Source, ...]
    target: str
    target_cluster: str
    guarantee: str
    why: str  # that is the guarantee
    buffer_limit: int  # bytes, of each stream
    streams: tuple[Stream, ...]
    partitions: tuple[Partition, ...]
    is_stopping: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    def in_state(self, state: str) -> int:
        return sum(partition.state == state for partition in self.partitions)
