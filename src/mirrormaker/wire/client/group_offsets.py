"""All consumer groups of a cluster: their types, their states, and the offsets that they have committed.

Each broker tells the groups that it coordinates, so the list is the map of coordinators too. Requests to one broker leave
without waiting for each other, a bounded number at a time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from mirrormaker.errors import OUTAGE, BadFrame, BrokerError, UnsupportedRequest
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import group_messages as wire
from mirrormaker.wire.protocol.answer_checks import read_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow, CommittedRow, GroupOffsets, TopicOffsets
from mirrormaker.wire.protocol.messages import (
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from mirrormaker.wire.transport.connection import Connection

T = TypeVar("T")
PURPOSE = "groups"  # a connection of its own: thousands of requests must not keep others waiting
# In one request. Groups of thousands of topics must fit into one answer, whose decoding is bounded.
_GROUPS_AT_ONCE, _SHARE_GROUPS_AT_ONCE = 25, 10
_IN_FLIGHT = 32  # requests of single groups to one broker
_ROWS_AT_ONCE = 1000  # partitions of one commit: brokers append a commit as one batch
_ALL_PARTITIONS = 2  # since this version (Kafka 0.10.2) OffsetFetch can ask for everything that a group has committed
_ONE_GROUP_FETCH, _OLD_COMMIT = 7, 7  # newest versions that kafka-python encodes for us
_MANY_KEYS = 4  # since this version (Kafka 3.0) FindCoordinator takes several groups
SHARE = "share"  # a type of groups


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it. Type and state are empty where brokers do not tell them."""

    name: str
    node: int
    protocol: str = ""
    state: str = ""
    type: str = ""

    @property
    def is_share(self) -> bool:
        """Return True for a share group, whose offsets are set in another way."""
        return self.type.lower() == SHARE or (not self.type and self.protocol == SHARE)

    @property
    def is_active(self) -> bool:
        """Return True if the group is known to have members."""
        return self.state.lower() not in ("", "empty", "dead", "unknown")


async def list_groups(cluster: Cluster) -> dict[str, ListedGroup]:
    """Return all groups that this client may see. Raise an error if a broker does not answer: its groups would seem deleted."""
    found: dict[str, ListedGroup] = {}
    for groups in await asyncio.gather(*(_list_at(cluster, node) for node in sorted(cluster.brokers))):
        for group in groups:
            known = found.get(group.name)
            # While a coordinator moves, its former broker may list a group that it has unloaded.
            if known is None or known.state.lower() == "dead":
                found[group.name] = group
    return found


async def _list_at(cluster: Cluster, node: int) -> list[ListedGroup]:
    answer = await cluster.ask(ListGroupsRequest(states_filter=[], types_filter=[]), node, purpose=PURPOSE)
    if answer.error_code:
        raise BrokerError(answer.error_code, f"listing the groups of broker {node}")
    return [
        ListedGroup(row.group_id, node, row.protocol_type or "", row.group_state or "", row.group_type or "")
        for row in answer.groups
    ]


async def find_coordinators(cluster: Cluster, groups: Iterable[str]) -> dict[str, int]:
    """Return the coordinators of groups, which need not exist; a group whose coordinator is not known now is left out."""
    if not (names := sorted(groups)):
        return {}
    connection = await cluster.connection(min(cluster.brokers), PURPOSE)
    timeout = cluster.endpoint.request_timeout
    found: dict[str, int] = {}
    if connection.best_version(FindCoordinatorRequest) >= _MANY_KEYS:
        for chunk in _chunks(names, _GROUPS_AT_ONCE):
            answer = await connection.ask(
                FindCoordinatorRequest(key_type=0, coordinator_keys=chunk), timeout, _MANY_KEYS
            )
            found |= {row.key: row.node_id for row in answer.coordinators if not row.error_code}
    else:

        async def find(name: str) -> tuple[str, int | None]:
            request = FindCoordinatorRequest(key=name, key_type=0)
            answer = await connection.ask(request, timeout, min(3, connection.best_version(FindCoordinatorRequest)))
            return name, None if answer.error_code else answer.node_id

        rows = await _bounded([partial(find, name) for name in names])
        found = {row[0]: row[1] for row in rows if not isinstance(row, Exception) and row[1] is not None}
    return {name: node for name, node in found.items() if name in names and node in cluster.brokers}


