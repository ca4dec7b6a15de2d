"""Logins at a broker and their renewal: each failure ends the connection, and whoever uses it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from mirrormaker.errors import ConnectionLost, LoginFailed
from mirrormaker.wire.auth import sasl
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.credentials import Password, Sasl, Security
from tests.support.peer import run
from tests.support.scripted_broker import METADATA, SILENT, ScriptedBroker, metadata

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = Security("SASL_PLAINTEXT", sasl=Sasl("PLAIN", Password("me", "h0nest-hush")))


def logged_in(lifetime_ms: int) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=lifetime_ms)


def broker(*logins: Any) -> ScriptedBroker:
    """Return a broker with so many answers to logins; the last one is repeated."""
    left = list(logins)
    offer = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
    return ScriptedBroker(
        {HANDSHAKE: offer, AUTHENTICATE: lambda _version, _body: left.pop(0) if len(left) > 1 else left[0]}
    )


def tried(made_up: ScriptedBroker, body: Callable[[Cluster], Any]) -> None:
    """Run `body` with a cluster that has logged in at the broker."""

    async def test() -> None:
        async with made_up.running(PLAIN) as cluster:
            made_up.answers[METADATA] = metadata({1: made_up.port}, {"orders": 1})
            await cluster.refresh()
            await body(cluster)

    run(test())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew logins after a tenth of their lifetime."""
    monkeypatch.setattr(sasl, "_RENEWAL_SHARE", (0.1, 0.1))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\0", "cannot be decoded"),
        (
            SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"", session_lifetime_ms=0),
            "it refuses user me: no",
        ),
        (None, "closed the connection"),
        (logged_in(1), "too short"),
    ],
    ids=["nonsense", "refused", "hung up", "too short"],
)
def test_a_login_that_cannot_be_renewed_ends_the_connection_and_wakes_its_user(answer: Any, reason: str) -> None:
    """The user of the connection has nothing under way: only this call tells it."""

    async def body(cluster: Cluster) -> None:
        connection = await cluster.connection(1)
        woken = asyncio.Event()
        connection.on_drain = woken.set
        while connection.is_open:
            woken.clear()
            await asyncio.wait_for(woken.wait(), 5)
        assert reason in str(connection.error)

    tried(broker(logged_in(1000), answer), body)


@pytest.mark.usefixtures("soon")
def test_a_renewal_that_is_not_answered_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are held back until the answer comes: they must not wait for ever."""
    monkeypatch.setattr(sasl, "_LONGEST_QUEUE", 0.2)

    async def body(cluster: Cluster) -> None:
        connection = await cluster.connection(1)
        made_up.answers[HANDSHAKE] = SILENT
        while connection.can_write:
            await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost):
            await connection.request(METADATA, 0, False, [b"\0\0\0\0"])
        assert not connection.is_open

    made_up = broker(logged_in(1000))
    made_up.patience = 2.0
    tried(made_up, body)


@pytest.mark.usefixtures("soon")
def test_logins_are_renewed_on_the_same_connection_as_long_as_they_are_granted() -> None:
    made_up = broker(logged_in(1000))

    async def body(cluster: Cluster) -> None:
        connection = await cluster.connection(1)
        while [key for key, _ in made_up.heard].count(AUTHENTICATE) < 4:
            await asyncio.sleep(0.01)
        assert connection.is_open
        await cluster.refresh()

    tried(made_up, body)


def test_a_login_that_lasts_a_millisecond_is_refused_and_not_tried_again_at_once() -> None:
    made_up = broker(logged_in(1))

    async def test() -> None:
        async with made_up.running(PLAIN) as cluster:
            with pytest.raises(
                LoginFailed, match=r"a login would last 0\.001 s there \(connections\.max\.reauth\.ms\)"
            ):
                await cluster.refresh()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(cluster.refresh(), 0.5)
            assert [key for key, _ in made_up.heard].count(AUTHENTICATE) == 1

    run(test())


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63)])
def test_a_login_without_a_lifetime_is_not_renewed(lifetime_ms: int) -> None:
    made_up = broker(logged_in(lifetime_ms))

    async def body(cluster: Cluster) -> None:
        await asyncio.sleep(0.1)
        assert [key for key, _ in made_up.heard].count(AUTHENTICATE) == 1

    tried(made_up, body)


def test_a_login_whose_answer_is_nonsense_is_an_outage() -> None:
    made_up = broker(b"\0")

    async def test() -> None:
        async with made_up.running(PLAIN) as cluster:
            with pytest.raises(ConnectionLost, match="cannot be decoded"):
                await cluster.refresh()

    run(test())
