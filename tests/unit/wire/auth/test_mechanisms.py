"""SASL mechanisms: SCRAM against the RFC's own numbers, OAuth against a server; requests during a login."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from mirrormaker.errors import ConnectionLost, LoginError
from mirrormaker.wire.auth.mechanisms import oauthbearer, plain, scram
from mirrormaker.wire.credentials import OAuthClient, Password
from mirrormaker.wire.transport.connection import Connection
from tests.support.peer import connected, correlation_of, frame, hear, run

HUSH = "h0nest-hush"


def last(exchange: Any, challenge: bytes) -> Any:
    """What is returned at the end."""
    with pytest.raises(StopIteration) as end:
        exchange.send(challenge)
    return end.value.value


# -- PLAIN and SCRAM


def test_plain_says_name_and_password() -> None:
    exchange = plain(Password("tim", "tan\u2603"))
    assert next(exchange) == "\0tim\0tan\u2603".encode()
    assert last(exchange, b"") is None


def test_scram_says_what_the_rfc_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7677, section 3."""
    monkeypatch.setattr(secrets, "token_urlsafe", lambda _: "rOprNGfwEbeRWgbNEkqO")
    exchange = scram(Password("user", "pencil"), "sha256")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    offer = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.send(offer) == proof
    assert last(exchange, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_scram_writes_commas_and_equals_signs_as_the_rfc_wants() -> None:
    assert next(scram(Password("a=b,c", ""), "sha512")).startswith(b"n,,n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    "offer",
    [
        b"r=another,s=AAAA,i=4096",
        b"r={nonce}x,s=AAAA,i=100",
        b"r={nonce}x,s=,i=4096",
        b"e=unknown-user",
        b"",
        b"r={nonce}x,s=AAAA,i=2147483647",
        b"r={nonce}x,s=AAAA,i=abc",
        b"r={nonce}x,s=A,i=4096",
        b"\xff\xfe",
        b"r={nonce}x,s=AAAA,i=" + b"9" * 5000,
        b"r={nonce}x,s=AAAA,i=300001",
        "r={nonce}x,s=AAAA,i=\u0664\u0660\u0669\u0666".encode(),
    ],
)
def test_scram_does_not_go_on_with_a_broker_that_is_none(offer: bytes) -> None:
    exchange = scram(Password("user", HUSH), "sha256")
    nonce = next(exchange).rpartition(b"r=")[2]
    with pytest.raises(LoginError, match="not one that a Kafka broker gives"):
        exchange.send(offer.replace(b"{nonce}", nonce))


def test_scram_does_not_trust_a_broker_that_does_not_know_the_password() -> None:
    exchange = scram(Password("user", "pencil"), "sha256")
    nonce = next(exchange).rpartition(b"r=")[2].decode()
    exchange.send(f"r={nonce}x,s=AAAA,i=4096".encode())
    forged = base64.b64encode(hmac.digest(b"guess", b"all", hashlib.sha256)).decode()
    with pytest.raises(LoginError, match="does not know the password itself"):
        exchange.send(f"v={forged}".encode())


def test_scram_takes_every_byte_of_the_broker_for_its_proof() -> None:
    """Bytes that are no text ended the login with an error of Python's own."""
    exchange = scram(Password("user", "pencil"), "sha256")
    nonce = next(exchange).rpartition(b"r=")[2]
    assert exchange.send(b"r=%sx,s=AAAA,i=4096,x=\xff" % nonce).startswith(b"c=biws,r=")


# -- OAUTHBEARER


_NO_TOKENS = {
    "/deep": b"[" * 100_000,
    "/long": b'{"access_token": "a", "expires_in": 1%s}' % (b"0" * 400),
    "/half": b'{"access_token": "\\ud800"}',
    "/end": b'{"access_token": "a\\u0001auth=Bearer b"}',
    "/none": b'{"access_token": ""}',
}


class Tokens(BaseHTTPRequestHandler):
    """An OAuth server that knows one client."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/elsewhere":
            return self._answer(302, b"")
        self.asked.append(body)
        right = base64.b64encode(f"me:{HUSH}".encode()).decode()
        if self.path == "/page":
            self._answer(200, b"<html>")
        elif self.path in _NO_TOKENS:
            self._answer(200, _NO_TOKENS[self.path])
        elif self.headers["Authorization"] == f"Basic {right}":
            self._answer(200, json.dumps({"access_token": f"t{len(self.asked)}", "expires_in": 3600}).encode())
        else:
            self._answer(401, b"{}")
        return None

    do_GET = do_POST  # where a redirect would lead

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/token")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Tokens.asked.clear()
    found = HTTPServer(("127.0.0.1", 0), Tokens)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    thread.join()
    found.server_close()


def test_a_token_is_asked_for_once_and_shown_at_each_login(server: str) -> None:
    login = OAuthClient(f"{server}/token", "me", HUSH, "all of it", (("pool", "p-1"),))
    for _ in range(2):
        exchange = oauthbearer(login)
        assert next(exchange) == b"n,,\x01auth=Bearer t1\x01pool=p-1\x01\x01"
        assert last(exchange, b"") is None
    assert Tokens.asked == ["grant_type=client_credentials&scope=all+of+it"]


def test_a_token_that_is_refused_is_not_shown_again(server: str) -> None:
    login = OAuthClient(f"{server}/token", "me", HUSH)
    exchange = oauthbearer(login)
    assert b"t1" in next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    assert b"t2" in next(oauthbearer(login))


def test_an_oauth_server_that_gives_no_token_is_named_with_its_reason(server: str) -> None:
    for login, reason in (
        (OAuthClient(f"{server}/token", "you", HUSH), "gives client you no token: HTTP 401 Unauthorized"),
        (OAuthClient(f"{server}/page", "me", HUSH), "does not answer with a token"),
        (OAuthClient("http://127.0.0.1:1/token", "me", HUSH), "Connection refused"),
    ):
        with pytest.raises(LoginError, match=reason) as refused:
            next(oauthbearer(login))
        assert HUSH not in str(refused.value)


@pytest.mark.parametrize("path", _NO_TOKENS)
def test_an_answer_that_holds_no_token_is_refused(path: str, server: str) -> None:
    with pytest.raises(LoginError, match="does not answer with a token"):
        next(oauthbearer(OAuthClient(f"{server}{path}", "me", HUSH)))


def test_a_redirect_is_not_followed_with_the_secret(server: str) -> None:
    with pytest.raises(LoginError, match="no token: HTTP 302"):
        next(oauthbearer(OAuthClient(f"{server}/elsewhere", "me", HUSH)))
    assert not Tokens.asked


# -- on the connection


def test_requests_wait_while_a_login_is_under_way_and_then_go_out_in_order() -> None:
    heard: list[int] = []

    async def talk(reader: Reader, writer: Writer) -> None:
        while True:
            request = await hear(reader)
            heard.append(int.from_bytes(request[:2], "big"))
            writer.write(frame(correlation_of(request), b""))

    async def test() -> None:
        async with connected(talk) as connection:
            drained: list[bool] = []
            connection.on_drain = lambda: drained.append(connection.can_write)
            before = connection.request(0, 0, False, [])
            connection.hold_requests()
            assert not connection.can_write
            later = [connection.request(key, 0, False, []) for key in (3, 1)]
            for key in (17, 36):
                await connection.request(key, 0, False, [])
            assert (heard, [answer.done() for answer in (before, *later)]) == ([0, 17, 36], [True, False, False])
            connection.release_requests()
            for answer in later:
                await answer
            assert heard == [0, 17, 36, 3, 1]
            assert drained == [True]

    run(test())


def test_requests_that_wait_for_a_login_hear_of_its_failure() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        await hear(reader)

    async def test() -> None:
        async with connected(talk) as connection:
            connection.hold_requests()
            waiting = connection.request(3, 0, False, [])
            with pytest.raises(ConnectionLost):
                await connection.request(17, 0, False, [])
            with pytest.raises(ConnectionLost):
                await waiting

    run(test())


def test_bare_tokens_are_answered_by_bare_tokens_also_by_empty_ones() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        for answer in (b"", b"ab", b"abcdef"):
            assert await hear(reader) == b"token"
            writer.write(len(answer).to_bytes(4, "big") + answer)
        assert await hear(reader) == b"the last"
        request = await hear(reader)
        writer.write(frame(correlation_of(request), b"body"))

    async def test() -> None:
        async with connected(talk) as connection:
            for expected in (b"", b"ab", b"abcdef"):
                assert bytes(await connection.send_bare(b"token", is_answered=True)) == expected
            await connection.send_bare(b"the last", is_answered=False)
            assert bytes(await connection.request(3, 0, False, [])) == b"body"

    run(test())


def test_an_empty_answer_is_a_mistake_otherwise() -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        await hear(reader)
        writer.write(bytes(4))

    async def test() -> None:
        async with connected(talk) as connection:
            with pytest.raises(ConnectionLost, match="a frame of 0 bytes"):
                await connection.request(3, 0, False, [])

    run(test())


def test_nothing_secret_is_in_what_a_connection_shows_of_itself() -> None:
    assert HUSH not in repr(Connection("a", 1, client_id="x")) + repr(Password("a", HUSH)) + repr(
        OAuthClient("u", "i", HUSH)
    )
