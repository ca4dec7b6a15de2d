"""Keeping the chosen topics in step: which ones the source has, and their counterparts on the target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.topics import TargetTopics, TopicTrouble, Troubles
from mirrormaker.errors import OUTAGE, ClusterError
from mirrormaker.events import event
from mirrormaker.events.process_events import TopicLeftOut, TopicsFailed, TopicTakenUp
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.transport.threads import run_in_thread

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
        """`is_ready` is False until the first partitions are owned; until then it is an error if nothing can be mirrored."""
        self._source, self._target, self._filter, self._matcher = source, target, filter, matcher
        self._membership, self._scheduler, self._routing = membership, scheduler, routing
        self._topics, self._permissions, self._renumbering = topics, permissions, renumbering
        self._report, self._is_ready = report, is_ready
        self.left_out: list[str] = []  # internal topics that the filter matches
        # Chosen topics that are not mirrored at the moment, and why.
        self.troubles: Troubles = {}
        self._counts: dict[str, int] = {}  # partitions of each chosen topic, as the group has assigned them

    async def sync(self) -> None:
        """Find the chosen topics, create or grow their counterparts, and subscribe to those that can be mirrored."""
        matcher = await self._matcher()
        await self._source.refresh()
        await self._target.refresh()
        known = self._source.topics.values()
        # Java's matcher asks the JVM for each name that it has not seen yet.
        await run_in_thread(lambda: [matcher(name) for name in list(self._source.topics)])
        chosen = self._filter.chosen(known, matcher)
        self.left_out = self._filter.left_out(known, matcher)
        refused = await self._permissions.find_missing(chosen, self._filter.names)
        troubles = {name: TopicTrouble(reason) for name, reason in refused.items()}
        smaller = {topic.name for topic in chosen if self._routing.is_smaller_on_target(topic.name)}
        positions = [
            owned.position
            for owned in self._scheduler
            if smaller and owned.position.topic in smaller and not owned.stop_reason
        ]
        grow = {position.topic for position in positions if self._routing.had_equal_counts(position)}
        troubles |= await self._topics.ensure([topic for topic in chosen if topic.name not in troubles], grow)
        self._take_note(troubles, len(chosen))
        self._renumbering.check_partition_counts()
        # Partitions that are mirrored stay: their stream finds out by itself if a topic refuses them.
        mirrored = {key[0] for key in self._scheduler.owned}
        usable = [topic for topic in chosen if topic.name not in troubles or topic.name in mirrored]
        self._membership.subscribe(topic.name for topic in usable)
        counts = {topic.name: len(topic.partitions) for topic in usable}
        if any(self._counts.get(topic, count) != count for topic, count in counts.items()):
            self._membership.rebalance()
        self._counts = counts

    def _take_note(self, troubles: Troubles, chosen: int) -> None:
        """Report each topic that is not mirrored once; raise the reason if there is no other at the start."""
        lasting = {name: trouble for name, trouble in troubles.items() if not trouble.is_passing}
        if lasting and not self._is_ready() and len(troubles) >= chosen:
            raise ClusterError(next(iter(lasting.values())).reason)
        for name, trouble in troubles.items():
            if self.troubles.get(name) != trouble:
                self._report(TopicLeftOut(name, trouble.reason))
        for name in self.troubles.keys() - troubles.keys():
            self._report(TopicTakenUp(name))
        self.troubles = troubles

    async def run(self, longest_pause: float, after_sync: Callable[[], None]) -> None:
        """Sync for as long as this runs, at least every `longest_pause` seconds."""
        reported = ""
        while True:
            await asyncio.sleep(min(_SYNC_EVERY, longest_pause))
            try:
                await self.sync()
                after_sync()
                reported = ""
            except OUTAGE:
                continue  # the next round tells
            except ClusterError as error:
                if str(error) != reported:
                    reported = str(error)
                    self._report(TopicsFailed(reported))
