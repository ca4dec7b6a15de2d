"""From an assignment to owned partitions: find where each one starts, and commit new identities before their first use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mirrormaker.driver.committer import Committer
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.owned_partition import NO_IDENTITY, OwnedPartition
from mirrormaker.driver.patience import ask_until_answered
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import OUTAGE, ClusterError, PartitionError, Unanswered
from mirrormaker.events import event
from mirrormaker.events.partition_events import (
    ContinuedFromZooKeeper,
    OldConsumersRunning,
    PartitionStopped,
    Waiting,
    ZooKeeperUnread,
)
from mirrormaker.model.ledger import check_fits, unpack
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import EARLIEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.zookeeper.lookup import ZooKeeperLookup

Committed = dict[TopicPartition, tuple[int, str]]  # offset and metadata

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


class Acquisition:
    """Takes up what the group has assigned. The group may rebalance at any moment: `pending` is what is still ours to take."""

    def __init__(self, parts: Parts, is_ready: Callable[[], bool], sync_topics: Callable[[], Awaitable[None]]) -> None:
        """`is_ready` is False until the first partitions are owned; `sync_topics` looks at both clusters' topics again."""
        self._parts, self._is_ready, self._sync_topics = parts, is_ready, sync_topics
        self.pending: set[TopicPartition] = set()
        self.assigned = asyncio.Event()  # set when the assignment has to be looked at again
        self.first_start: bool | None = None  # of this group; None until its offsets are read
        self.overtaken: list[str] = []  # partitions whose next records retention has removed before this start
        self._leaderless: set[TopicPartition] = set()
        # Partitions that were assigned at the group's first start and have not begun yet.
        self._from_first_start: set[TopicPartition] = set()
        self._retry: asyncio.TimerHandle | None = None

    async def acquire(self) -> set[TopicPartition]:
        """Find where each pending partition starts, commit what is new, and own it; return the partitions now owned."""
        if not self.pending:
            return set()
        parts = self._parts
        if any(not parts.routing.is_known(topic) for topic, _ in self.pending):
            # The group's leader knows of more topics than we do.
            await ask_until_answered(self._sync_topics, parts.report)
        committed = await ask_until_answered(parts.membership.committed, parts.report)
        if self.first_start is None:
            self.first_start = not committed
            self._from_first_start = set() if committed else set(self.pending)
        await self._add_zookeeper_offsets(committed)
        await ask_until_answered(lambda: self._grow_as_before(committed), parts.report)
        found = await self._find_starts(committed)
        if found is None:
            return set()
        continued, started = found
        for position in [*continued, *started]:
            check_fits(position)
        await ask_until_answered(lambda: self._commit_new(started), parts.report)
        await self._note_overtaken(continued)
        for clean, positions in ((False, continued), (True, started)):
            for position in positions:
                if position.key in self.pending:
                    parts.scheduler.owned[position.key] = OwnedPartition(position, clean=clean, committed=position)
        acquired = self.pending & parts.scheduler.owned.keys()
        self._from_first_start -= acquired
        return acquired

    def retry_refused(self) -> None:
        """Try partitions again that had no counterpart on the target, and may have one by now."""
        parts = self._parts
        for key, owned in list(parts.scheduler.owned.items()):
            if owned.position.identity == NO_IDENTITY and key[0] in parts.target.topics:
                with contextlib.suppress(PartitionError):
                    parts.routing.by_key(key[0])
                    del parts.scheduler.owned[key]
                    self.assigned.set()

    async def _add_zookeeper_offsets(self, committed: Committed) -> None:
        """Add what an old consumer of the group has left in ZooKeeper, for partitions that Kafka has no position of."""
        group, zookeeper, report = self._parts.membership.group, self._parts.zookeeper, self._parts.report
        missing = self.pending - committed.keys()
        if zookeeper is None or not missing:
            return
        try:
            old = await zookeeper.group(group)
        except ClusterError as error:
            if self._from_first_start:
                raise ClusterError(
                    f"group {group} has nothing committed in Kafka, and {error}: without that line it starts as if nothing had"
                    " been mirrored yet"
                ) from error
            report(ZooKeeperUnread(str(error), len(missing)))
            return
        found = {key: (old.offsets[key], "") for key in missing & old.offsets.keys()}
        committed |= found
        if found:
            report(ContinuedFromZooKeeper(group, len(found)))
        if found and old.owners:
            report(OldConsumersRunning(group, ", ".join(list(old.owners)[:3])))

    async def _find_starts(self, committed: Committed) -> tuple[list[Position], list[Position]] | None:
        """Return the positions of pending partitions; None if the group has rebalanced before all were known."""
        parts = self._parts
        while True:
            keys = self._without_refused({key for key in self.pending if self._has_leaders(key, committed)})
            # Only partitions of the first start begin where the settings say; they must not wait for others.
            first = keys & self._from_first_start
            if first and first != keys:
                keys = first
                self._retry_later()
            try:
                return await parts.start_positions.find(keys, committed, bool(first))
            except OUTAGE as error:
                if isinstance(error, Unanswered):
                    parts.report(Waiting(str(error)))
                    self._leaderless |= {key for key in self.pending if key[0] == error.topic}
                with contextlib.suppress(*OUTAGE):
                    await parts.source.refresh()
                    await parts.target.refresh()
            if self.assigned.is_set():
                return None

    def _has_leaders(self, key: TopicPartition, committed: Committed) -> bool:
        """Return True if the partition's leaders can be asked: one without a leader must not keep the others waiting."""
        parts = self._parts
        topic, partition = key
        if not parts.routing.is_known(topic):
            return False  # it was deleted a moment ago
        entry = unpack(*key, *committed[key]) if key in committed else None
        if entry is not None and entry.target_cluster == parts.target.id and key not in self._leaderless:
            return True  # the ledger says where it starts
        on_target = parts.target.topics[topic].partitions
        if parts.source.leader(topic, partition) and all(parts.target.leader(topic, p) for p in on_target):
            self._leaderless.discard(key)
            return True
        if key not in self._leaderless:
            self._leaderless.add(key)
            parts.report(Waiting(f"{topic}-{partition} has no leader, so its start is unknown"))
        self._retry_later()
        return False

    def _retry_later(self) -> None:
        """Look at the assignment again in a while: some partitions could not be acquired."""
        loop = asyncio.get_running_loop()
        if self._retry is None or self._retry.when() < loop.time():
            self._retry = loop.call_later(_RETRY_AFTER, self.assigned.set)

    async def _note_overtaken(self, positions: list[Position]) -> None:
        """Note for the summary where the source has lost records; the stream that comes upon it counts them."""
        with contextlib.suppress(*OUTAGE):
            starts = await list_offsets(self._parts.source, [position.key for position in positions], EARLIEST)
            for position in positions:
                start = starts[position.key]
                if isinstance(start, int) and start > position.offset:
                    self.overtaken.append(
                        f"{position.topic}-{position.partition} is committed up to offset {position.offset}, and the source"
                        f" begins at {start} by now"
                    )

    async def _commit_new(self, started: list[Position]) -> None:
        """Commit new identities, except of partitions that others have got meanwhile."""
        started[:] = [position for position in started if position.key in self.pending]
        await self._parts.committer.commit_new(started)

    async def _grow_as_before(self, committed: Committed) -> None:
        """Add partitions on the target where the source grew while no mirror ran and both had equally many before."""
        routing = self._parts.routing
        known = {topic for topic, _ in self.pending if routing.is_known(topic)}
        smaller = {topic for topic in known if routing.counts(topic)[0] > routing.counts(topic)[1]}
        entries = [unpack(*key, *entry) for key, entry in committed.items() if key[0] in smaller]
        grow = {entry.topic for entry in entries if entry and routing.had_equal_counts(entry)}
        await self._parts.topics.ensure([self._parts.source.topics[topic] for topic in grow], grow)

    def _without_refused(self, keys: set[TopicPartition]) -> set[TopicPartition]:
        """Leave out topics without a place on the target: at the start they are an error, later they stop alone."""
        parts = self._parts
        refused: dict[str, str] = {}
        for topic in {topic for topic, _ in keys}:
            try:
                parts.routing.by_key(topic)
            except PartitionError as error:
                if not self._is_ready():
                    raise
                refused[topic] = str(error)
                parts.report(PartitionStopped(refused[topic]))
        for key in keys:
            if key[0] in refused:
                count = parts.routing.counts(key[0])[1]
                nowhere = Position(*key, 0, -1, "", NO_IDENTITY, parts.target.id, "", count, ())
                owned = parts.scheduler.owned[key] = OwnedPartition(nowhere, clean=True, committed=nowhere)
                owned.stop(refused[key[0]], final=True)
        return {key for key in keys if key[0] not in refused}
