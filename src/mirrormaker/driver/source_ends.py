"""Where the source's logs end, for partitions of which no stream says it: lag is what the source says now.

A stream says it with every fetch. It says nothing of partitions that do not flow, nothing while its buffer is full, and nothing
while a broker of the source does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable

from mirrormaker.driver.owned_partition import NO_IDENTITY
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.errors import OUTAGE, BrokerError
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition

_EVERY = 3.0  # seconds between two looks
_REST = 10  # a look that takes long is followed by a pause of this many times as long
_ANSWER_WITHIN = 5.0  # seconds for one broker's answer
_LAST_LOOK_WITHIN = 2.0  # seconds: the process ends after it


class SourceEnds:
    """Asks the source for the ends of partitions of which the reports of streams bring no news."""

    def __init__(self, source: Cluster, read_committed: bool, scheduler: Scheduler) -> None:
        self._source, self._read_committed, self._scheduler = source, read_committed, scheduler
        # The ends of partitions that flow and have a lag, as they were at the last look.
        self._behind: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Look every few seconds."""
        while True:
            started = time.monotonic()
            await self.look([*self._scheduler.not_flowing, *self._without_news()], _ANSWER_WITHIN)
            await asyncio.sleep(max(_EVERY, _REST * (time.monotonic() - started)))

    def _without_news(self) -> set[TopicPartition]:
        """Return the partitions that flow and whose end may be another one by now, and one partition of each broker."""
        one_of_each: dict[int, TopicPartition] = {}
        behind: dict[TopicPartition, int] = {}
        found: set[TopicPartition] = set()
        for key, owned in self._scheduler.owned.items():
            if not owned.is_flowing:
                continue
            leader = self._source.leader(*key)
            if leader is not None:
                one_of_each.setdefault(leader.leader, key)
            if not owned.is_answered:
                found.add(key)
            elif owned.lag:
                # The stream may have fetched nothing since: its buffer is full.
                behind[key] = owned.high_watermark
                if self._behind.get(key) == owned.high_watermark:
                    found.add(key)
        self._behind = behind
        return found | set(one_of_each.values())

    async def look_at_all(self) -> None:
        """Look a last time at every partition: no stream runs any more."""
        await self.look(list(self._scheduler.owned), _LAST_LOOK_WITHIN)

    async def look(self, keys: Iterable[TopicPartition], within: float) -> None:
        """Ask all leaders at once; a broker that does not answer in time leaves the lag of its partitions unknown."""
        by_leader: dict[int | None, list[TopicPartition]] = defaultdict(list)
        for key in keys:
            # The lag of a partition without a start position cannot be known.
            if self._scheduler.owned[key].position.identity != NO_IDENTITY:
                leader = self._source.leader(*key)
                by_leader[None if leader is None else leader.leader].append(key)
        await asyncio.gather(*(self._ask(leader, asked, within) for leader, asked in by_leader.items()))

    async def _ask(self, leader: int | None, keys: list[TopicPartition], within: float) -> None:
        ends: dict[TopicPartition, int | Exception] = {}
        with contextlib.suppress(*OUTAGE):
            async with asyncio.timeout(within):
                ends = await list_offsets(self._source, keys, LATEST, read_committed=self._read_committed)
        if leader is not None and not any(isinstance(end, int | BrokerError) for end in ends.values()):
            self._forget_ends_at(leader)
        for key in keys:
            owned, end = self._scheduler.owned.get(key), ends.get(key)
            if owned is None:
                continue
            # A stream that has got the partition meanwhile may have heard of a later end.
            if isinstance(end, int) and end >= (owned.high_watermark if owned.is_flowing else 0):
                owned.source_ends_at(end)
            elif not owned.is_flowing:
                owned.is_answered = False
        self._scheduler.changes += 1

    def _forget_ends_at(self, leader: int) -> None:
        """Note that a broker does not answer: the lag of all its partitions is unknown."""
        for key, owned in self._scheduler.owned.items():
            found = self._source.leader(*key)
            if found is not None and found.leader == leader:
                owned.is_answered = False
