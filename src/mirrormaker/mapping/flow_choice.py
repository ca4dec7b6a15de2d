"""Which flow a failover is about: the map of one source cluster on the target, and its fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mirrormaker.errors import OUTAGE, ClusterError, MirrorError, describe
from mirrormaker.mapping.map_topic import NEEDED_RIGHTS, TOPIC, MapTopic, open_map, sources_of
from mirrormaker.model.offset_map_format import Fence
from mirrormaker.wire.client.cluster import Cluster

_SOURCE_WITHIN = 15.0  # seconds for the first answer of the source


async def find_map(target: Cluster, source_id: str, is_chosen: Callable[[str], bool] = lambda name: True) -> MapTopic:
    """Return the map of a flow: that of a source cluster, or without an id the only one that has chosen topics."""
    if source_id:
        return await open_map(target, source_id)
    sources = await sources_of(target)
    candidates = [name for name, topics in sources.items() if any(map(is_chosen, topics))]
    if len(candidates) == 1:
        return await open_map(target, candidates[0])
    if not candidates:
        known = f" of the chosen topics; it has {', '.join(sorted(set().union(*sources.values())))}" if sources else ""
        raise ClusterError(
            f"{target.endpoint} has no offset map (topic {TOPIC}){known}: no mirror has written one there; {NEEDED_RIGHTS}"
        )
    raise ClusterError(
        f"{len(candidates)} source clusters have chosen topics in {TOPIC}: name one with --source.id:"
        f" {', '.join(sorted(candidates))}"
    )


async def undo(topic: MapTopic) -> Fence:
    """Remove the fence of a flow; return it. Raise ClusterError if there is none."""
    fence = topic.fence
    if fence is None:
        raise ClusterError(f"no failover has closed the flow from {topic.source_id}: there is nothing to undo")
    await topic.write_fence(None)
    return fence


async def id_of(source: Cluster, group_id: str) -> str:
    """Return the id under which the map knows a source; raise ClusterError if it does not answer within 15 s."""
    try:
        await asyncio.wait_for(source.refresh(), _SOURCE_WITHIN)
    except (*OUTAGE, MirrorError) as error:
        reason = "no answer in time" if isinstance(error, asyncio.TimeoutError) else describe(error)
        raise ClusterError(
            f"the source cluster cannot be reached: {reason} (bootstrap.servers={source.endpoint}); if it is gone:"
            " --source.is.gone"
        ) from error
    return source.id or f"group {group_id}"
