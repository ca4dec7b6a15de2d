"""Keeping the chosen topics in step: which ones the source has, and their counterparts on the target."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.patience import OutageReport
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.topics import TargetTopics, TopicTrouble, Troubles
from mirrormaker.errors import OUTAGE, BrokerError, ClusterError
from mirrormaker.events import event
from mirrormaker.events.topic_events import TopicGone, TopicLeftOut, TopicsFailed, TopicTakenUp
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.cluster_description import Topic
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.wire.transport.turns import give_way, in_turns

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
        self._not_described: dict[str, int] = {}  # unknown topics that the source answered with an error, and its code

    async def sync(self) -> None:
        """Find the chosen topics, create or grow their counterparts, and subscribe to those that can be mirrored."""
        matcher = await self._matcher()
        await self._source.refresh()
        await self._target.refresh()
        known, not_described = list(self._source.topics.values()), list(self._source.refused)
        # There may be thousands of topics, and Java's matcher asks the JVM for each name that it has not seen yet.
        chosen, self.left_out, _ = await run_in_thread(
            lambda: (
                self._filter.chosen(known, matcher),
                self._filter.left_out(known, matcher),
                [matcher(name) for name in not_described],
            )
        )
        refused = await self._permissions.find_missing(chosen, self._filter.names)
        troubles = self._find_not_described(matcher)
        troubles |= {name: TopicTrouble(reason) for name, reason in refused.items()}
        smaller = {topic.name async for topic in in_turns(chosen) if self._routing.is_smaller_on_target(topic.name)}
        positions = [
            owned.position
            for owned in self._scheduler
            if smaller and owned.position.topic in smaller and not owned.stop_reason
        ]
        grow = {position.topic for position in positions if self._routing.had_equal_counts(position)}
        troubles |= await self._topics.ensure([topic for topic in chosen if topic.name not in troubles], grow)
        self._take_note(troubles, any(topic.name not in troubles for topic in chosen))
        await give_way()
        self._renumbering.check_partition_counts()
        await give_way()
        # Partitions that are mirrored stay: their stream finds out by itself if a topic refuses them.
        mirrored = {key[0] for key in self._scheduler.owned}
        usable = [topic for topic in chosen if topic.name not in troubles or topic.name in mirrored]
        self._membership.subscribe(topic.name for topic in usable)
        counts = {topic.name: len(topic.partitions) for topic in usable}
        if any(self._counts.get(topic, count) != count for topic, count in counts.items()):
            self._membership.rebalance()
        for topic in sorted(self._counts.keys() - self._source.topics.keys()):
            self._report(TopicGone(topic, str(self._source.endpoint)))
        self._counts = counts

    @property
    def waiting(self) -> set[str]:
        """The chosen topics that are taken up as soon as a cluster answers."""
        return {name for name, trouble in self.troubles.items() if trouble.is_passing}

    def _find_not_described(self, matcher: Matcher) -> Troubles:
        """Return new topics that the source names, but has not described twice: one that is just created may take a moment."""
        source = self._source
        new = {name: code for name, code in source.refused.items() if name not in source.topics}
        before, self._not_described = self._not_described, new
        lasting = [Topic(name, b"", internal=False) for name in sorted(new.keys() & before.keys())]
        troubles: Troubles = {}
        for topic in self._filter.chosen(lasting, matcher):
            error = BrokerError(new[topic.name])
            reason = f"topic {topic.name}: {source.endpoint} does not describe it: {error}"
            troubles[topic.name] = TopicTrouble(reason, is_passing=error.retriable)
        return troubles

    def _take_note(self, troubles: Troubles, is_any_usable: bool) -> None:
        """Report each topic that is not mirrored once; raise the reason if there is no other at the start."""
        lasting = {name: trouble for name, trouble in troubles.items() if not trouble.is_passing}
        if lasting and not self._is_ready() and not is_any_usable:
            raise ClusterError(next(iter(lasting.values())).reason)
        for name, trouble in troubles.items():
            if self.troubles.get(name) != trouble:
                self._report(TopicLeftOut(name, trouble.reason))
        for name in self.troubles.keys() - troubles.keys():
            self._report(TopicTakenUp(name))
        self.troubles = troubles

    async def run(self, longest_pause: float, after_sync: Callable[[], None]) -> None:
        """Sync for as long as this runs, at least every `longest_pause` seconds."""
        reported, is_answered = "", True
        while True:
            await asyncio.sleep(min(_SYNC_EVERY, longest_pause))
            if is_answered:
                # An outage begins with the attempt that fails, not with its end: silence takes 30 s.
                outage = OutageReport(self._report, "new topics cannot be looked for now: ")
            is_answered = False
            try:
                await self.sync()
                after_sync()
                reported, is_answered = "", True
            except OUTAGE as error:
                outage.failed(error)
            except ClusterError as error:
                if str(error) != reported:
                    reported = str(error)
                    self._report(TopicsFailed(reported))