async def fetch_offsets(
    cluster: Cluster, groups: Mapping[str, int], *, stable: bool
) -> dict[str, GroupOffsets | Exception]:
    """Return everything that groups have committed, or the error of the coordinator. `groups` has the coordinators.

    `stable`: an offset that an open transaction holds is answered with error 88 until the transaction ends.
    """
    return await _at_coordinators(cluster, groups, lambda node, names: _fetch_at(cluster, node, names, stable))


async def _fetch_at(cluster: Cluster, node: int, names: list[str], stable: bool) -> dict[str, GroupOffsets | Exception]:
    connection = await cluster.connection(node, PURPOSE)
    found: dict[str, GroupOffsets | Exception] = {}
    newest = connection.best_version(OffsetFetchRequest)
    if newest < wire.FETCH_VERSIONS[0]:
        rows = await _bounded([partial(_fetch_one, connection, cluster, name, stable) for name in names])
        return dict(zip(names, rows, strict=True))
    version = min(newest, wire.FETCH_VERSIONS[1])
    for chunk in _chunks(names, _GROUPS_AT_ONCE):
        body = wire.encode_offset_fetch(version, chunk, stable=stable)
        data = await _ask(cluster, connection, wire.OFFSET_FETCH, version, body, "OffsetFetch")
        found |= _decoded(connection, wire.decode_offset_fetch, data, chunk)
    return found


async def _fetch_one(connection: Connection, cluster: Cluster, name: str, stable: bool) -> GroupOffsets:
    version = min(_ONE_GROUP_FETCH, connection.best_version(OffsetFetchRequest))
    if version < _ALL_PARTITIONS:
        raise UnsupportedRequest(f"{connection} cannot list what a group has committed (before Kafka 0.10.2)")
    request = OffsetFetchRequest(group_id=name, topics=None, require_stable=stable)
    answer = await connection.ask(request, cluster.endpoint.request_timeout, version, read_offsets)
    topics = {
        topic.name: TopicOffsets.of(
            {
                p.partition_index: CommittedRow(p.committed_offset, p.metadata or "", p.error_code)
                for p in topic.partitions
            }
        )
        for topic in answer.topics
    }
    return GroupOffsets({} if answer.error_code else topics, answer.error_code or 0)


async def fetch_share_offsets(cluster: Cluster, groups: Mapping[str, int]) -> dict[str, GroupOffsets | Exception]:
    """Return the start offsets of share groups (Kafka 4.1 and later)."""

    async def fetch(node: int, names: list[str]) -> dict[str, GroupOffsets | Exception]:
        connection = await cluster.connection(node, PURPOSE)
        if wire.DESCRIBE_SHARE_OFFSETS not in connection.versions:
            raise UnsupportedRequest(f"{connection} does not tell the offsets of share groups (before Kafka 4.1)")
        found: dict[str, GroupOffsets | Exception] = {}
        for chunk in _chunks(names, _SHARE_GROUPS_AT_ONCE):
            body = wire.encode_describe_share_offsets(chunk)
            data = await _ask(cluster, connection, wire.DESCRIBE_SHARE_OFFSETS, 0, body, "DescribeShareGroupOffsets")
            found |= _decoded(connection, wire.decode_describe_share_offsets, data, chunk)
        return found

    return await _at_coordinators(cluster, groups, fetch)


# -- writing

Committed = dict[TopicPartition, int]


async def commit_offsets(
    cluster: Cluster, commits: Mapping[str, Sequence[CommitRow]], nodes: Mapping[str, int]
) -> dict[str, Committed | Exception]:
    """Commit offsets of groups without being a member of them; return the error codes of the partitions of each.

    `nodes` has the coordinators. A group that does not exist is created; one that has members answers UNKNOWN_MEMBER_ID.
    """

    async def commit_at(node: int, names: list[str]) -> dict[str, Committed | Exception]:
        connection = await cluster.connection(node, PURPOSE)
        rows = await _bounded([partial(_commit_one, cluster, connection, name, commits[name]) for name in names])
        return dict(zip(names, rows, strict=True))

    return await _at_coordinators(cluster, {name: nodes[name] for name in commits if name in nodes}, commit_at)


