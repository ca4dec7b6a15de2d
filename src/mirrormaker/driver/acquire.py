"""From an assignment to owned partitions: find where each one starts, and commit new identities before their first use.

A partition that cannot start does not keep the others waiting. One whose trouble may pass in a moment (a leader that moves)
stays pending; one that needs somebody's help (a missing permission, a damaged ledger entry) is owned as stopped, with its
reason. Both are tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from mirrormaker.driver.committer import Committer
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.owned_partition import NO_IDENTITY, OwnedPartition
from mirrormaker.driver.patience import ask_until_answered
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.start_positions import Entry, StartPositions
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import OUTAGE, ClusterError, EntryError, MirrorError, PartitionError, Unanswered, describe
from mirrormaker.events import event
from mirrormaker.events.partition_events import (
    ContinuedFromZooKeeper,
    OldConsumersRunning,
    PartitionStopped,
    Waiting,
    ZooKeeperUnread,
)
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model import partition_life as life
from mirrormaker.model.ledger import check_fits, unpack
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import give_way, in_turns
from mirrormaker.zookeeper.lookup import ZooKeeperLookup

Entries = dict[TopicPartition, Entry]
Refused = dict[TopicPartition, Exception]
_RETRY_AFTER = 5.0  # seconds until partitions that could not be acquired are tried again


@dataclass(frozen=True)
class Parts:
    """The collaborators of an acquisition."""

    source: Cluster
    target: Cluster
    membership: Membership
    scheduler: Scheduler
    committer: Committer
    routing: Routing
    start_positions: StartPositions
    topics: TargetTopics
    zookeeper: ZooKeeperLookup | None
    report: event.Report
    offset_map: MapKeeper | None = None


class Acquisition:
    """Takes up what the group has assigned. The group may rebalance at any moment: `pending` is what is still ours to take."""

    def __init__(self, parts: Parts, is_ready: Callable[[], bool], sync_topics: Callable[[], Awaitable[None]]) -> None:
        """`is_ready` is False until the first partitions are owned; `sync_topics` looks at both clusters' topics again."""
        self._parts, self._is_ready, self._sync_topics = parts, is_ready, sync_topics
        self.pending: set[TopicPartition] = set()
        self.assigned = asyncio.Event()  # set when the assignment has to be looked at again
        self.first_start = False  # of this group
        self.overtaken: list[str] = []  # partitions whose next records retention has removed before this start
        # Partitions of the group's first start that have not begun yet, as far as this process knows.
        self._from_first_start: set[TopicPartition] = set()
        # Why partitions could not be acquired, as it was reported.
        self._reported: dict[TopicPartition, str] = {}
        self._retry: asyncio.TimerHandle | None = None

    async def note_first_start(self, waiting: Collection[str] = ()) -> None:
        """Note the partitions that are there while the group has committed nothing: `auto.offset.reset` is for them.

        This comes before the process joins the group. Later the others of a first start may have committed already, and
        a partition that they have not begun would look like one that is new. Topics in `waiting` are subscribed to soon.
        """
        parts = self._parts
        committed, failed = await ask_until_answered(parts.membership.committed, parts.report)
        self.first_start = not (committed or failed)
        if self.first_start:
            names = parts.source.topics.keys() & {*parts.membership.topics, *waiting}
            self._from_first_start = {(name, p) for name in names for p in parts.source.topics[name].partitions}

    async def acquire(self) -> AsyncIterator[set[TopicPartition]]:
        """Own the pending partitions; yield first those that go on, and then those whose new identities had to be committed."""
        parts = self._parts
        # A topic that is gone may come back as another one, which is new then.
        self._from_first_start = {key for key in self._from_first_start if key[0] in parts.source.topics}
        if not self.pending:
            return
        if any(not parts.routing.is_known(topic) for topic, _ in self.pending):
            # The group's leader knows of more topics than we do.
            await ask_until_answered(self._sync_topics, parts.report)
        entries, refused = await self._read_ledger()
        await self._add_zookeeper_offsets(entries, refused)
        await give_way()
        await self._grow_as_before(entries)
        keys = {key for key in self.pending if parts.routing.is_known(key[0])} - refused.keys()
        await give_way()
        refused |= await self._without_leader(keys, entries)
        continued, started = list[Position](), list[Position]()
        # Only partitions of the first start begin where the settings say. One that is refused does not hold up the others.
        for first_start in (True, False):
            group = {key for key in keys - refused.keys() if (key in self._from_first_start) is first_start}
            starts = await parts.start_positions.find(group, entries, first_start)
            refused |= starts.failed
            continued += await self._that_fit(starts.continued, refused)
            started += await self._that_fit(starts.started, refused)
        if parts.offset_map is not None:
            await parts.offset_map.begin(continued)
        yield await self._own(continued, clean=False)
        await self._note_overtaken(continued)
        started = await ask_until_answered(lambda: self._commit_new(started, refused), parts.report)
        yield await self._own(started, clean=True)
        if parts.offset_map is not None:
            # Others may store newer blocks of partitions that are not owned.
            parts.offset_map.forget(*(keys | refused.keys()) - parts.scheduler.owned.keys())
        self._set_aside({key: error for key, error in refused.items() if key in self.pending})

    async def _own(self, positions: list[Position], *, clean: bool) -> set[TopicPartition]:
        """Own partitions from now on, except those that a rebalance has given to others meanwhile; return them."""
        acquired: set[TopicPartition] = set()
        async for position in in_turns(positions):
            if position.key in self.pending:
                acquired.add(position.key)
                self._reported.pop(position.key, None)
                self._parts.scheduler.add(OwnedPartition(position, life.Life(life.Waiting(clean)), committed=position))
        self._from_first_start -= acquired
        return acquired

    # -- partitions that cannot start

    def _set_aside(self, refused: Refused) -> None:
        """Report partitions that cannot start, and try them again later; own those that need somebody's help as stopped."""
        parts = self._parts
        lasting = {key: error for key, error in refused.items() if not isinstance(error, OUTAGE)}
        if lasting and len(lasting) == len(self.pending) and not (self._is_ready() or parts.scheduler.owned):
            # Nothing can be mirrored.
            error = lasting[min(lasting)]
            raise error if isinstance(error, MirrorError) else ClusterError(describe(error))
        if refused:
            self._retry_later()
        reasons: dict[str, type[Waiting] | type[PartitionStopped]] = {}
        for key, error in sorted(refused.items()):
            reason = describe(error)
            if self._reported.get(key) != reason:
                self._reported[key] = reason
                reasons[reason] = PartitionStopped if key in lasting else Waiting
            if key in lasting:
                nowhere = Position(*key, 0, -1, "", NO_IDENTITY, parts.target.id, "", 0, ())
                stopped = life.Life(life.Stopped(math.inf, clean=True), life.Trouble(reason))
                parts.scheduler.add(OwnedPartition(nowhere, stopped, committed=nowhere, state="stopped"))
        for reason, kind in reasons.items():
            parts.report(kind(reason))

    def retry_refused(self) -> None:
        """Try partitions again that could not start."""
        parts = self._parts
        for key, owned in list(parts.scheduler.owned.items()):
            if owned.position.identity == NO_IDENTITY and not owned.life.is_leaving and parts.routing.is_known(key[0]):
                parts.scheduler.remove(key)
                self.assigned.set()

    def _retry_later(self) -> None:
        """Look at the assignment again in a while: some partitions could not be acquired."""
        loop = asyncio.get_running_loop()
        if self._retry is None or self._retry.when() < loop.time():
            self._retry = loop.call_later(_RETRY_AFTER, self._try_again)

    def _try_again(self) -> None:
        self.retry_refused()
        self.assigned.set()

    async def _without_leader(self, keys: set[TopicPartition], entries: Entries) -> Refused:
        """Return partitions whose leaders would have to be asked for offsets, and that have none."""
        source, target = self._parts.source, self._parts.target
        are_led = {
            topic: all(target.leader(topic, p) for p in target.topics[topic].partitions)
            for topic in {topic for topic, _ in keys}
        }
        refused: Refused = {}
        async for topic, partition in in_turns(keys):
            entry = entries.get((topic, partition))
            if isinstance(entry, Position) and entry.target_cluster == target.id:
                continue  # the ledger says where it starts
            if not (are_led[topic] and source.leader(topic, partition)):
                text = f"{topic}-{partition} has no leader, so its start is unknown"
                refused[topic, partition] = ConnectionError(text)
        return refused

    async def _that_fit(self, positions: list[Position], refused: Refused) -> list[Position]:
        """Return the positions that a committed offset can carry."""
        fitting = []
        async for position in in_turns(positions):
            try:
                check_fits(position)
                fitting.append(position)
            except EntryError as error:
                refused[position.key] = error
        return fitting

    # -- the ledger

    async def _read_ledger(self) -> tuple[Entries, Refused]:
        """Return the ledger entries of pending partitions, and the partitions whose entry cannot be read.

        A partition whose entry cannot be read must not start anew: everything would be mirrored a second time.
        """
        parts = self._parts
        try:
            committed, failed = await ask_until_answered(parts.membership.committed, parts.report)
        except ClusterError as error:
            if not parts.scheduler.owned:
                raise
            # Those that are mirrored already go on.
            topic, partition = min(self.pending)
            more = f" and {len(self.pending) - 1} more" if len(self.pending) > 1 else ""
            text = f"{topic}-{partition}{more}: the committed offsets cannot be read: {error}"
            return {}, dict.fromkeys(self.pending, PartitionError(text))
        # Other processes have begun some.
        self._from_first_start -= committed.keys()
        refused: Refused = {}
        for key in failed.keys() & self.pending:
            reason = parts.committer.reason(key[0], failed[key])
            text = f"{key[0]}-{key[1]} stops: its committed offset cannot be read: {reason}"
            refused[key] = Unanswered(text, key[0]) if failed[key].retriable else PartitionError(text)
        entries: Entries = {}
        async for key, (offset, metadata) in in_turns(committed.items()):
            if key not in self.pending:
                continue
            try:
                entries[key] = unpack(*key, offset, metadata) or offset
            except EntryError as error:
                refused[key] = error
        return entries, refused

    async def _add_zookeeper_offsets(self, entries: Entries, refused: Refused) -> None:
        """Add what an old consumer of the group has left in ZooKeeper, for partitions that Kafka has no position of."""
        group, zookeeper, report = self._parts.membership.group, self._parts.zookeeper, self._parts.report
        missing = self.pending - entries.keys() - refused.keys()
        if zookeeper is None or not missing:
            return
        try:
            old = await zookeeper.group(group)
        except ClusterError as error:
            if missing & self._from_first_start:
                raise ClusterError(
                    f"group {group} has nothing committed in Kafka, and {error}: without that line it starts as if nothing had"
                    " been mirrored yet"
                ) from error
            report(ZooKeeperUnread(str(error), len(missing)))
            return
        found = {key: old.offsets[key] for key in missing & old.offsets.keys()}
        entries |= found
        if found:
            report(ContinuedFromZooKeeper(group, len(found)))
        if found and old.owners:
            report(OldConsumersRunning(group, ", ".join(list(old.owners)[:3])))

    async def _commit_new(self, started: list[Position], refused: Refused) -> list[Position]:
        """Commit new identities, except of partitions that others have got meanwhile; return the committed ones."""
        # The coordinator refuses the commit if a rebalance comes before it.
        generation = self._parts.membership.generation
        wanted = [position for position in started if position.key in self.pending]
        reasons = await self._parts.committer.commit_new(wanted, generation)
        for (topic, partition), reason in reasons.items():
            text = f"{topic}-{partition} stops: its new producer id cannot be committed: {reason}"
            refused[topic, partition] = PartitionError(text)
        return [position for position in wanted if position.key not in reasons]

    async def _note_overtaken(self, positions: list[Position]) -> None:
        """Note for the summary where the source has lost records; the stream that comes upon it counts them."""
        with contextlib.suppress(*OUTAGE):
            starts = await list_offsets(self._parts.source, [position.key for position in positions], EARLIEST)
            for position in positions:
                if isinstance(start := starts[position.key], int) and start > position.offset:
                    self.overtaken.append(
                        f"{position.topic}-{position.partition} is committed up to offset {position.offset}, and the source"
                        f" begins at {start} by now"
                    )

    async def _grow_as_before(self, entries: Entries) -> None:
        """Add partitions on the target where the source grew while no mirror ran and both had equally many before."""
        routing = self._parts.routing
        known = {topic for topic, _ in self.pending if routing.is_known(topic)}
        smaller = {topic for topic in known if routing.is_smaller_on_target(topic)}
        positions = [entry for key, entry in entries.items() if key[0] in smaller and isinstance(entry, Position)]
        grow = {position.topic for position in positions if routing.had_equal_counts(position)}
        if grow:
            await self._parts.topics.ensure([self._parts.source.topics[topic] for topic in grow], grow)
