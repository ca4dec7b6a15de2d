"""The mirror as its status page sees it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from mirrormaker.driver.flow import Flow
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, Partition, Snapshot, Source, Stream

if TYPE_CHECKING:
    from mirrormaker.driver.process import Mirror


def look(mirror: Mirror) -> Snapshot:
    names = _names([Path(settings.path).stem for settings in mirror.sources])
    guarantee, why = mirror.guarantee()
    target = next((flow.target for flow in mirror.flows if flow.target.id), mirror.flows[0].target)
    each = list(zip(names, mirror.flows, strict=True))
    return Snapshot(
        sources=tuple(_source(mirror, name, flow) for name, flow in each),
        target=str(target.endpoint),
        target_cluster=target.id,
        guarantee=guarantee,
        why=why,
        buffer_limit=mirror.target.buffer_bytes,
        streams=tuple(stream for name, flow in each for stream in _streams(name, flow)),
        partitions=tuple(_partition(name, holding) for name, flow in each for holding in flow.scheduler),
        is_stopping=mirror.is_stopping,
    )


def _names(stems: list[str]) -> list[str]:
    """Files of one name in several directories must not look like one source."""
    names: list[str] = []
    for at, stem in enumerate(stems, 1):
        numbered = (f"{stem}-{number}" for number in count(at))
        is_alone = stems.count(stem) == 1
        names.append(stem if is_alone else next(name for name in numbered if name not in (*stems, *names)))
    return names


def _source(mirror: Mirror, name: str, flow: Flow) -> Source:
    since_the_start = mirror.flows_of(flow.number)
    trouble = mirror.trouble_of(flow.number)
    at_work = any(stream.at_work for stream in flow.scheduler.counts.streams.values())
    return Source(
        name=name,
        address=str(flow.source.endpoint) or f"ZooKeeper {flow.settings.zookeeper}",
        group=flow.settings.group_id,
        cluster=flow.source.id,
        member=mirror.member_of(flow.number),
        trouble=trouble,
        is_ready=not trouble and flow.ready.is_set() and at_work,
        dropped=sum(f.undelivered.count for f in since_the_start),
        lost=sum(len(f.lost) for f in since_the_start),
        counts=flow.scheduler.counts,
    )


def _streams(name: str, flow: Flow) -> list[Stream]:
    holdings = list(flow.scheduler)
    figures = flow.scheduler.counts.streams
    return [Stream(name, n, sum(h.stream == n for h in holdings), figures[n]) for n in range(flow.scheduler.streams)]


def _partition(name: str, holding: OwnedPartition) -> Partition:
    state, why = FLOWING, ""
    if holding.stopped:
        state, why = STOPPED, holding.stopped
    elif holding.note or holding.state != "flowing" or not holding.given:
        state, why = WAITING, holding.note or _waits_for(holding)
    position = holding.position
    return Partition(name, *position.key, holding.stream, state, why, position.offset, holding.lag)


def _waits_for(holding: OwnedPartition) -> str:
    if not holding.given:
        return "for new numbers" if holding.busy else "for a stream"
    return "reading the target back" if holding.state == "resuming" else ""
