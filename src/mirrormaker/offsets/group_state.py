"""A consumer group as Kafka knows it: its committed offsets, and which member has which partition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from mirrormaker.errors import BadFrame, BrokerError, ClusterError, UnsupportedRequest
from mirrormaker.kafka_errors import COORDINATOR_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, error_code
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.groups import MOVING, GroupCoordinator
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import DescribeGroupsRequest, decode_assignment, shares_of_members
from mirrormaker.wire.protocol.schema_decoder import MOST_WORK
from mirrormaker.wire.transport.connection import Connection

T = TypeVar("T")

_PATIENCE = 30.0  # seconds: a cluster's first group waits until the offsets topic is created, which takes a few
_FIRST_PAUSE = 0.1  # seconds, doubled up to --retry.backoff.ms


class GroupState:
    """Ask a group's coordinator, and wait while the coordinator moves."""

    def __init__(self, cluster: Cluster, group: str, backoff: float) -> None:
        """`backoff` is the longest pause in seconds between two attempts."""
        self.cluster, self.group, self._backoff = cluster, group, backoff
        self._coordinator = GroupCoordinator(cluster, group)

    async def committed(
        self, partitions: Mapping[str, Sequence[int]]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        """Return the group's offsets, and the errors of partitions whose offset cannot be read.

        Brokers before 0.10.2 cannot list everything that a group has; they are asked for each of `partitions`.
        """
        await self._connect()
        if await self._coordinator.lists_all_offsets():
            wanted = None
        elif partitions:
            wanted = partitions
        else:
            return {}, {}
        error, rows = await self._until_settled(
            lambda: self._coordinator.fetch_offsets(wanted, stable=False),
            lambda answer: {answer[0], *(row.error for row in answer[1].values())},
        )
        self._check(error)
        offsets = {key: row.offset for key, row in rows.items() if row.offset >= 0 and not row.error}
        # 0.8.2 answers UNKNOWN_TOPIC_OR_PARTITION for a partition without an offset.
        failed = {key: row.error for key, row in rows.items() if row.error not in (0, UNKNOWN_TOPIC_OR_PARTITION)}
        return offsets, {key: error_code(code).name for key, code in failed.items()}

    async def owners(self) -> dict[TopicPartition, str]:
        """Return which member has which partition; empty while the group rebalances."""
        request = DescribeGroupsRequest(groups=[self.group], include_authorized_operations=False)
        try:
            answer = await self._until_settled(
                lambda: self._coordinator.ask(request, newest=7),
                lambda answer: {group.error_code or 0 for group in answer.groups},
            )
        except UnsupportedRequest:
            return {}  # 0.8.2 keeps its consumers in ZooKeeper alone
        if not any(group.members for group in answer.groups):
            return await consumer_protocol_groups.owners(
                await self._connect(), self.group, self.cluster.endpoint.request_timeout
            )
        found: dict[TopicPartition, str] = {}
        for group in answer.groups:
            if group.protocol_type == "consumer":
                assignments = [bytes(member.member_assignment or b"") for member in group.members]
                shares = shares_of_members(list(map(len, assignments)))
                for member, data, share in zip(group.members, assignments, shares, strict=True):
                    found.update(dict.fromkeys(assigned(data, share), member.member_id))
        return found

    async def _until_settled(self, ask: Callable[[], Awaitable[T]], codes_of: Callable[[T], set[int]]) -> T:
        """Repeat a request while the coordinator moves, for at most 30 s; `codes_of` returns its error codes."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            await self._connect()
            answer = await ask()
            moving = codes_of(answer) & MOVING
            if not moving:
                return answer
            if time.monotonic() > deadline:
                self._check(min(moving))
            self._coordinator.forget()
            await asyncio.sleep(pause)
            pause = min(self._backoff, pause * 2)

    async def _connect(self) -> Connection:
        """Connect to the coordinator; wait until another broker has taken the place of one that died."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            try:
                return await self._coordinator.connection()
            except BrokerError as error:
                self._check(error.code or COORDINATOR_NOT_AVAILABLE)
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                self._coordinator.forget()
            await asyncio.sleep(pause)
            pause = min(self._backoff, pause * 2)

    def _check(self, code: int) -> None:
        """Raise ClusterError for an error code of the coordinator."""
        if code:
            raise ClusterError(f"group {self.group}: the coordinator refuses: {error_code(code).name} ({code})")


def assigned(data: bytes, most_work: int = MOST_WORK) -> list[TopicPartition]:
    """Return the partitions in a member's assignment; none if no Kafka client wrote it."""
    if not data:
        return []
    try:
        assignment = decode_assignment(data, most_work)
    except BadFrame:
        return []
    return [(t.topic, p) for t in assignment.assigned_partitions or () for p in t.partitions or ()]
