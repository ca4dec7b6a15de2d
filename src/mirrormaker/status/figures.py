"""Every figure of a mirror, defined once: the progress line, the status page, `/api`, `/metrics` and the Python API show these.

docs/observing.md has the definitions for users.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from mirrormaker.status.snapshot import FLOWING, NO_STREAM, STOPPED, WAITING, Partition, Snapshot


@dataclass(frozen=True)
class StreamTotals:
    """One stream."""

    source: str
    number: int
    is_at_work: bool  # connected to the driver
    partitions: int  # that it has, or is to get next
    lag: int  # of these
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class SourceTotals:
    """One source."""

    name: str
    is_assigned: bool  # its partitions are known
    is_ready: bool  # they are known, and a stream is at work
    streams_at_work: int
    topics: int
    partitions: int
    flowing: int
    waiting: int
    stopped: int
    lag: int
    behind: int
    lag_unknown: int
    records_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Totals:
    """The mirror at one moment, added up."""

    # Records that the target has acknowledged since the process started.
    records: int
    # Bytes of the batches that the target has acknowledged since then, as they were sent.
    bytes: int
    # Offsets between the position and the end of the source's log, of all partitions, as the source last said.
    lag: int
    # Partitions that are assigned to this process. Each is flowing, waiting or stopped.
    partitions: int
    flowing: int
    waiting: int
    stopped: int
    # Partitions with a lag.
    behind: int = 0
    # Partitions whose source has not said where the log ends, or did not answer when it was last asked.
    lag_unknown: int = 0
    # Streams that are connected to the driver.
    streams_at_work: int = 0
    # Over the last 5 to 10 seconds.
    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    sources: tuple[SourceTotals, ...] = ()
    streams: tuple[StreamTotals, ...] = ()

    @property
    def standing(self) -> str:
        """Whether the mirror has caught up, or why that cannot be said, or when it will have."""
        without = [source.name for source in self.sources if not source.streams_at_work]
        if not self.streams_at_work:
            return NO_STREAM
        if without:
            return f"no stream of {', '.join(without)} is at work"
        if self.lag_unknown:
            return f"lag unknown in {self.lag_unknown:,} of {self.partitions:,} partitions"
        if not self.partitions:
            return "no partition is assigned to this process"
        if self.lag == 0:
            return "caught up"
        if self.records_per_second < 1:
            return "not moving"
        return f"caught up in {duration(self.lag / self.records_per_second)}"

    @property
    def missing(self) -> str:
        """The records that are not on the target, for the last line."""
        parts = [f"{self.lag:,}, missing in {partitions(self.behind)}"] if self.lag else []
        if self.lag_unknown:
            parts.append(f"unknown in {partitions(self.lag_unknown)}")
        if unassigned := [source.name for source in self.sources if not source.is_assigned]:
            parts.append(f"unknown for source {', '.join(unassigned)}: no partition was assigned yet")
        return f"lag {', '.join(parts) or '0'}"


@dataclass
class PartitionSums:
    """The sums over the partitions of a source, or of a stream."""

    states: Counter[str] = field(default_factory=Counter)
    topics: set[str] = field(default_factory=set)
    lag: int = 0
    behind: int = 0
    lag_unknown: int = 0

    @classmethod
    def of(cls, rows: list[Partition]) -> PartitionSums:
        """Add up partitions."""
        return cls(
            states=Counter([row.state for row in rows]),
            topics={row.topic for row in rows},
            lag=sum([row.lag for row in rows]),
            behind=len([row for row in rows if row.lag]),
            lag_unknown=len([row for row in rows if not row.lag_known]),
        )

    def add(self, other: PartitionSums) -> None:
        """Add the sums of other partitions of the same source."""
        self.states += other.states
        self.topics |= other.topics
        self.lag += other.lag
        self.behind += other.behind
        self.lag_unknown += other.lag_unknown


class SnapshotSums:
    """Adds up snapshots. Partitions are looked at only if one of them has changed."""

    def __init__(self) -> None:
        self._rows: tuple[Partition, ...] | None = None
        self._by_source: dict[str, PartitionSums] = defaultdict(PartitionSums)
        self._by_stream: dict[tuple[str, int | None], PartitionSums] = {}

    def totals(self, snapshot: Snapshot, now: float) -> Totals:
        """Return the totals of a snapshot; `now` is the monotonic time, for rates."""
        # Snapshots share their rows for as long as nothing changes.
        if self._rows is not snapshot.partitions:
            self._rows = snapshot.partitions
            self._sum_up(snapshot.partitions)
        sources = tuple(self._sources(snapshot, now))
        return Totals(
            records=sum(source.counts.all.records for source in snapshot.sources),
            bytes=sum(source.counts.all.bytes for source in snapshot.sources),
            lag=sum(source.lag for source in sources),
            partitions=sum(source.partitions for source in sources),
            flowing=sum(source.flowing for source in sources),
            waiting=sum(source.waiting for source in sources),
            stopped=sum(source.stopped for source in sources),
            behind=sum(source.behind for source in sources),
            lag_unknown=sum(source.lag_unknown for source in sources),
            streams_at_work=snapshot.streams_at_work,
            records_per_second=sum(source.records_per_second for source in sources),
            bytes_per_second=sum(source.bytes_per_second for source in sources),
            sources=sources,
            streams=tuple(self._streams(snapshot, now)),
        )

    def _sum_up(self, rows: Iterable[Partition]) -> None:
        by_stream: dict[tuple[str, int | None], list[Partition]] = defaultdict(list)
        for row in rows:
            by_stream[row.source, row.stream].append(row)
        self._by_stream = {key: PartitionSums.of(found) for key, found in by_stream.items()}
        self._by_source = defaultdict(PartitionSums)
        for (source, _), sums in self._by_stream.items():
            self._by_source[source].add(sums)

    def _sources(self, snapshot: Snapshot, now: float) -> Iterable[SourceTotals]:
        for source in snapshot.sources:
            sums, pace = self._by_source[source.name], source.counts.all.pace(now)
            yield SourceTotals(
                name=source.name,
                is_assigned=source.is_assigned,
                is_ready=not source.not_ready,
                streams_at_work=source.streams_at_work,
                topics=len(sums.topics),
                partitions=sums.states.total(),
                flowing=sums.states[FLOWING],
                waiting=sums.states[WAITING],
                stopped=sums.states[STOPPED],
                lag=sums.lag,
                behind=sums.behind,
                lag_unknown=sums.lag_unknown,
                records_per_second=pace[0],
                bytes_per_second=pace[1],
            )

    def _streams(self, snapshot: Snapshot, now: float) -> Iterable[StreamTotals]:
        for stream in snapshot.streams:
            sums = self._by_stream.get((stream.source, stream.number), PartitionSums())
            pace = stream.figures.counted.pace(now)
            at_work = stream.figures.at_work
            yield StreamTotals(stream.source, stream.number, at_work, sums.states.total(), sums.lag, *pace)


def partitions(count: int) -> str:
    """Return a number of partitions in words."""
    return f"{count:,} partition{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """Return a duration in the unit that people would use."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
