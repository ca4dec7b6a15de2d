"""The only writer of the ledger: positions go into the group's committed offsets here, and nowhere else.

The order is fixed. A new producer identity is committed before its first record is sent (`commit_new`, `commit_renumbered`); a
position is committed only after the target has acknowledged everything before it (`commit_moved`). Anything else that has to be
durable before a position belongs in front of `_write`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.owned_partition import NO_IDENTITY, OwnedPartition
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.errors import OUTAGE, ClusterError
from mirrormaker.events import event
from mirrormaker.events.partition_events import ZooKeeperUnwritten
from mirrormaker.model.ledger import rows
from mirrormaker.model.position import Position
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.zookeeper.lookup import ZooKeeperLookup

_COMMIT_ALL_EVERY = 3600.0  # seconds: brokers before 2.1 forget an offset a day after it was written
_ZOOKEEPER_EVERY = 10.0  # seconds between two writes to ZooKeeper


class Committer:
    """Commits positions every interval, and at once where a partition has moved far."""

    def __init__(self, membership: Membership, scheduler: Scheduler, interval: float) -> None:
        self._membership, self._scheduler, self._interval = membership, scheduler, interval
        self._now = asyncio.Event()

    def commit_soon(self) -> None:
        """Do not wait for the end of the interval."""
        self._now.set()

    async def run(self) -> None:
        """Commit for as long as this runs."""
        all_at = time.monotonic()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._now.wait(), self._interval)
            self._now.clear()
            everything = time.monotonic() - all_at > _COMMIT_ALL_EVERY
            with contextlib.suppress(*OUTAGE):
                await self.commit_moved(everything=everything)
                all_at = time.monotonic() if everything else all_at

    async def commit_moved(self, *, everything: bool = False) -> None:
        """Commit every position that has moved since its last commit, or all of them. Positions only go forward."""
        moved = [
            (owned, owned.position, owned.bytes)
            for owned in self._scheduler
            if (everything or owned.position != owned.committed) and not owned.renumbering and self.may_commit(owned)
        ]
        if moved:
            await self._write([position for _, position, _ in moved])
            for owned, position, size in moved:
                owned.committed, owned.committed_bytes = position, size

    async def commit_new(self, positions: Collection[Position]) -> None:
        """Commit positions under new identities, before their first record is sent."""
        if positions:
            await self._write(positions, must_exist=True)

    async def commit_renumbered(self, owned: OwnedPartition, position: Position) -> None:
        """Commit a partition's new identity, unless the partition belongs to another process by now."""
        if not self.owns(owned):
            return
        await self._write([position])
        if position.offset < owned.position.offset:  # another log under the same name has other ends
            owned.goal, owned.high_watermark = None, -1
        owned.position = owned.committed = position
        owned.clean = True

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

    def _is_current(self, owned: OwnedPartition) -> bool:
        return not owned.outdated and self._scheduler.owned.get(owned.position.key) is owned

    async def _write(self, positions: Collection[Position], *, must_exist: bool = False) -> None:
        await self._membership.commit(rows(positions), must_exist=must_exist)


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
