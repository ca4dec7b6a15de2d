"""The group on a cluster that has no groups (Kafka 0.8): this process is all there is, and Kafka keeps its offsets.

Nobody hands out partitions there, so nobody keeps two processes apart either. Numbers still see to it that nothing arrives
twice; and whoever finds positions in the ledger that it did not write itself gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mirrormaker.driver.membership import Key, Membership, Seat
from mirrormaker.errors import OUTAGE, FencedError
from mirrormaker.worker.stream_task import now

Entry = tuple[int, str]  # offset and metadata


class SoleMember(Membership):
    """Has every partition of the chosen topics."""

    _written: dict[Key, list[Entry]]  # by us: from the last one that was found in the ledger on
    _certain: set[Key]  # of which one was confirmed: from then on nothing else may be there

    async def keep(self, parting: Callable[[], Awaitable[None]], assigned: Callable[[bool], None]) -> None:
        self._written, self._certain = {}, set()
        while True:
            try:
                if not self.joined or self._rejoin.is_set():
                    self._rejoin.clear()
                    self._take_all()
                    assigned(True)
                await self._look_for_others()
                await self._wait_a_heartbeat()
            except OUTAGE:
                self._coordinator.forget()
                await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)

    def _take_all(self) -> None:
        known = self.cluster.topics
        everything = frozenset((name, p) for name in self.topics if name in known for p in known[name].partitions)
        self.seat = Seat(assigned=everything, claimed=everything)
        self._heard, self.joined = now(), True

    async def _look_for_others(self) -> None:
        asked, certain = now(), set(self._certain)
        found = await self.committed()
        for key in certain & found.keys():
            ours, entry = self._written[key], found[key]
            if entry in ours:
                del ours[: ours.index(entry)]
            else:
                self._heard = -1e9
                raise FencedError(
                    f"another process mirrors {key[0]}-{key[1]} for group {self.group}: {self.cluster.endpoint} is too old for"
                    " groups (Kafka 0.8), so only one process at a time may"
                )
        self._heard = asked

    async def commit(self, rows: dict[str, list[tuple[int, int, int, str]]], *, must_exist: bool = False) -> None:
        for topic, partitions in rows.items():
            for partition, offset, _, metadata in partitions:
                self._written.setdefault((topic, partition), []).append((offset, metadata))
        await super().commit(rows, must_exist=must_exist)
        self._certain |= {(topic, row[0]) for topic, partitions in rows.items() for row in partitions}

    async def leave(self) -> None:
        self.joined = False
