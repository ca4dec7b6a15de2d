"""Find out which requests a broker knows, also where it is too old to be asked.

Brokers answer ApiVersions since Kafka 0.10. On that request 0.8.2 closes the connection; 0.9 does not answer at all, and the
connection is of no use afterwards. A modern broker in trouble may behave in either way, and to treat it as an old one would
cost its records their timestamps. So a broker counts as old only if it answers a request that old brokers know, and fails in
the same way on several connections at a request that they do not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from mirrormaker.errors import BadFrame, BrokerError, ConnectionLost, HungUp, Silent
from mirrormaker.wire.protocol.messages import ApiMessage, ApiVersionsRequest, ListGroupsRequest, MetadataRequest

if TYPE_CHECKING:
    from mirrormaker.wire.transport.connection import Connection


OpenConnection = Callable[[], Awaitable["Connection"]]  # opens one more connection to the same broker
ApiVersions = dict[int, tuple[int, int]]  # by api key: the oldest and the newest version that a broker knows

# Seconds for an answer that a healthy broker gives within milliseconds. To find out that a broker is 0.9 takes two of these.
PROBE_TIMEOUT = 1.5
FIRST_WITH_API_VERSIONS = (0, 10)
_ONLY_FIRST = (0, 0)
# Produce, Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, FindCoordinator
KAFKA_0_8_2: ApiVersions = {0: (0, 0), 1: (0, 0), 2: (0, 0), 3: (0, 0), 8: (0, 1), 9: (0, 1), 10: (0, 0)}
# The same, and the group protocol: JoinGroup, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups
KAFKA_0_9: ApiVersions = {
    **KAFKA_0_8_2, 0: (0, 1), 1: (0, 1), 8: (0, 2), **dict.fromkeys((11, 12, 13, 14, 15, 16), _ONLY_FIRST),
}  # fmt: skip


def versions_before_0_10(broker_version: tuple[int, ...] | None) -> ApiVersions | None:
    """Return what brokers of a version before 0.10 know; None for all other versions."""
    if broker_version is None or broker_version >= FIRST_WITH_API_VERSIONS:
        return None
    return KAFKA_0_9 if broker_version >= (0, 9) else KAFKA_0_8_2


async def ask_before_login(connection: Connection, timeout: float) -> ApiVersions:
    """Ask a broker that wants a SASL login. Before the login ApiVersions is the only request that brokers answer.

    A broker of 0.9 takes the request for a SASL token and closes the connection, so an old broker cannot be told from one
    in trouble: the user has to name its version.
    """
    try:
        return _by_api_key(connection, await connection.ask(ApiVersionsRequest(), timeout, version=0))
    except (HungUp, Silent) as error:
        text = f"{error}; if the broker is older than Kafka 0.10, set broker.version=0.9"
        raise ConnectionLost(text) from error


async def ask(
    connection: Connection, open_another: OpenConnection, timeout: float, *, may_be_old: bool = True
) -> ApiVersions:
    """Return what the broker knows. If the broker turns out to be old, the connection is closed afterwards."""
    # A short timeout of the user's must not make a slow broker look old.
    timeout = max(timeout, 4 * PROBE_TIMEOUT)
    answer = asyncio.ensure_future(connection.ask(ApiVersionsRequest(), timeout, version=0))
    # Nobody may be waiting any more when it fails; asyncio would log that.
    answer.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        await asyncio.wait([answer], timeout=PROBE_TIMEOUT)
        if may_be_old and not answer.done() and await _is_0_9(open_another) and not answer.done():
            connection.close()
            return KAFKA_0_9
        if may_be_old and answer.done() and isinstance(answer.exception(), HungUp) and await _is_0_8(open_another):
            return KAFKA_0_8_2
        return _by_api_key(connection, await answer)
    finally:
        answer.cancel()


async def answers_api_versions(open_another: OpenConnection) -> bool:
    """Return True if the broker answers ApiVersions, whatever version the user says that it is."""
    return await _outcome(open_another, ApiVersionsRequest()) is _Outcome.ANSWERED


def _by_api_key(connection: Connection, response: Any) -> ApiVersions:
    """Return the versions of each request, without requests of which the broker knows no version."""
    if response.error_code and not response.api_keys:
        raise BadFrame(f"{connection} answers ApiVersions with {BrokerError(response.error_code)}")
    rows = ((api.api_key, api.min_version, api.max_version) for api in response.api_keys)
    return {key: (oldest, newest) for key, oldest, newest in rows if 0 <= oldest <= newest}


class _Outcome(Enum):
    """The fate of a request on a connection of its own."""

    ANSWERED = auto()
    HUNG_UP = auto()
    SILENT = auto()
    UNKNOWN = auto()


# An old broker must fail on each of this many connections: a single one may be stuck.
_CONNECTIONS = 3


async def _is_0_9(open_another: OpenConnection) -> bool:
    """Return True if the broker ignores ApiVersions but answers ListGroups before and after."""
    return (
        await _outcome(open_another, ListGroupsRequest()) is _Outcome.ANSWERED
        and await _outcomes_of_api_versions(open_another) == {_Outcome.SILENT}
        and await _outcome(open_another, ListGroupsRequest()) is _Outcome.ANSWERED
    )


async def _is_0_8(open_another: OpenConnection) -> bool:
    """Return True if the broker hangs up on ListGroups and ApiVersions but answers Metadata before and after."""
    return (
        await _outcome(open_another, ListGroupsRequest()) is _Outcome.HUNG_UP
        and await _outcome(open_another, MetadataRequest(topics=None)) is _Outcome.ANSWERED
        and await _outcomes_of_api_versions(open_another) == {_Outcome.HUNG_UP}
        and await _outcome(open_another, MetadataRequest(topics=None)) is _Outcome.ANSWERED
    )


async def _outcomes_of_api_versions(open_another: OpenConnection) -> set[_Outcome]:
    return set(await asyncio.gather(*(_outcome(open_another, ApiVersionsRequest()) for _ in range(_CONNECTIONS))))


async def _outcome(open_another: OpenConnection, request: ApiMessage) -> _Outcome:
    """Send version 0 of a request on a new connection."""
    try:
        connection = await open_another()
    except ConnectionError:
        return _Outcome.UNKNOWN
    try:
        await connection.ask(request, PROBE_TIMEOUT, version=0)
        return _Outcome.ANSWERED
    except HungUp:
        return _Outcome.HUNG_UP
    except Silent:
        return _Outcome.SILENT
    except (ConnectionError, BadFrame):
        return _Outcome.UNKNOWN
    finally:
        connection.close()
