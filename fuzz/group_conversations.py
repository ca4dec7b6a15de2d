"""Conversations about consumer groups: whether they could fail over, keeping them in step, and a failover."""

from __future__ import annotations

from mirrormaker.groups.failover import Failover, FailoverSettings
from mirrormaker.groups.readiness import ReadinessQuestion
from mirrormaker.groups.readiness_reader import ReadinessReader
from mirrormaker.groups.sync import GroupSync, SyncSettings
from mirrormaker.mapping.flow_choice import find_map, undo
from mirrormaker.mapping.map_topic import MapTopic, open_map
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.topic_filter import Filter
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol.codec import TopicPartition

ORDERS, PARTITIONS = "orders", 2
MIRROR, CONSUMERS = "mirror", "consumers"  # groups with members
READERS, SHARERS = "readers", "sharers"  # groups with offsets and without members: their offsets move
_CHOSEN = frozenset({CONSUMERS, READERS, SHARERS})


async def readiness(source: Endpoint, target: Endpoint) -> None:
    """Ask whether groups could fail over which the target does not have yet, also once the source is gone."""
    ours, theirs = Cluster(source), Cluster(target)
    try:
        await ReadinessReader(ours, theirs, ReadinessQuestion(_is_chosen, mirror_group=MIRROR)).read()
        await ReadinessReader(None, theirs, ReadinessQuestion(_is_chosen, mirror_group=MIRROR)).read()
    finally:
        ours.close()
        theirs.close()


async def groups(source: Endpoint, target: Endpoint) -> None:
    """Keep groups in step on the target, by the offset map that is stored there."""
    ours, theirs = Cluster(source), Cluster(target)
    try:
        await ours.refresh()
        await theirs.refresh()
        stored = await open_map(theirs, ours.id)
        settings = SyncSettings(_is_chosen)
        sync = GroupSync(ours, theirs, settings, _StoredMaps(stored), lambda: stored.partitions, lambda _: None)
        # The second round reads what the first one has written.
        await sync.round()
        await sync.round()
    finally:
        ours.close()
        theirs.close()


async def failover(source: Endpoint, target: Endpoint) -> None:
    """Fail over, again as if the source were gone, and open the flow again."""
    ours, theirs = Cluster(source), Cluster(target)
    settings = FailoverSettings(MIRROR, Filter.of(ORDERS, None), SyncSettings(_is_chosen), "fuzz", is_repeated=True)
    try:
        await ours.refresh()
        await theirs.refresh()
        topic = await find_map(theirs, "", settings.topics.by_name())
        await Failover(ours, theirs, topic, settings, lambda _: None).run()
        await Failover(None, theirs, topic, settings, lambda _: None).run()
        await undo(topic)
    finally:
        ours.close()
        theirs.close()


def _is_chosen(group: str) -> bool:
    return group in _CHOSEN


class _StoredMaps:
    """The maps as they are stored, in place of those of a running mirror."""

    def __init__(self, stored: MapTopic) -> None:
        self._stored = stored

    def partition(self, key: TopicPartition) -> PartitionMap:
        """Return the map of a source partition."""
        return self._stored.read(key)

    async def refresh(self) -> None:
        """Read what was stored since the last time."""
        await self._stored.refresh()
