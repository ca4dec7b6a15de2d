"""The consumer group on a cluster without groups (Kafka 0.8): this process has every partition, and Kafka keeps its offsets.

Nobody assigns partitions there, so nobody keeps two processes apart either. Sequence numbers still prevent duplicates; and a
process that finds positions in the ledger which it did not write itself gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from mirrormaker.control.lease import lease_clock
from mirrormaker.driver.group_protocol import Generation, Row
from mirrormaker.driver.membership import Membership
from mirrormaker.errors import OUTAGE, BrokerError, FencedError
from mirrormaker.wire.protocol.codec import TopicPartition

Entry = tuple[int, str]  # offset and metadata


class SoleMember(Membership):
    """Has every partition of the chosen topics."""

    # What this process has committed, from the last entry that was found in the ledger on.
    _written: dict[TopicPartition, list[Entry]]
    # Partitions of which one commit was confirmed: from then on nothing else may be in the ledger.
    _confirmed: set[TopicPartition]

    async def keep(self, before_join: Callable[[], Awaitable[None]], after_join: Callable[[bool], None]) -> None:
        """Own everything for as long as this runs, and watch the ledger for another process."""
        self._written, self._confirmed = {}, set()
        while True:
            try:
                if not self.joined or self._rejoin.is_set():
                    self._rejoin.clear()
                    self._own_everything()
                    after_join(True)
                await self._look_for_others()
                await self._wait_a_heartbeat()
            except OUTAGE:
                self._coordinator.forget()
                await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)

    def _own_everything(self) -> None:
        known = self.cluster.topics
        everything = frozenset((name, p) for name in self.topics if name in known for p in known[name].partitions)
        self.generation = Generation(assigned=everything, claimed=everything)
        self._confirmed_at, self.joined = lease_clock(), True

    async def _look_for_others(self) -> None:
        asked_at, confirmed = lease_clock(), set(self._confirmed)
        found, _ = await self.committed()
        for key in confirmed & found.keys():
            ours, entry = self._written[key], found[key]
            if entry in ours:
                del ours[: ours.index(entry)]
            else:
                self._confirmed_at = -1e9
                raise FencedError(
                    f"another process mirrors {key[0]}-{key[1]} for group {self.group}: {self.cluster.endpoint} is too old for"
                    " groups (Kafka 0.8), so only one process at a time may"
                )
        self._confirmed_at = asked_at

    async def commit(
        self, rows: Mapping[str, Sequence[Row]], generation: Generation
    ) -> dict[TopicPartition, BrokerError]:
        """Commit, and remember what was written."""
        for topic, partitions in rows.items():
            for partition, offset, _, metadata in partitions:
                self._written.setdefault((topic, partition), []).append((offset, metadata))
        refused = await super().commit(rows, generation)
        self._confirmed |= {
            (topic, row[0]) for topic, partitions in rows.items() for row in partitions
        } - refused.keys()
        return refused

    async def leave(self) -> None:
        """Stop owning partitions; there is no group to leave."""
        self.joined = False