async def _commit_one(cluster: Cluster, connection: Connection, group: str, rows: Sequence[CommitRow]) -> Committed:
    found: Committed = {}
    newest = connection.best_version(OffsetCommitRequest)
    for chunk in _chunks(rows, _ROWS_AT_ONCE):
        if newest >= wire.COMMIT_VERSIONS[0]:
            version, body = min(newest, wire.COMMIT_VERSIONS[1]), wire.encode_offset_commit(group, chunk)
            data = await _ask(cluster, connection, wire.OFFSET_COMMIT, version, body, "OffsetCommit")
            found |= _decoded(connection, wire.decode_offset_commit, data, chunk)
            continue
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        names = dict.fromkeys(row.topic for row in chunk)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                topic(name=name, partitions=[_commit_partition(row) for row in chunk if row.topic == name])
                for name in names
            ],
        )
        answer = await connection.ask(request, cluster.endpoint.request_timeout, min(newest, _OLD_COMMIT))
        found |= {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    return found


def _commit_partition(row: CommitRow) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
    return kind(
        partition_index=row.partition,
        committed_offset=row.offset,
        committed_leader_epoch=-1,
        committed_metadata=row.metadata,
    )


async def alter_share_offsets(
    cluster: Cluster, changes: Mapping[str, Sequence[CommitRow]], nodes: Mapping[str, int]
) -> dict[str, Committed | Exception]:
    """Set the start offsets of share groups that have no members; one that does not exist is created."""

    async def alter_at(node: int, names: list[str]) -> dict[str, Committed | Exception]:
        connection = await cluster.connection(node, PURPOSE)
        if wire.ALTER_SHARE_OFFSETS not in connection.versions:
            raise UnsupportedRequest(f"{connection} cannot set the offsets of share groups (before Kafka 4.1)")
        rows = await _bounded([partial(alter_one, connection, name) for name in names])
        return dict(zip(names, rows, strict=True))

    async def alter_one(connection: Connection, name: str) -> Committed:
        body = wire.encode_alter_share_offsets(name, changes[name])
        data = await _ask(cluster, connection, wire.ALTER_SHARE_OFFSETS, 0, body, "AlterShareGroupOffsets")
        return _decoded(connection, wire.decode_alter_share_offsets, data, changes[name])

    return await _at_coordinators(cluster, {name: nodes[name] for name in changes if name in nodes}, alter_at)


# -- requests


async def _ask(cluster: Cluster, connection: Connection, key: int, version: int, body: bytes, name: str) -> memoryview:
    answer = connection.request(key, version, True, [body])
    (data,) = await connection.answered_within(cluster.endpoint.request_timeout, name, answer)
    return data


def _decoded(connection: Connection, decode: Callable[[memoryview, Any], T], data: memoryview, asked: Any) -> T:
    try:
        return decode(data, asked)
    except BadFrame as error:
        bad = BadFrame(f"{connection}: {error}")
        connection.close(bad)
        raise bad from error


async def _at_coordinators(
    cluster: Cluster, groups: Mapping[str, int], work: Callable[[int, list[str]], Awaitable[dict[str, T | Exception]]]
) -> dict[str, T | Exception]:
    """Do work at each coordinator for its groups; an error of a broker is that of its groups."""
    by_node: dict[int, list[str]] = defaultdict(list)
    for name, node in groups.items():
        by_node[node].append(name)

    async def do(node: int, names: list[str]) -> dict[str, T | Exception]:
        try:
            return await work(node, names)
        except (*OUTAGE, UnsupportedRequest) as error:
            return dict.fromkeys(names, error)

    found: dict[str, T | Exception] = {}
    for part in await asyncio.gather(*(do(node, names) for node, names in by_node.items())):
        found |= part
    return found


async def _bounded(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[Any]:
    """Return the results, or the errors, of calls of which at most 32 run at a time."""
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def one(call: Callable[[], Awaitable[T]]) -> T | Exception:
        async with slots:
            try:
                return await call()
            except (*OUTAGE, UnsupportedRequest) as error:
                return error

    return await asyncio.gather(*map(one, calls))


def _chunks(items: Sequence[T], size: int) -> list[list[T]]:
    return [list(items[at : at + size]) for at in range(0, len(items), size)]
