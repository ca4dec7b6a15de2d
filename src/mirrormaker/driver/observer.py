"""A running mirror as status page, metrics and progress display see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mirrormaker.console.display import StreamTotals, Totals
from mirrormaker.driver.flow import Flow
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.events.partition_events import LostRange
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, Partition, Snapshot, Source, Stream


@dataclass(frozen=True)
class Earlier:
    """What the flows of one source did that failed and were replaced."""

    records: int = 0
    bytes: int = 0
    undelivered: int = 0
    lost: tuple[LostRange, ...] = ()

    def plus(self, flow: Flow) -> Earlier:
        """Return the sum with a flow that has ended."""
        records, size = flow.records_and_bytes
        undelivered = self.undelivered + flow.undelivered.count
        return Earlier(self.records + records, self.bytes + size, undelivered, (*self.lost, *flow.renumbering.lost))


@dataclass(frozen=True)
class ObservedSource:
    """One source: its running flow, what earlier ones did, and why it is not mirrored at the moment."""

    flow: Flow
    earlier: Earlier
    member: str
    trouble: str


class Rows:
    """The streams and partitions of all flows as a snapshot has them, made again only if something has changed."""

    def __init__(self) -> None:
        self._changes: list[tuple[Flow, int]] = []
        self.streams: tuple[Stream, ...] = ()
        self.partitions: tuple[Partition, ...] = ()

    def update(self, named: Sequence[tuple[str, Flow]]) -> None:
        """Make the rows again if a flow is new, or one of its partitions has changed."""
        changes = [(flow, flow.scheduler.changes) for _, flow in named]
        if changes != self._changes:
            self._changes = changes
            self.streams = tuple(stream for name, flow in named for stream in _streams(name, flow))
            self.partitions = tuple(_partition(name, owned) for name, flow in named for owned in flow.scheduler)


def take_snapshot(
    sources: Sequence[ObservedSource],
    rows: Rows,
    guarantee: tuple[str, str],
    buffer_limit: int,
    loop_blocked: float,
    is_stopping: bool,
) -> Snapshot:
    """Return the mirror in all its parts, for the status page."""
    names = source_names([Path(source.flow.settings.path).stem for source in sources])
    flows = [source.flow for source in sources]
    target = next((flow.target for flow in flows if flow.target.id), flows[0].target)
    rows.update(list(zip(names, flows, strict=True)))
    return Snapshot(
        sources=tuple(_source(name, source) for name, source in zip(names, sources, strict=True)),
        target=str(target.endpoint),
        target_cluster=target.id,
        guarantee=guarantee[0],
        why=guarantee[1],
        buffer_limit=buffer_limit,
        streams=rows.streams,
        partitions=rows.partitions,
        loop_blocked=loop_blocked,
        is_stopping=is_stopping,
    )


def add_up(flows: Sequence[Flow], earlier: Iterable[Earlier]) -> Totals:
    """Return the mirror's totals, for the progress display."""
    owned = [partition for flow in flows for partition in flow.scheduler]
    done = [*((before.records, before.bytes) for before in earlier), *(flow.records_and_bytes for flow in flows)]
    return Totals(
        records=sum(records for records, _ in done),
        bytes=sum(size for _, size in done),
        lag=sum(o.lag for o in owned),
        partitions=len(owned),
        flowing=sum(o.state == "flowing" for o in owned),
        waiting=sum(o.state == "waiting" and o.is_running for o in owned),
        stopped=sum(bool(o.stop_reason) for o in owned),
        streams=tuple(stream for flow in flows for stream in _stream_totals(flow, len(flows) == 1)),
    )


def source_names(stems: list[str]) -> list[str]:
    """Return names for files: files of one name in several directories must not look like one source."""
    names: list[str] = []
    for at, stem in enumerate(stems, 1):
        numbered = (f"{stem}-{number}" for number in count(at))
        is_unique = stems.count(stem) == 1
        names.append(stem if is_unique else next(name for name in numbered if name not in (*stems, *names)))
    return names


def _source(name: str, source: ObservedSource) -> Source:
    flow = source.flow
    at_work = any(stream.at_work for stream in flow.scheduler.counts.streams.values())
    return Source(
        name=name,
        address=str(flow.source.endpoint) or f"ZooKeeper {flow.settings.zookeeper}",
        group=flow.settings.group_id,
        cluster=flow.source.id,
        member=source.member,
        trouble=source.trouble,
        is_ready=not source.trouble and flow.ready.is_set() and at_work,
        topics_left_out=tuple((name, trouble.reason) for name, trouble in sorted(flow.topic_sync.troubles.items())),
        dropped=source.earlier.undelivered + flow.undelivered.count,
        lost=len(source.earlier.lost) + len(flow.renumbering.lost),
        counts=flow.scheduler.counts,
    )


def _streams(name: str, flow: Flow) -> list[Stream]:
    shares = Counter(owned.stream for owned in flow.scheduler)
    figures = flow.scheduler.counts.streams
    return [Stream(name, n, shares[n], figures[n]) for n in range(flow.scheduler.streams)]


def _stream_totals(flow: Flow, is_only_source: bool) -> list[StreamTotals]:
    totals = []
    for number in range(flow.scheduler.streams):
        owned = [o for o in flow.scheduler if o.stream == number]
        name = str(number) if is_only_source else f"{flow.settings.group_id}/{number}"
        totals.append(StreamTotals(name, len(owned), sum(o.load for o in owned), sum(o.lag for o in owned)))
    return totals


def _partition(name: str, owned: OwnedPartition) -> Partition:
    state, why = FLOWING, ""
    if owned.stop_reason:
        state, why = STOPPED, owned.stop_reason
    elif owned.note or owned.state != "flowing" or not owned.is_running:
        state, why = WAITING, owned.note or _waits_for(owned)
    position = owned.position
    return Partition(name, *position.key, owned.stream, state, why, position.offset, owned.lag)


def _waits_for(owned: OwnedPartition) -> str:
    if not owned.is_running:
        return "for a new producer identity" if owned.is_renumbering else "for a stream"
    return "reading the target back" if owned.state == "resuming" else ""
