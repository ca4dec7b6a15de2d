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

from mirrormaker.errors import ClusterError, UnsupportedRequest
from mirrormaker.kafka_errors import error_code
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.offsets.group_lag import Key
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.transport.connection import Connection

_WHOLE_GROUP = 2  # the version of OffsetFetch that asks for all that a group has
_NEWEST = 7  # later ones ask for several groups
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
        if (await self._connect()).best_version(OffsetFetchRequest) >= _WHOLE_GROUP:
            answer = await self._ask(OffsetFetchRequest(group_id=self.group, topics=None, require_stable=False))
        elif named:
            answer = await self._ask(OffsetFetchRequest(group_id=self.group, topics=named))
        else:
            return {}, {}
        found = {(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}
        offsets = {key: p.committed_offset for key, p in found.items() if p.committed_offset >= 0 and not p.error_code}
        failed = {key: p.error_code for key, p in found.items() if p.error_code not in (0, _NO_OFFSET)}
        return offsets, {key: error_code(code).name for key, code in failed.items()}

    async def owners(self) -> dict[Key, str]:
        """Which member has which partition; nobody has any while the group is sharing them anew."""
        try:
            answer = await self._ask(DescribeGroupsRequest(groups=[self.group], include_authorized_operations=False))
        except UnsupportedRequest:
            return {}  # 0.8.2: its consumers are known to ZooKeeper alone
        if not any(described.members for described in answer.groups):
            return await consumer_protocol_groups.owners(
                await self._connect(), self.group, self.cluster.endpoint.request_timeout
            )
        return {
            key: member.member_id
            for described in answer.groups
            if described.protocol_type == "consumer"
            for member in described.members
            for key in assigned(bytes(member.member_assignment or b""))
        }

    # -- the broker

    async def _ask(self, request: ApiMessage) -> Any:
        """Ask the coordinator, wherever it is by now."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            connection = await self._connect()
            version = min(_NEWEST, connection.best_version(type(request)))
            answer = await connection.ask(request, self.cluster.endpoint.request_timeout, version)
            codes = _codes(answer)
            if not codes & _ELSEWHERE_OR_SOON:
                self._check(getattr(answer, "error_code", 0) or 0)
                return answer
            if time.monotonic() > deadline:
                self._check(min(codes & _ELSEWHERE_OR_SOON))
            self._node = None
            await asyncio.sleep(pause)
            pause = min(self._backoff, pause * 2)

    async def _connect(self) -> Connection:
        """Find the coordinator; one that has just died is waited for until another has taken its place."""
        deadline, pause = time.monotonic() + _PATIENCE, _FIRST_PAUSE
        while True:
            try:
                self._node = await self._find() if self._node not in self.cluster.brokers else self._node
                if self._node is not None:
                    return await self.cluster.connection(self._node)
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
                self._node = None
            await asyncio.sleep(pause)
            pause = min(self._backoff, pause * 2)
            if time.monotonic() > deadline:
                self._check(_NO_COORDINATOR)

    async def _find(self) -> int | None:
        """None if there is none at the moment."""
        answer = await self.cluster.ask(FindCoordinatorRequest(key=self.group, key_type=0), newest=3)
        if answer.error_code in _ELSEWHERE_OR_SOON:
            return None
        self._check(answer.error_code)
        self.cluster.brokers.setdefault(answer.node_id, (answer.host, answer.port))
        return int(answer.node_id)

    def _check(self, code: int) -> None:
        if code:
            name = error_code(code).name
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
