"""The only writer of the ledger: positions go into the group's committed offsets here, and nowhere else.

The order is fixed. A new producer identity is committed before its first record is sent (`commit_new`, `commit_renumbered`); a
position is committed only after the target has acknowledged everything before it (`commit_moved`). Anything else that has to be
durable before a position is written in these functions, before they call `_write`: the offset map, which never ends before the
ledger while it can be written (`mapping/map_keeper`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterator

from mirrormaker.driver.group_protocol import Generation, Row
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.owned_partition import NO_IDENTITY, OwnedPartition
from mirrormaker.driver.patience import OutageReport
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, EntryError, PartitionError, describe
from mirrormaker.events import event
from mirrormaker.events.partition_events import CommitRefused, ZooKeeperUnwritten
from mirrormaker.kafka_errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_COMMIT_OFFSET_SIZE,
    OFFSET_METADATA_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model.ledger import pack
from mirrormaker.model.position import Position
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import PARTITIONS_IN_ONE_TURN, give_way, in_turns
from mirrormaker.zookeeper.lookup import ZooKeeperLookup

_COMMIT_ALL_EVERY = 3600.0  # seconds: brokers before 2.1 forget an offset a day after it was written
# The size of one commit, and of an entry in it without and for each of its target partitions: a quarter of a broker's default
# message.max.bytes, since the brokers of another cluster may be set to less.
_COMMIT_BYTES, _ENTRY_BYTES, _CUT_BYTES = 256 << 10, 400, 40
# Seconds that 200 new identities wait for the offset map: everything else of the same assignment waits with them.
_MAP_WITHIN = 2.0
_MAP_PAUSE = 0.1  # seconds between two attempts
_ZOOKEEPER_EVERY = 10.0  # seconds between two writes to ZooKeeper


class Committer:
    """Commits positions every interval, and at once where a partition has moved far. One commit runs at a time."""

    def __init__(
        self,
        membership: Membership,
        scheduler: Scheduler,
        interval: float,
        report: event.Report,
        offset_map: MapKeeper | None = None,
    ) -> None:
        self._membership, self._scheduler, self._interval, self._report = membership, scheduler, interval, report
        self._map = offset_map
        if offset_map is not None:
            offset_map.is_ours = self.may_write
        # True if new identities have waited for the map in vain, until a commit finds that it can be written again.
        self._is_map_late = False
        self._now = asyncio.Event()
        # A commit that was decided earlier must not land after a later one: it could bring an old identity back.
        self._lock = asyncio.Lock()

    def commit_soon(self) -> None:
        """Do not wait for the end of the interval."""
        self._now.set()

    async def run(self) -> None:
        """Commit for as long as this runs."""
        all_at = time.monotonic()
        outage = OutageReport(self._report, "positions cannot be committed now: ")
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._now.wait(), self._interval)
            self._now.clear()
            everything = time.monotonic() - all_at > _COMMIT_ALL_EVERY
            with contextlib.suppress(*OUTAGE):
                try:
                    await self.commit_moved(everything=everything)
                    outage.succeeded()
                    all_at = time.monotonic() if everything else all_at
                except ClusterError as error:  # the coordinator cannot be found, or refuses all of it: records flow on
                    outage.failed(error)

    async def commit_moved(self, *, everything: bool = False) -> None:
        """Commit every position that has moved since its last commit, or all of them. Positions only go forward."""
        scheduler = self._scheduler
        if self._map is not None and not self._membership.is_certain:
            # This process stood still. Others may have the partitions: older blocks must not replace theirs.
            return
        async with self._lock:
            candidates = [scheduler.owned[key] for key in (scheduler.owned if everything else scheduler.moved)]
            moved = {
                owned.position.key: (owned, owned.position, owned.bytes)
                for owned in candidates
                if not owned.is_renumbering and self.may_commit(owned)
            }
            generation = self._membership.generation
            if self._map is not None:
                not_yet = await self._map.write(list(moved))
                self._is_map_late = bool(not_yet)
                moved = {key: row for key, row in moved.items() if key not in not_yet}
            async for written, refused in self._write([position for _, position, _ in moved.values()], generation):
                for key in written:
                    owned, position, size = moved[key]
                    owned.committed, owned.committed_bytes, owned.commit_error = position, size, ""
                    if owned.position is position:
                        scheduler.moved.pop(key, None)
                self._note_refused({moved[key][0]: error for key, error in refused.items()})

    def _note_refused(self, refused: dict[OwnedPartition, BrokerError]) -> None:
        """Report positions that cannot be committed, each topic and reason once; their partitions flow on."""
        news: dict[tuple[str, str], list[OwnedPartition]] = {}
        for owned, error in refused.items():
            if error.code == UNKNOWN_TOPIC_OR_PARTITION:
                continue  # the topic was deleted: there is nothing to remember of it
            reason = self.reason(owned.position.topic, error)
            if reason != owned.commit_error:
                owned.commit_error = reason
                news.setdefault((owned.position.topic, reason), []).append(owned)
        for (topic, reason), partitions in news.items():
            self._report(CommitRefused(topic, len(partitions), reason))

    def reason(self, topic: str, error: BrokerError) -> str:
        """Return why the coordinator refuses a partition of the topic, and the way out if there is one."""
        if error.code == TOPIC_AUTHORIZATION_FAILED:
            return denied(self._membership.cluster.endpoint, "Read", "topic", topic)
        if error.code == GROUP_AUTHORIZATION_FAILED:
            return denied(self._membership.cluster.endpoint, "Read", "group", self._membership.group)
        return describe(error)

    async def commit_new(self, positions: Collection[Position], generation: Generation) -> dict[TopicPartition, str]:
        """Commit positions under new identities, before their first record is sent; return reasons for those refused.

        The partitions are assigned to this process in `generation`; NotMember is raised if that has passed.
        """
        found: dict[TopicPartition, str] = {}
        async with self._lock:
            await self._begin_map(positions)
            async for _, refused in self._write(positions, generation):
                found |= {key: self.reason(key[0], error) for key, error in refused.items()}
        return found

    async def commit_renumbered(self, owned: OwnedPartition, position: Position) -> None:
        """Commit a partition's new identity, unless the partition belongs to another process by now.

        Raise PartitionError if the coordinator refuses it.
        """
        async with self._lock:
            if not self.owns(owned):
                return
            generation = self._membership.generation
            await self._begin_map([position])
            errors = [error async for _, refused in self._write([position], generation) for error in refused.values()]
            if errors:
                reason = self.reason(position.topic, errors[0])
                raise PartitionError(f"{owned.name} stops: its new producer id cannot be committed: {reason}")
            if position.offset < owned.position.offset:  # another log under the same name has other ends
                owned.goal, owned.high_watermark = None, -1
            owned.position = owned.committed = position
            self._scheduler.moved.pop(position.key, None)

    async def _begin_map(self, positions: Collection[Position]) -> None:
        """Store new identities in the offset map before their first record: so every identity of a mirror is known there.

        If the map takes nothing for 2 s, they are stored before the next position of their partitions is committed.
        """
        if self._map is None:
            return
        await self._map.begin(positions)
        keys = [position.key for position in positions]
        try:
            for at in range(0, len(keys), PARTITIONS_IN_ONE_TURN):
                async with asyncio.timeout(_MAP_WITHIN):
                    while not self._is_map_late and await self._map.write(keys[at : at + PARTITIONS_IN_ONE_TURN]):
                        await asyncio.sleep(_MAP_PAUSE)
        except TimeoutError:
            self._is_map_late = True

    def owns(self, owned: OwnedPartition) -> bool:
        """Return True if the present generation assigns the partition to this process."""
        return self._is_current(owned) and owned.position.key in self._membership.generation.assigned

    def may_commit(self, owned: OwnedPartition) -> bool:
        """Return True if this process may still write the partition's position.

        A partition that leaves in two rounds is ours until we join again; in one round it has another owner already.
        """
        if owned.position.identity == NO_IDENTITY:
            return False  # it has no place on the target, so the ledger's older entry stays true
        is_leaving = owned.position.key in self._membership.generation.to_release
        return self.owns(owned) or (self._is_current(owned) and is_leaving)

    def may_write(self, key: TopicPartition) -> bool:
        """Return True if this process may write blocks of a partition's offset map."""
        owned = self._scheduler.owned.get(key)
        return owned is not None and self.may_commit(owned) and self._membership.is_certain

    def _is_current(self, owned: OwnedPartition) -> bool:
        return not owned.life.is_outdated and self._scheduler.owned.get(owned.position.key) is owned

    async def _write(
        self, positions: Collection[Position], generation: Generation
    ) -> AsyncIterator[tuple[list[TopicPartition], dict[TopicPartition, BrokerError]]]:
        """Commit positions in chunks; yield the partitions of each chunk that were committed, and those that were refused.

        A coordinator appends a whole commit as one batch, which must not be larger than its `message.max.bytes`. It
        refuses a commit of a generation that has passed: the partitions may belong to another process by then.
        """
        waiting = list(_chunks(positions))
        while waiting:
            chunk = waiting.pop(0)
            packed, refused = await _packed(chunk)
            await give_way()
            chunk = [position for position in chunk if position.key not in refused]
            refused |= await self._membership.commit(packed, generation) if packed else {}
            too_large = {key for key, error in refused.items() if error.code == INVALID_COMMIT_OFFSET_SIZE}
            if too_large and len(chunk) > 1:
                again = [position for position in chunk if position.key in too_large]
                middle = (len(again) + 1) // 2
                waiting[:0] = [half for half in (again[:middle], again[middle:]) if half]
                refused = {key: error for key, error in refused.items() if key not in too_large}
                chunk = [position for position in chunk if position.key not in too_large]
            yield [position.key for position in chunk if position.key not in refused], refused


