"""Logins: tokens of brokers for each SASL mechanism, and the answers of an OAuth server, damaged on their way.

Brokers' tokens for SCRAM are recorded. Those for GSSAPI fit one login only, so a KDC and the broker's side of GSSAPI run here;
without them there is no such case.
"""

from __future__ import annotations

import atexit
import functools
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple

from fuzz.conversations import PASSWORD, USER
from fuzz.mutations import mutate
from fuzz.recording import Recorded, known_nonce
from fuzz.runner import Attempt, Case
from mirrormaker.embedded import kdc
from mirrormaker.errors import LoginError
from mirrormaker.wire.auth import mechanisms
from mirrormaker.wire.auth.kerberos import gssapi_exchange, gssapi_library
from mirrormaker.wire.auth.mechanisms import Exchange, oauthbearer, scram
from mirrormaker.wire.credentials import Kerberos, OAuthClient, Password
from mirrormaker.wire.protocol import messages

_SERVICE = "kafka"
_REFUSAL = b'{"status":"invalid_token"}'  # Kafka's own, for OAUTHBEARER
_SCRAM_ANSWERS = (
    b"r=%s,s=QSXCR+Q6sek8bf92,i=4096" % (b"a-nonce-that-is-always-the-same" * 2),
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    b"e=other-error",
)
_TOKEN = b'{"access_token": "2YotnFZFEjr1zCsicMWpAA", "token_type": "Bearer", "expires_in": 3600, "scope": "all"}'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json;charset=UTF-8\r\nCache-Control: no-store\r\n"
_HTTP_ANSWERS = (
    _HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(_TOKEN) + _TOKEN,
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(_TOKEN) + _TOKEN + b"\r\n0\r\n\r\n",
    b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 26\r\n\r\n{"error":"invalid_client"}',
    b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + _HEAD + b"\r\n" + _TOKEN,
)
# What only a text can hold.
_TEXTS = (
    b"9" * 5000,
    b"-1",
    b"NaN",
    b"1e999",
    "\u0663".encode(),
    b"=",
    b",",
    b"[" * 100_000,
    b'"',
    b"\r\n",
    b"\xff",
    b"",
)


def cases(recorded: Sequence[Recorded]) -> list[Case]:
    """Return a case for each mechanism, and one for the OAuth server."""
    tokens = [*_recorded_tokens(recorded), *_SCRAM_ANSWERS]
    found = [
        Case("login-scram", partial(_scram_attempt, tokens)),
        Case("login-oauthbearer", _oauthbearer_attempt),
        Case("login-token-endpoint", _endpoint_attempt),
    ]
    with suppress(LoginError):
        gssapi_library()
        if not kdc.missing():
            found.append(Case("login-gssapi", _gssapi_attempt))
    return found


def _damaged(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """Return a damaged copy: as bytes, or as a text one field of which is another."""
    if dice.random() < 0.5:
        return mutate(data, dice, others)
    start = dice.randrange(len(data) + 1)
    return data[:start] + dice.choice(_TEXTS) + data[dice.randrange(start, len(data) + 1) :]


def _finish(exchange: Exchange, answers: Sequence[bytes]) -> None:
    """Give a mechanism the broker's answers, the last one again and again."""
    with suppress(StopIteration):
        next(exchange)
        for number in range(10):
            exchange.send(answers[min(number, len(answers) - 1)])
        raise AssertionError("the login goes on for ever")


# -- SCRAM and OAUTHBEARER


def _recorded_tokens(recorded: Sequence[Recorded]) -> Iterator[bytes]:
    for row in recorded:
        if row.conversation.startswith("login-scram") and row.api_key == messages.SaslAuthenticateRequest.API_KEY:
            answer = messages.decode_response(messages.SaslAuthenticateRequest, row.answer, row.version)
            yield bytes(answer.auth_bytes)


def _scram_attempt(tokens: Sequence[bytes], dice: Random) -> Attempt:
    pair = [dice.choice(tokens) for _ in range(2)] if dice.random() < 0.1 else list(tokens[:2])
    number = dice.randrange(2)
    pair[number] = _damaged(pair[number], dice, tokens)
    digest = dice.choice(list(mechanisms.SCRAM.values()))

    def run() -> None:
        with known_nonce():
            _finish(scram(Password(USER, PASSWORD), digest), pair)

    return Attempt(pair[number], run)


def _oauthbearer_attempt(dice: Random) -> Attempt:
    damaged = _damaged(_REFUSAL, dice, _SCRAM_ANSWERS)

    def run() -> None:
        with _answering(_HTTP_ANSWERS[0]) as url:
            _finish(oauthbearer(OAuthClient(url, "me", "secret")), [damaged])

    return Attempt(damaged, run)


def _endpoint_attempt(dice: Random) -> Attempt:
    damaged = _damaged(dice.choice(_HTTP_ANSWERS), dice, _HTTP_ANSWERS)

    def run() -> None:
        with _answering(damaged) as url:
            _finish(oauthbearer(OAuthClient(url, "me", "secret")), [b""])

    return Attempt(damaged, run)


@contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """Answer one HTTP request with these bytes, and hang up. The next login needs a token again."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listening.accept()[0] as talking:
            heard = b""
            while b"grant_type" not in heard and (part := talking.recv(1 << 16)):
                heard += part
            talking.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/token"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()
        mechanisms._tokens.clear()


# -- GSSAPI


class _Realm(NamedTuple):
    """A login at a KDC that runs, and a function that makes the broker's side of a login."""

    login: Kerberos
    accept: Callable[[], Any]


@functools.cache
def _realm() -> _Realm:
    realm = kdc.Kdc().start()
    atexit.register(realm.stop)
    keytab = realm.add("reader")
    service = realm.add(f"{_SERVICE}/localhost")
    login = Kerberos(
        _SERVICE, f"reader@{realm.realm}", keytab.read_bytes(), "", str(realm.config), realm.config.read_bytes()
    )
    library = gssapi_library()

    def accept() -> Any:
        credentials = library.Credentials(usage="accept", store={"keytab": f"FILE:{service}", "rcache": "none:"})
        return library.SecurityContext(creds=credentials, usage="accept")

    return _Realm(login, accept)


def _gssapi_attempt(dice: Random) -> Attempt:
    """Log in as far as the token that is damaged. The rest is the attempt."""
    realm = _realm()
    exchange = gssapi_exchange(realm.login, "localhost")
    broker = realm.accept()
    whole = [token := broker.step(next(exchange))]
    if dice.random() < 0.5:
        exchange.send(token)
        whole.append(broker.wrap(b"\x01\x00\x00\x00", False).message)
    damaged = mutate(whole[-1], dice, whole)

    def run() -> None:
        with suppress(StopIteration):
            for _ in range(10):
                exchange.send(damaged)
            raise AssertionError("the login goes on for ever")

    return Attempt(damaged, run)
