"""The coordinator of a consumer group: finding it, asking it, and reading the group's committed offsets."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mirrormaker.errors import BrokerError, raise_for
from mirrormaker.kafka_errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    UNKNOWN_TOPIC_OR_PARTITION,
    Scope,
    error_code,
)
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import ApiMessage, FindCoordinatorRequest, OffsetFetchRequest
from mirrormaker.wire.transport.connection import Connection

# The coordinator is on another broker, or will be ready in a moment.
MOVING = frozenset({COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
_PATIENCE = 30.0  # seconds: a cluster's first group waits until the offsets topic is created, which takes a few
_PAUSE = 0.2  # seconds between two lookups
_ALL_PARTITIONS = 2  # since this version (Kafka 0.10.2) OffsetFetch can ask for everything that a group has committed
_ONE_GROUP = 7  # later versions of OffsetFetch ask for several groups


class CommittedOffset(NamedTuple):
    """One partition's answer to OffsetFetch; `offset` is -1 if the group has committed none."""

    offset: int
    metadata: str
    error: int


class GroupCoordinator:
    """The broker that keeps one consumer group. It is looked up at the first request, and again after `forget`."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.cluster, self.group = cluster, group
        self._node: int | None = None

    def forget(self) -> None:
        """Look the coordinator up again before the next request."""
        self._node = None

    async def ask(
        self, request: ApiMessage, *, purpose: str = "control", timeout: float | None = None, newest: int | None = None
    ) -> Any:
        """Send one request to the coordinator; `newest` caps its version."""
        node = await self.locate()
        try:
            return await self.cluster.ask(request, node, purpose=purpose, timeout=timeout, newest=newest)
        except OSError:
            self.forget()
            raise

    async def connection(self) -> Connection:
        """Return the control connection to the coordinator."""
        return await self.cluster.connection(await self.locate())

    async def locate(self) -> int:
        """Return the coordinator's node id; wait up to 30 s while the group has none."""
        deadline = time.monotonic() + _PATIENCE
        while self._node is None or self._node not in self.cluster.brokers:
            answer = await self.cluster.ask(FindCoordinatorRequest(key=self.group, key_type=0), newest=3)
            if answer.error_code == 0:
                self.cluster.brokers.setdefault(answer.node_id, (answer.host, answer.port))
                self._node = int(answer.node_id)
            elif answer.error_code not in MOVING or time.monotonic() > deadline:
                raise BrokerError(answer.error_code, f"looking for the coordinator of group {self.group}")
            else:
                await asyncio.sleep(_PAUSE)
        return self._node

    async def lists_all_offsets(self) -> bool:
        """Return True if the coordinator can list everything that the group has committed (Kafka 0.10.2 and later)."""
        return (await self.connection()).best_version(OffsetFetchRequest) >= _ALL_PARTITIONS

    async def committed(
        self, chosen: Callable[[], Iterable[TopicPartition]]
    ) -> tuple[dict[TopicPartition, tuple[int, str]], dict[TopicPartition, BrokerError]]:
        """Return offset and metadata of each partition that the group has committed, and the errors of those that cannot be read.

        Wait while the coordinator moves. `chosen` names the partitions to ask for where brokers cannot list all of them.
        """
        while True:
            partitions = None if await self.lists_all_offsets() else by_topic(chosen())
            error, found = await self.fetch_offsets(partitions, stable=True)
            codes = {row.error for row in found.values()}
            # A coordinator answers every partition with an error that concerns the whole group.
            common = error or (codes.pop() if len(codes) == 1 else 0)
            if partitions is not None and UNKNOWN_TOPIC_OR_PARTITION in {common, *codes}:
                # An old coordinator that has just started may have offsets of topics that it does not know yet.
                await self.cluster.refresh()
            elif common in MOVING:
                self.forget()
            else:
                if error or error_code(common).scope >= Scope.SOURCE:
                    raise_for(common, "reading committed offsets")
                failed = {key: BrokerError(row.error) for key, row in found.items() if row.error}
                committed = {key: (row.offset, row.metadata) for key, row in found.items() if row.offset >= 0}
                return {key: row for key, row in committed.items() if key not in failed}, failed
            await asyncio.sleep(_PAUSE)

    async def fetch_offsets(
        self, partitions: Mapping[str, Sequence[int]] | None, *, stable: bool
    ) -> tuple[int, dict[TopicPartition, CommittedOffset]]:
        """Return the answer's own error code, and the group's committed offsets with theirs.

        `partitions` None asks for all. `stable` leaves out offsets that an open transaction holds (error 88).
        """
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None
        if partitions is not None:
            topics = [topic(name=name, partition_indexes=list(numbers)) for name, numbers in partitions.items()]
        request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=stable)
        answer = await self.ask(request, newest=_ONE_GROUP)
        return answer.error_code or 0, {
            (t.name, p.partition_index): CommittedOffset(p.committed_offset, p.metadata or "", p.error_code)
            for t in answer.topics
            for p in t.partitions
        }


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(keys):
        found[topic].append(partition)
    return found
