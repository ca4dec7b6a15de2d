"""What Kafka itself knows of a group: its committed offsets, and who has which partition."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ConsumerProtocolAssignment, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from mirrormaker.errors import ClusterError
from mirrormaker.offsets import new_groups
from mirrormaker.offsets.standing import Key
from mirrormaker.wire.cluster import Cluster, error_for
from mirrormaker.wire.connection import UnsupportedRequest

_NO_OFFSET = 3  # what 0.8.2 answers for a partition without one
_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR = 14, 15, 16
_ELSEWHERE_OR_SOON = {_LOADING, _NO_COORDINATOR, _NOT_COORDINATOR}
_PATIENCE = 30.0  # seconds: a cluster's first group waits until the topic of all offsets is made, which takes a few
_FIRST_PAUSE = 0.1  # seconds, doubled up to --retry.backoff.ms


class Coordinator:
    """The broker that keeps the group; looked for again whenever it has moved."""

    def __init__(self, cluster: Cluster, group: str, backoff: float) -> None:
        self.cluster, self.group, self._backoff = cluster, group, backoff
        self._node: int | None = None

    async def committed(self, partitions: Mapping[str, Sequence[int]]) -> tuple[dict[Key, int], dict[Key, str]]:
        """The group's offsets, and the errors of those that could not be read.

        Brokers before 0.10.2 do not list all that a group has: they are asked for each of `partitions`.
        """
        entry = OffsetFetchRequest.OffsetFetchRequestTopic
        named = [entry(name=topic, partition_indexes=list(numbers)) for topic, numbers in partitions.items()]
        if await self._best_version(OffsetFetchRequest) >= 2:
            answer = await self._ask(OffsetFetchRequest(group_id=self.group, topics=None, require_stable=False))
        elif named:
            answer = await self._ask(OffsetFetchRequest(group_id=self.group, topics=named))
        else:
            return {}, {}
        found = {(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}
        offsets = {key: p.committed_offset for key, p in found.items() if p.committed_offset >= 0 and not p.error_code}
        failed = {key: p.error_code for key, p in found.items() if p.error_code not in (0, _NO_OFFSET)}
        return offsets, {key: type(error_for(code)).__name__ for key, code in failed.items()}

    async def owners(self) -> dict[Key, str]:
        """Which member has which partition; nobody has any while the group is sharing them anew."""
        try:
            answer = await self._ask(DescribeGroupsRequest(groups=[self.group], include_authorized_operations=False))
        except UnsupportedRequest:
            return {}  # 0.8.2: its consumers are known to ZooKeeper alone
        if not any(described.members for described in answer.groups) and self._node is not None:
            connection = await self.cluster.connection(self._node)
            return await new_groups.owners(connection, self.group, self.cluster.endpoint.request_timeout)
        return {
            key: member.member_id
            for described in answer.groups
            if described.protocol_type == "consumer"
            for member in described.members
            for key in assigned(bytes(member.member_assignment or b""))
        }

    # -- the broker

    async def _best_version(self, message: type[ApiMessage]) -> int:
        await self._find()
        assert self._node is not None
        return (await self.cluster.connection(self._node)).best_version(message)

    async def _ask(self, request: ApiMessage) -> Any:
        """Ask the coordinator, wherever it is by now."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            await self._find()
            answer = await self.cluster.ask(request, self._node, newest=7)
            codes = _codes(answer)
            if not codes & _ELSEWHERE_OR_SOON:
                self._check(getattr(answer, "error_code", 0) or 0)
                return answer
            if time.monotonic() > deadline:
                self._check(min(codes & _ELSEWHERE_OR_SOON))
            self._node = None
            await asyncio.sleep(pause)
            pause = min(self._backoff, pause * 2)

    async def _find(self) -> None:
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while self._node not in self.cluster.brokers:
            answer = await self.cluster.ask(FindCoordinatorRequest(key=self.group, key_type=0), newest=3)
            if not answer.error_code:
                self._node = answer.node_id
                self.cluster.brokers.setdefault(answer.node_id, (answer.host, answer.port))
            elif answer.error_code not in _ELSEWHERE_OR_SOON or time.monotonic() > deadline:
                self._check(answer.error_code)
            else:
                await asyncio.sleep(pause)
                pause = min(self._backoff, pause * 2)

    def _check(self, code: int) -> None:
        if code:
            name = type(error_for(code)).__name__
            raise ClusterError(f"group {self.group}: its coordinator cannot be asked: {name} ({code})")


def assigned(data: bytes) -> list[Key]:
    """The partitions in a member's assignment; none if it is not one that Kafka's clients write."""
    if not data:
        return []
    try:
        share = ConsumerProtocolAssignment.decode(data)
    except (ValueError, struct.error):
        return []
    return [(t.topic, p) for t in share.assigned_partitions or () for p in t.partitions or ()]


def _codes(answer: Any) -> set[int]:
    """Every error code in an answer, whichever level it stands at."""
    rows = [p for t in getattr(answer, "topics", None) or () for p in t.partitions]
    return {row.error_code or 0 for row in (answer, *rows, *(getattr(answer, "groups", None) or ())) if _has_code(row)}


def _has_code(row: Any) -> bool:
    return hasattr(row, "error_code")
