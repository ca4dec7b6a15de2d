"""Old brokers are recognised, and a modern broker that is slow or about to stop is never taken for one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from kafka.protocol.admin import ListGroupsRequest, ListGroupsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from mirrormaker.errors import ConnectionLost, Silent
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol import old_brokers
from mirrormaker.wire.protocol.old_brokers import ApiVersions
from mirrormaker.wire.transport.connection import Connection

PROBE = 0.15
VERSIONS, GROUPS, METADATA = 18, 16, 3
KNOWN = dict.fromkeys((0, 1, METADATA), (0, 12))
_ROWS = [
    ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
    for key, (oldest, newest) in {**KNOWN, 77: (3, 2), 78: (-1, -1)}.items()
]
ANSWERS = {
    VERSIONS: ApiVersionsResponse(error_code=0, api_keys=_ROWS).encode(version=0),
    GROUPS: ListGroupsResponse(error_code=0, groups=[]).encode(version=0),
    METADATA: MetadataResponse(brokers=[], topics=[]).encode(version=0),
}
HANG_UP, SILENT = -1.0, -2.0

# Of the request's key and how often it came: seconds until the answer, HANG_UP or SILENT.
Rule = Callable[[int, int], float]


@pytest.fixture(autouse=True)
def short_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_brokers, "PROBE_TIMEOUT", PROBE)


async def with_broker(rule: Rule, body: Callable[[int], Awaitable[ApiVersions]]) -> ApiVersions:
    """Run `body` with the port of a broker that answers by the rule."""
    asked = dict.fromkeys(ANSWERS, 0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, _, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
                asked[key] += 1
                wait = rule(key, asked[key])
                if wait == HANG_UP:
                    return
                if wait == SILENT:
                    continue
                await asyncio.sleep(wait)
                body = struct.pack(">i", correlation) + ANSWERS[key]
                writer.write(struct.pack(">i", len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        return await body(server.sockets[0].getsockname()[1])
    finally:
        server.close()


def ask(rule: Rule, timeout: float = 2.0, may_be_old: bool = True) -> ApiVersions:
    """Return the versions that the mirror finds out about a broker that answers by the rule."""

    async def body(port: int) -> ApiVersions:
        async def another() -> Connection:
            connection = Connection("127.0.0.1", port, client_id="test")
            await connection.open(1)
            return connection

        first = await another()
        try:
            return await old_brokers.ask(first, another, timeout, may_be_old=may_be_old)
        finally:
            first.close()

    return asyncio.run(with_broker(rule, body))


def test_a_broker_that_answers_is_what_it_says() -> None:
    assert ask(lambda key, _: 0) == KNOWN


def test_a_broker_that_hangs_up_at_what_it_does_not_know_is_0_8() -> None:
    assert ask(lambda key, _: 0 if key == METADATA else HANG_UP) == old_brokers.KAFKA_0_8_2


def test_a_broker_that_is_silent_at_what_it_does_not_know_is_0_9() -> None:
    assert ask(lambda key, _: SILENT if key == VERSIONS else 0) == old_brokers.KAFKA_0_9


@pytest.mark.parametrize("late", [1.2, 1.8, 3.0], ids=lambda late: f"{late} probes")
def test_a_broker_that_is_slow_at_everything_is_not_old(late: float) -> None:
    assert ask(lambda key, _: late * PROBE) == KNOWN


def test_a_broker_that_answers_late_while_others_are_served_is_not_old() -> None:
    assert ask(lambda key, _: 1.5 * PROBE if key == VERSIONS else 0) == KNOWN


def test_a_broker_that_hangs_up_once_is_asked_again_by_whoever_needs_it() -> None:
    """Such a broker was restarting."""
    with pytest.raises(ConnectionLost, match="closed the connection"):
        ask(lambda key, times: HANG_UP if key == VERSIONS and times == 1 else 0)


def test_a_broker_that_comes_back_between_two_questions_is_not_0_8() -> None:
    with pytest.raises(ConnectionLost):
        ask(lambda key, times: HANG_UP if key == GROUPS or (key == VERSIONS and times == 1) else 0)


def test_a_port_that_hangs_up_at_everything_is_not_a_broker() -> None:
    with pytest.raises(ConnectionLost):
        ask(lambda key, _: HANG_UP)


def test_a_port_that_never_answers_is_given_up() -> None:
    with pytest.raises(ConnectionLost, match=r"did not answer ApiVersionsRequest within 0\.7 s"):
        ask(lambda key, _: SILENT, timeout=0.7)


def test_one_connection_that_is_stuck_does_not_make_a_broker_old() -> None:
    """A network thread may hang, or one of several machines behind a name."""
    with pytest.raises(ConnectionLost, match="did not answer"):
        ask(lambda key, times: SILENT if key == VERSIONS and times == 1 else 0, timeout=0.7)


def test_a_broker_that_turns_some_away_is_not_old() -> None:
    """A broker with a limit of connections hangs up on some of them, whatever they ask."""
    turn = {"next": 0}

    def rule(key: int, _: int) -> float:
        turn["next"] += 1
        return HANG_UP if turn["next"] in (1, 2, 4, 6) else 0

    with pytest.raises(ConnectionLost):
        ask(rule)


def test_an_impatient_user_does_not_make_a_broker_old() -> None:
    assert ask(lambda key, _: 1.5 * PROBE, timeout=0.01) == KNOWN


def test_a_probe_whose_answer_cannot_be_read_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, GROUPS, b"nonsense")
    with pytest.raises(Silent):
        ask(lambda key, _: 0 if key == GROUPS else SILENT, timeout=0.01)


def test_a_broker_among_others_that_could_be_asked_is_not_old() -> None:
    with pytest.raises(ConnectionLost):
        ask(lambda key, _: 0 if key == METADATA else HANG_UP, may_be_old=False)


@pytest.mark.parametrize("is_so", [True, False])
def test_an_old_version_that_the_user_names_counts_while_it_is_so(is_so: bool) -> None:
    async def body(port: int) -> ApiVersions:
        cluster = Cluster(Endpoint((("127.0.0.1", port),), broker_version=(0, 9, 0, 1)))
        try:
            assert await cluster.knows(ListGroupsRequest) is is_so
            return {}
        finally:
            cluster.close()

    asyncio.run(with_broker(lambda key, _: SILENT if is_so else 0, body))


@pytest.mark.parametrize(
    ("version", "known"),
    [
        (None, None),
        ((0, 8, 2), old_brokers.KAFKA_0_8_2),
        ((0, 9), old_brokers.KAFKA_0_9),
        ((0, 10), None),
        ((3, 9, 2), None),
    ],
)
def test_only_versions_that_cannot_be_asked_are_known_by_name(
    version: tuple[int, ...] | None, known: ApiVersions | None
) -> None:
    assert old_brokers.versions_before_0_10(version) == known
