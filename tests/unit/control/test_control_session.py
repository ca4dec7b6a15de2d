"""Proofs and MACs: both sides know whom they talk to, and nothing gets in between."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.control import control_session
from mirrormaker.control.control_session import (
    HANDSHAKE_BYTES,
    DriverHandshake,
    Session,
    StreamAttempt,
    StreamHandshake,
)
from mirrormaker.control.frames import FrameConnection, framed
from mirrormaker.errors import BadMessage, ConnectionLost

SECRET = b"s" * 32
ATTEMPT = StreamAttempt(1, 2, 3, 4)


def sessions() -> tuple[Session, Session]:
    """Return the driver's and the stream's end of a new session."""
    driver, stream = DriverHandshake(SECRET), StreamHandshake(SECRET, ATTEMPT)
    attempt, welcome, ours = driver.accept(stream.hello(driver.challenge()))
    assert attempt == ATTEMPT
    return ours, stream.session(welcome)


def test_both_sides_prove_that_they_know_the_secret_and_nothing_of_it_is_sent() -> None:
    driver, stream = DriverHandshake(SECRET), StreamHandshake(SECRET, ATTEMPT)
    challenge = driver.challenge()
    hello = stream.hello(challenge)
    _, welcome, ours = driver.accept(hello)
    theirs = stream.session(welcome)
    assert theirs.open(ours.seal(b"an order")) == b"an order"
    assert ours.open(theirs.seal(b"a report")) == b"a report"
    assert all(SECRET not in message and len(message) <= HANDSHAKE_BYTES for message in (challenge, hello, welcome))


def test_a_stream_that_does_not_know_the_secret_is_refused() -> None:
    driver = DriverHandshake(SECRET)
    with pytest.raises(BadMessage):
        driver.accept(StreamHandshake(b"another", ATTEMPT).hello(driver.challenge()))


def test_a_server_that_does_not_know_the_secret_is_not_obeyed() -> None:
    """Its proof would need the secret: one under another secret, or one of the driver for another connection, is refused."""
    stream = StreamHandshake(SECRET, ATTEMPT)
    stream.hello(DriverHandshake(b"another").challenge())
    for secret in (SECRET, b"another"):
        elsewhere = DriverHandshake(secret)
        _, welcome, _ = elsewhere.accept(StreamHandshake(secret, ATTEMPT).hello(elsewhere.challenge()))
        with pytest.raises(BadMessage):
            stream.session(welcome)


def test_a_proof_is_worth_nothing_on_another_connection() -> None:
    first, second = DriverHandshake(SECRET), DriverHandshake(SECRET)
    hello = StreamHandshake(SECRET, ATTEMPT).hello(first.challenge())
    first.accept(hello)
    with pytest.raises(BadMessage):
        second.accept(hello)


@given(st.data())
def test_any_byte_of_a_handshake_counts(data: st.DataObject) -> None:
    """So neither nonce nor version nor flow, job, stream or attempt can be exchanged on the way."""

    def damaged(message: bytes) -> bytes:
        at, flip = data.draw(st.integers(0, len(message) - 1)), data.draw(st.integers(1, 255))
        return message[:at] + bytes([message[at] ^ flip]) + message[at + 1 :]

    which = data.draw(st.integers(0, 2))
    driver, stream = DriverHandshake(SECRET), StreamHandshake(SECRET, ATTEMPT)
    challenge = driver.challenge()
    with pytest.raises(BadMessage):
        hello = stream.hello(damaged(challenge) if which == 0 else challenge)
        _, welcome, _ = driver.accept(damaged(hello) if which == 1 else hello)
        stream.session(damaged(welcome) if which == 2 else welcome)


@given(st.binary(max_size=HANDSHAKE_BYTES))
def test_what_a_stranger_says_is_a_bad_message(message: bytes) -> None:
    for read in (
        DriverHandshake(SECRET).accept,
        StreamHandshake(SECRET, ATTEMPT).hello,
        StreamHandshake(SECRET, ATTEMPT).session,
    ):
        with pytest.raises(BadMessage):
            read(message)


def test_another_version_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = DriverHandshake(SECRET).challenge()
    monkeypatch.setattr(control_session, "VERSION", 4)
    with pytest.raises(BadMessage, match=r"the driver speaks version 3 .* this process speaks version 4"):
        StreamHandshake(SECRET, ATTEMPT).hello(ours)
    with pytest.raises(BadMessage, match="does not speak version 4"):
        StreamHandshake(SECRET, ATTEMPT).hello(b'{"version":1,"nonce":"00"}\n')


def test_messages_are_taken_once_in_order_and_in_one_direction() -> None:
    driver, stream = sessions()
    first, second = driver.seal(b"first"), driver.seal(b"second")
    for message in (second, stream.seal(b"its own"), b"", b"short"):
        with pytest.raises(BadMessage):
            stream.open(message)
    assert stream.open(first) == b"first"
    with pytest.raises(BadMessage):
        stream.open(first)
    assert stream.open(second) == b"second"


def test_a_message_of_another_session_is_refused() -> None:
    (driver, _), (_, stream) = sessions(), sessions()
    with pytest.raises(BadMessage):
        stream.open(driver.seal(b"an order"))


@given(st.binary(min_size=1, max_size=300), st.data())
def test_any_damage_to_a_framed_message_is_found(body: bytes, data: st.DataObject) -> None:
    driver, stream = sessions()
    wire = bytearray(framed(driver.seal(body)))
    wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    followed_by = data.draw(st.sampled_from([b"", framed(driver.seal(b"the next"))]))

    async def receive() -> None:
        connection = FrameConnection(1000)
        feeding = asyncio.create_task(feed(connection, bytes(wire) + followed_by))
        try:
            while True:
                stream.open(await connection.read())
        finally:
            feeding.cancel()

    with pytest.raises((BadMessage, ConnectionLost)):
        asyncio.run(receive())
    assert stream._received == 0


async def feed(connection: FrameConnection, data: bytes) -> None:
    """Hand bytes to a connection as asyncio does, and then end it."""
    while data:
        if connection._frame is None:
            room = connection.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            connection.buffer_updated(size)
            if connection._error is not None:
                return
        await asyncio.sleep(0)
    connection.eof_received()
