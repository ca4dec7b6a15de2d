"""Keeping the chosen topics in step: which ones the source has, and their counterparts on the target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import OUTAGE, ClusterError
from mirrormaker.events import event
from mirrormaker.events.process_events import TopicsFailed
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.wire.client.cluster import Cluster

_SYNC_EVERY = 5.0  # seconds; a new topic is mirrored after two of them at most


class TopicSync:
    """Looks at both clusters' topics every few seconds and acts on what changed."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        filter: Filter,
        matcher: Callable[[], Awaitable[Matcher]],
        membership: Membership,
        scheduler: Scheduler,
        routing: Routing,
        topics: TargetTopics,
        permissions: Permissions,
        renumbering: Renumbering,
        report: event.Report,
        is_ready: Callable[[], bool],
    ) -> None:
        """`is_ready` is False until the first partitions are owned; until then a topic that may not be mirrored is an error."""
        self._source, self._target, self._filter, self._matcher = source, target, filter, matcher
        self._membership, self._scheduler, self._routing = membership, scheduler, routing
        self._topics, self._permissions, self._renumbering = topics, permissions, renumbering
        self._report, self._is_ready = report, is_ready
        self.left_out: list[str] = []  # internal topics that the filter matches
        self._counts: dict[str, int] = {}  # partitions of each chosen topic, as the group has assigned them

    async def sync(self) -> None:
        """Find the chosen topics, create or grow their counterparts, and subscribe to them."""
        matcher = await self._matcher()
        await self._source.refresh()
        await self._target.refresh()
        is_first = not self._is_ready()
        if is_first:
            await self._permissions.require_named(self._filter.names)
        known = self._source.topics.values()
        chosen = await self._permissions.filter(self._filter.chosen(known, matcher), require_all=is_first)
        self.left_out = self._filter.left_out(known, matcher)
        positions = [owned.position for owned in self._scheduler if not owned.stop_reason]
        grow = {position.topic for position in positions if self._routing.had_equal_counts(position)}
        await self._topics.ensure(chosen, grow)
        self._renumbering.check_partition_counts()
        self._membership.subscribe(topic.name for topic in chosen)
        counts = {topic.name: len(topic.partitions) for topic in chosen}
        if any(self._counts.get(topic, count) != count for topic, count in counts.items()):
            self._membership.rebalance()
        self._counts = counts

    async def run(self, longest_pause: float, after_sync: Callable[[], None]) -> None:
        """Sync for as long as this runs, at least every `longest_pause` seconds."""
        reported = ""
        while True:
            await asyncio.sleep(min(_SYNC_EVERY, longest_pause))
            try:
                await self.sync()
                after_sync()
            except OUTAGE:
                continue  # the next round tells
            except ClusterError as error:
                if str(error) != reported:
                    reported = str(error)
                    self._report(TopicsFailed(reported))