async def _packed(positions: Collection[Position]) -> tuple[dict[str, list[Row]], dict[TopicPartition, BrokerError]]:
    """Return positions as rows of a commit, by topic, and those that are too large for a ledger entry."""
    rows: dict[str, list[Row]] = defaultdict(list)
    refused: dict[TopicPartition, BrokerError] = {}
    async for position in in_turns(positions):
        try:
            row = (position.partition, position.offset, position.leader_epoch, pack(position))
            rows[position.topic].append(row)
        except EntryError as error:
            refused[position.key] = BrokerError(OFFSET_METADATA_TOO_LARGE, str(error))
    return rows, refused


def _chunks(positions: Collection[Position]) -> Iterator[list[Position]]:
    """Cut positions into lists that make commits of bounded size; an entry takes about 8 bytes for each target partition."""
    chunk: list[Position] = []
    size = 0
    for position in positions:
        entry = _ENTRY_BYTES + len(position.topic) + _CUT_BYTES * len(position.cuts)
        if chunk and size + entry > _COMMIT_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(position)
        size += entry
    if chunk:
        yield chunk


class ZooKeeperWriter:
    """Copies committed offsets to ZooKeeper, for consumers and tools that read them there."""

    def __init__(
        self, lookup: ZooKeeperLookup, group: str, scheduler: Scheduler, committer: Committer, report: event.Report
    ) -> None:
        self._lookup, self._group, self._report = lookup, group, report
        self._scheduler, self._committer = scheduler, committer
        self._written: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Copy for as long as this runs."""
        reported = ""
        while True:
            await asyncio.sleep(_ZOOKEEPER_EVERY)
            try:
                await self.write()
                reported = ""
            except ClusterError as error:
                if str(error) != reported:
                    reported = str(error)
                    self._report(ZooKeeperUnwritten(reported))

    async def write(self) -> None:
        """Write the offsets that have changed."""
        offsets = {
            owned.position.key: owned.committed.offset
            for owned in self._scheduler
            if owned.committed and self._committer.may_commit(owned)
        }
        changed = {key: offset for key, offset in offsets.items() if self._written.get(key) != offset}
        if changed:
            await self._lookup.write(self._group, changed)
            self._written |= changed
