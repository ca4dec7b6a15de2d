"""A snapshot of a running mirror, from which status page, metrics and progress display are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mirrormaker.driver.flow import Flow
from mirrormaker.driver.loop_watch import LoopWatch
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.events.partition_events import LostRange
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, Partition, Snapshot, Source, Stream


@dataclass(frozen=True)
class Earlier:
    """What the flows of one source did that failed and were replaced; records and bytes are in its `Counts`."""

    undelivered: int = 0
    lost: tuple[LostRange, ...] = ()

    def plus(self, flow: Flow) -> Earlier:
        """Return the sum with a flow that has ended."""
        return Earlier(self.undelivered + flow.undelivered.count, (*self.lost, *flow.renumbering.lost))


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
            rows = [_partition(name, owned) for name, flow in named for owned in flow.scheduler]
            rows += [_without_start(name, *key) for name, flow in named for key in sorted(flow.without_start)]
            self.partitions = tuple(rows)


def take_snapshot(
    sources: Sequence[ObservedSource],
    rows: Rows,
    guarantee: tuple[str, str],
    buffer_limit: int,
    loop: LoopWatch,
    is_stopping: bool,
) -> Snapshot:
    """Return the mirror in all its parts."""
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
        loop_blocked=loop.longest,
        loop_busy=loop.busiest,
        is_stopping=is_stopping,
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
    groups = flow.group_sync
    return Source(
        name=name,
        address=str(flow.source.endpoint) or f"ZooKeeper {flow.settings.zookeeper}",
        group=flow.settings.group_id,
        cluster=flow.source.id,
        member=source.member,
        trouble=source.trouble,
        is_assigned=flow.ready.is_set(),
        topics_left_out=tuple((name, trouble.reason) for name, trouble in sorted(flow.topic_sync.troubles.items())),
        dropped=source.earlier.undelivered + flow.undelivered.count,
        lost=len(source.earlier.lost) + len(flow.renumbering.lost),
        counts=flow.scheduler.counts,
        groups=None if groups is None or not groups.has_groups else groups.figures,
    )


def _streams(name: str, flow: Flow) -> list[Stream]:
    shares = Counter(owned.stream for owned in flow.scheduler)
    figures = flow.scheduler.counts.streams
    return [Stream(name, n, shares[n], figures[n]) for n in range(flow.scheduler.streams)]


def _partition(name: str, owned: OwnedPartition) -> Partition:
    state, why = FLOWING, ""
    if owned.stop_reason:
        state, why = STOPPED, owned.stop_reason
    elif not owned.is_flowing:
        state, why = WAITING, owned.note or _waits_for(owned)
    position = owned.position
    return Partition(name, *position.key, owned.stream, state, why, position.offset, owned.lag, owned.is_lag_known)


def _without_start(name: str, topic: str, partition: int) -> Partition:
    why = "until it is known where it starts"
    return Partition(name, topic, partition, None, WAITING, why, -1, 0, lag_known=False)


def _waits_for(owned: OwnedPartition) -> str:
    if not owned.is_running:
        return "for a new producer identity" if owned.is_renumbering else "for a stream"
    return "reading the target back" if owned.state == "resuming" else ""
