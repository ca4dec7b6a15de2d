"""Brokers from before ApiVersions (Kafka 0.10): found out by how they fail to answer it.

0.8.2 hangs up. 0.9 says nothing and keeps the connection, which is of no use from then on. Both could also be a modern broker in
trouble, and taking that one for old would cost its records their timestamps: so the same broker must answer what old ones know, on
a connection of its own, and then fail once more to answer what they do not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from mirrormaker.wire.connection import AuthenticationFailed, Connection, ConnectionLost

Versions = dict[int, tuple[int, int]]  # of each request, by its key: oldest and newest

PROBE = 1.5  # seconds for an answer that takes a healthy broker milliseconds; a broker of 0.9 costs two of these
_ONLY_FIRST = (0, 0)
# Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator
KAFKA_0_8_2: Versions = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)}
# The same, and the group protocol: JoinGroup, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups
KAFKA_0_9: Versions = {
    **KAFKA_0_8_2, 0: (0, 1), 1: (0, 1), 8: (0, 2), **dict.fromkeys((11, 12, 13, 14, 15, 16), _ONLY_FIRST),
}  # fmt: skip
JOIN_GROUP = 11


def of(version: tuple[int, ...] | None) -> Versions | None:
    """What a version knows that cannot be asked; None for all others."""
    if version is None or version >= (0, 10):
        return None
    return KAFKA_0_9 if version >= (0, 9) else KAFKA_0_8_2


async def told(connection: Connection, patience: float) -> Versions:
    """What a broker knows that asks for a login: only this question is answered before. 0.9 takes it for a token, and hangs up."""
    try:
        return _table(await connection.ask(ApiVersionsRequest(), patience, version=0))
    except ConnectionLost as error:
        said = f"{error}; if it is older than 0.10, say so with broker.version=0.9"
        raise ConnectionLost(said) from error


async def ask(connection: Connection, open_another: Callable[[], Awaitable[Connection]], patience: float) -> Versions:
    """What the broker at the other end knows; the connection is open afterwards only if it could be asked."""
    answer = asyncio.ensure_future(connection.ask(ApiVersionsRequest(), patience, version=0))
    answer.add_done_callback(lambda task: task.cancelled() or task.exception())  # it may be given up, and fail then
    try:
        await asyncio.wait([answer], timeout=PROBE)
        if not answer.done() and await _answers(open_another, ListGroupsRequest()):
            await asyncio.wait([answer], timeout=PROBE)
            if not answer.done() and await _answers(open_another, ListGroupsRequest()):
                connection.close()
                return KAFKA_0_9
        elif answer.done() and _hung_up(answer.exception()) and await _is_0_8(open_another):
            return KAFKA_0_8_2
        return _table(await answer)
    finally:
        answer.cancel()


def _table(answer: Any) -> Versions:
    return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}


def _hung_up(error: BaseException | None) -> bool:
    """As 0.8.2 does, which has no reasons of its own to turn somebody away."""
    return isinstance(error, ConnectionLost) and not isinstance(error, AuthenticationFailed)


async def _is_0_8(open_another: Callable[[], Awaitable[Connection]]) -> bool:
    """Does it answer the oldest question, and hang up at newer ones before and after?"""
    return (
        not await _answers(open_another, ListGroupsRequest())
        and await _answers(open_another, MetadataRequest(topics=None))
        and not await _answers(open_another, ApiVersionsRequest())
    )


async def _answers(open_another: Callable[[], Awaitable[Connection]], question: ApiMessage) -> bool:
    """Whether there is any answer to the first version of a question, on a connection of its own."""
    try:
        connection = await open_another()
    except ConnectionError:
        return False
    try:
        await connection.ask(question, PROBE, version=0)
    except ConnectionError:
        return False
    finally:
        connection.close()
    return True
