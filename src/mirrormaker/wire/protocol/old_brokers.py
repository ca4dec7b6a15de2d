"""Brokers from before ApiVersions (Kafka 0.10): found out by how they fail to answer it.

0.8.2 hangs up. 0.9 says nothing and keeps the connection, which is of no use from then on. Both could also be a modern broker in
trouble, and taking that one for old would cost its records their timestamps: so the same broker must answer what old ones know, and
fail in the same way, on several connections, at what they do not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from mirrormaker.errors import ConnectionLost, HungUp, Silent
from mirrormaker.wire.protocol.messages import ApiMessage, ApiVersionsRequest, ListGroupsRequest, MetadataRequest
from mirrormaker.wire.transport.connection import Connection

Another = Callable[[], Awaitable[Connection]]  # opens one more connection to the same broker
Versions = dict[int, tuple[int, int]]  # of each request, by its key: oldest and newest

PROBE = 1.5  # seconds for an answer that takes a healthy broker milliseconds; a broker of 0.9 costs two of these
_ONLY_FIRST = (0, 0)
# Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator
KAFKA_0_8_2: Versions = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)}
# The same, and the group protocol: JoinGroup, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups
KAFKA_0_9: Versions = {
    **KAFKA_0_8_2, 0: (0, 1), 1: (0, 1), 8: (0, 2), **dict.fromkeys((11, 12, 13, 14, 15, 16), _ONLY_FIRST),
}  # fmt: skip
CAN_BE_ASKED = (0, 10)


def of(version: tuple[int, ...] | None) -> Versions | None:
    """What a version knows that cannot be asked; None for all others."""
    if version is None or version >= CAN_BE_ASKED:
        return None
    return KAFKA_0_9 if version >= (0, 9) else KAFKA_0_8_2


async def told(connection: Connection, patience: float) -> Versions:
    """What a broker knows that asks for a login: only this question is answered before. 0.9 takes it for a token, and hangs up."""
    try:
        return _table(await connection.ask(ApiVersionsRequest(), patience, version=0))
    except (HungUp, Silent) as error:
        said = f"{error}; if it is older than 0.10, say so with broker.version=0.9"
        raise ConnectionLost(said) from error


async def ask(connection: Connection, open_another: Another, patience: float, *, may_be_old: bool = True) -> Versions:
    """What the broker at the other end knows; the connection is open afterwards only if it could be asked."""
    patience = max(patience, 4 * PROBE)  # an impatient user must not make a broker old
    answer = asyncio.ensure_future(connection.ask(ApiVersionsRequest(), patience, version=0))
    answer.add_done_callback(lambda task: task.cancelled() or task.exception())  # it may be given up, and fail then
    try:
        await asyncio.wait([answer], timeout=PROBE)
        if may_be_old and not answer.done() and await _is_0_9(open_another) and not answer.done():
            connection.close()
            return KAFKA_0_9
        if may_be_old and answer.done() and isinstance(answer.exception(), HungUp) and await _is_0_8(open_another):
            return KAFKA_0_8_2
        return _table(await answer)
    finally:
        answer.cancel()


async def is_modern(open_another: Another) -> bool:
    """Can it be asked after all, whatever it was said to be?"""
    return await _outcome(open_another, ApiVersionsRequest()) == _ANSWERED


def _table(answer: Any) -> Versions:
    return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}


_ANSWERED, _HUNG_UP, _SILENT, _UNKNOWN = "answered", "hung up", "silent", "unknown"
_TIMES = 3  # that a broker must fail at the same question, each time on another connection: one of them may be stuck


async def _is_0_9(open_another: Another) -> bool:
    """Is it silent at what it does not know, and answers what it knows before and after that?"""
    return (
        await _outcome(open_another, ListGroupsRequest()) == _ANSWERED
        and await _each_time(open_another) == {_SILENT}
        and await _outcome(open_another, ListGroupsRequest()) == _ANSWERED
    )


async def _is_0_8(open_another: Another) -> bool:
    """Does it hang up at what it does not know, and answers the oldest question before and after that?"""
    return (
        await _outcome(open_another, ListGroupsRequest()) == _HUNG_UP
        and await _outcome(open_another, MetadataRequest(topics=None)) == _ANSWERED
        and await _each_time(open_another) == {_HUNG_UP}
        and await _outcome(open_another, MetadataRequest(topics=None)) == _ANSWERED
    )


async def _each_time(open_another: Another) -> set[str]:
    return set(await asyncio.gather(*(_outcome(open_another, ApiVersionsRequest()) for _ in range(_TIMES))))


async def _outcome(open_another: Another, question: ApiMessage) -> str:
    """What becomes of the first version of a question, on a connection of its own."""
    try:
        connection = await open_another()
    except ConnectionError:
        return _UNKNOWN
    try:
        await connection.ask(question, PROBE, version=0)
        return _ANSWERED
    except HungUp:
        return _HUNG_UP
    except Silent:
        return _SILENT
    except ConnectionError:
        return _UNKNOWN
    finally:
        connection.close()
