"""Logging in at a broker, and again before the login runs out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from mirrormaker.errors import ConnectionLost, LoginError, LoginFailed, NoTicket
from mirrormaker.wire.auth.mechanisms import SCRAM, Exchange, oauthbearer, plain, scram
from mirrormaker.wire.credentials import Client, Kerberos, Sasl
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.wire.transport.threads import run_in_thread

_STEP = 4.0  # seconds for a ticket or a token: a KDC that does not answer would take libkrb5 half a minute
_NOT_ENABLED, _NO_SASL_HERE = 33, 34


async def authenticate(connection: Connection, sasl: Sasl, timeout: float) -> float | None:
    """Log in. The result is for how many seconds that counts; None: for as long as the connection lasts.

    The first token is made before anything is sent, and requests that others send meanwhile wait until it is over.
    """
    exchange = _exchange(sasl, connection.host)
    try:
        token, is_last = await _step(partial(next, exchange), connection, sasl)
    except LoginFailed as error:
        raise NoTicket(str(error)) from None
    connection.hold()
    try:
        say = await _shake_hands(connection, sasl, timeout)
        lifetime = 0.0
        while token is not None:
            challenge, lifetime = await say(token, is_last)
            if is_last:
                break
            token, is_last = await _step(partial(exchange.send, challenge), connection, sasl)
    except BaseException as error:
        connection.close(error if isinstance(error, ConnectionLost) else None)
        raise
    connection.go_on()
    return lifetime / 1000 or None


def _exchange(sasl: Sasl, host: str) -> Exchange:
    login = sasl.login
    if isinstance(login, Kerberos):
        from mirrormaker.wire.auth.kerberos import gssapi_exchange  # an optional extra

        return gssapi_exchange(login, host)
    if isinstance(login, Client):
        return oauthbearer(login)
    return scram(login, SCRAM[sasl.mechanism]) if sasl.mechanism in SCRAM else plain(login)


async def _step(advance: Callable[[], bytes], connection: Connection, sasl: Sasl) -> tuple[bytes | None, bool]:
    """The next token, and whether it is the last."""

    def body() -> tuple[bytes | None, bool]:
        try:
            return advance(), False
        except StopIteration as end:
            return end.value, True

    try:
        return await asyncio.wait_for(run_in_thread(body), _STEP)
    except LoginError as error:
        raise LoginFailed(_told(connection, sasl, str(error))) from None
    except (TimeoutError, asyncio.TimeoutError):
        whom = "no KDC" if isinstance(sasl.login, Kerberos) else "nobody"
        raise LoginFailed(_told(connection, sasl, f"{whom} answers within {_STEP:g} s")) from None
    except Exception as error:  # its words may hold what must not be shown
        raise LoginFailed(_told(connection, sasl, f"the login failed ({type(error).__name__})")) from None


Say = Callable[[bytes, bool], Awaitable[tuple[bytes, float]]]


async def _shake_hands(connection: Connection, sasl: Sasl, timeout: float) -> Say:
    """Agree on the mechanism; the result is how tokens are exchanged from then on, which has changed over the years."""
    say = partial(_say, connection, sasl, timeout)
    say_raw = partial(_say_raw, connection, sasl, timeout)
    if SaslHandshakeRequest.API_KEY not in connection.versions:
        if isinstance(sasl.login, Kerberos):
            return say_raw  # 0.9 has no handshake, since it has no other mechanism
        raise LoginFailed(_told(connection, sasl, f"it is too old for sasl.mechanism={sasl.mechanism}"))
    answer = await connection.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), timeout)
    if answer.error_code == _NOT_ENABLED:
        offers = ", ".join(answer.mechanisms) or "none"
        said = f"sasl.mechanism={sasl.mechanism} is not enabled there; it offers {offers}"
        raise LoginFailed(_told(connection, sasl, said))
    if answer.error_code == _NO_SASL_HERE:
        said = "nobody logs in at this port: write security.protocol=PLAINTEXT (or SSL), or name the port for SASL"
        raise LoginFailed(_told(connection, sasl, said))
    if answer.error_code:
        raise LoginFailed(_told(connection, sasl, f"error {answer.error_code}"))
    return say if connection.best_version(SaslHandshakeRequest) >= 1 else say_raw


async def _say(connection: Connection, sasl: Sasl, timeout: float, token: bytes, is_last: bool) -> tuple[bytes, float]:
    """As requests, since 1.0."""
    answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=token), timeout)
    if answer.error_code:
        said = answer.error_message or f"error {answer.error_code}"
        raise LoginFailed(_told(connection, sasl, f"it refuses {sasl.login}: {said}"))
    return bytes(answer.auth_bytes or b""), float(answer.session_lifetime_ms or 0)


async def _say_raw(
    connection: Connection, sasl: Sasl, timeout: float, token: bytes, is_last: bool
) -> tuple[bytes, float]:
    """As bare tokens, before 1.0: a broker that refuses hangs up without a word."""
    answer = connection.send_bare(token, is_answered=not is_last)
    try:
        return bytes(await asyncio.wait_for(answer, timeout)), 0.0
    except ConnectionLost:
        said = f"it hung up on {sasl.login}: brokers before 1.0 do not say why, but log it"
        raise LoginFailed(_told(connection, sasl, said)) from None
    except (TimeoutError, asyncio.TimeoutError):
        raise LoginFailed(_told(connection, sasl, f"no answer within {timeout:g} s")) from None


def _told(connection: Connection, sasl: Sasl, said: str) -> str:
    return f"{connection}: {said}{f' ({sasl.where})' if sasl.where else ''}"
