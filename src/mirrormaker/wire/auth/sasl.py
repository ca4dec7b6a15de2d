"""Log in to a broker with SASL, and again before the login expires."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial

from mirrormaker.errors import ConnectionLost, LoginError, LoginFailed, NoTicket, describe
from mirrormaker.kafka_errors import ILLEGAL_SASL_STATE, UNSUPPORTED_SASL_MECHANISM
from mirrormaker.wire.auth.mechanisms import SCRAM, Exchange, oauthbearer, plain, scram
from mirrormaker.wire.credentials import Kerberos, OAuthClient, Sasl
from mirrormaker.wire.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.wire.transport.threads import run_in_thread

# Sends a token; returns the broker's token and the login's lifetime in ms.
SendToken = Callable[[bytes, bool], Awaitable[tuple[bytes, float]]]

# Seconds to wait after a login that failed, at first and at most: brokers and KDCs lock accounts after many failures.
LOGIN_PAUSE, LONGEST_LOGIN_PAUSE = 1.0, 10.0
_STEP_TIMEOUT = 4.0  # seconds for a ticket or a token: libkrb5 waits half a minute for a KDC that does not answer
# A renewal begins after this share of the login's lifetime. The rest is for a request that is under way, such as a long
# poll, and for a KDC that is unavailable for a moment.
_RENEWAL_SHARE = (0.75, 0.85)
# Seconds that a login must last. Shorter ones would have to be renewed all the time, by every connection.
_SHORTEST_LIFETIME = 1.0
_LONGEST_QUEUE = 60.0  # seconds that a renewal waits behind the requests that are under way


async def authenticate(connection: Connection, sasl: Sasl, timeout: float) -> float | None:
    """Log in, and return the lifetime of the login in seconds; None if it lasts as long as the connection.

    The first token is made before anything is sent. Requests that others send in the meantime wait until the login is
    over. A login that fails ends the connection, and with it these requests.
    """
    exchange = _exchange(sasl, connection.host)
    try:
        token, is_last = await _next_token(partial(next, exchange), connection, sasl)
    except LoginFailed as error:
        raise NoTicket(str(error)) from None
    connection.hold_requests()
    try:
        send_token = await _shake_hands(connection, sasl, timeout)
        lifetime_ms = 0.0
        while token is not None:
            challenge, lifetime_ms = await send_token(token, is_last)
            if is_last:
                break
            token, is_last = await _next_token(partial(exchange.send, challenge), connection, sasl)
        lifetime = lifetime_ms / 1000 if lifetime_ms > 0 else None
        if lifetime is not None and lifetime < _SHORTEST_LIFETIME:
            reason = f"a login would last {lifetime:g} s there (connections.max.reauth.ms), which is too short"
            raise _failed(connection, sasl, reason)
    except BaseException as error:
        connection.close(_as_lost(connection, error))
        raise
    connection.release_requests()
    return lifetime


async def stay_logged_in(connection: Connection, sasl: Sasl, lifetime: float, request_timeout: float) -> None:
    """Log in again on the same connection, each time before the login expires (KIP-368), until the connection ends."""
    renewed: float | None = lifetime
    while renewed is not None:
        expires = time.monotonic() + renewed
        await asyncio.sleep(renewed * random.uniform(*_RENEWAL_SHARE))
        renewed = await _log_in_again(connection, sasl, expires, max(_LONGEST_QUEUE, request_timeout))


async def _log_in_again(connection: Connection, sasl: Sasl, expires: float, timeout: float) -> float | None:
    """Replace a login, and return the new one's lifetime; None if it lasts, or if the connection has ended.

    A login that fails ends the connection, whatever the reason: nobody else would notice that requests are held back.
    Without a Kerberos ticket nothing is sent and the login in use stays valid: try again until it expires.
    """
    failures = 0
    while connection.is_open:
        try:
            # The broker answers the requests before this one first: a long poll, or a JoinGroup that waits for others.
            return await authenticate(connection, sasl, timeout)
        except NoTicket as error:
            if time.monotonic() > expires:
                connection.close(error)
            pause, failures = min(LONGEST_LOGIN_PAUSE, LOGIN_PAUSE * 2**failures), failures + 1
            await asyncio.sleep(min(pause, max(0.1, expires - time.monotonic() + 0.1)))
        except Exception as error:
            connection.close(_as_lost(connection, error))
    return None


def _as_lost(connection: Connection, error: BaseException) -> ConnectionLost:
    return error if isinstance(error, ConnectionLost) else ConnectionLost(f"{connection}: no login: {describe(error)}")


def _exchange(sasl: Sasl, host: str) -> Exchange:
    login = sasl.login
    if isinstance(login, Kerberos):
        from mirrormaker.wire.auth.kerberos import gssapi_exchange  # an optional extra

        return gssapi_exchange(login, host)
    if isinstance(login, OAuthClient):
        return oauthbearer(login)
    return scram(login, SCRAM[sasl.mechanism]) if sasl.mechanism in SCRAM else plain(login)


async def _next_token(advance: Callable[[], bytes], connection: Connection, sasl: Sasl) -> tuple[bytes | None, bool]:
    """Return the mechanism's next token, and True if it is the last one."""

    def step() -> tuple[bytes | None, bool]:
        try:
            return advance(), False
        except StopIteration as end:
            return end.value, True

    try:
        async with asyncio.timeout(_STEP_TIMEOUT):
            return await run_in_thread(step)
    except LoginError as error:
        raise _failed(connection, sasl, str(error)) from None
    except TimeoutError:
        server = "no KDC" if isinstance(sasl.login, Kerberos) else "no server"
        raise _failed(connection, sasl, f"{server} answers within {_STEP_TIMEOUT:g} s") from None
    except Exception as error:
        # The error's own text may hold a secret.
        raise _failed(connection, sasl, f"the login failed ({type(error).__name__})") from None


async def _shake_hands(connection: Connection, sasl: Sasl, timeout: float) -> SendToken:
    """Agree on the mechanism, and return the way in which this broker exchanges tokens."""
    send_token = partial(_send_token, connection, sasl, timeout)
    send_bare_token = partial(_send_bare_token, connection, sasl, timeout)
    if SaslHandshakeRequest.API_KEY not in connection.versions:
        # Kafka 0.9 has no SaslHandshake, and no mechanism other than GSSAPI.
        if isinstance(sasl.login, Kerberos):
            return send_bare_token
        raise _failed(connection, sasl, f"it is too old for sasl.mechanism={sasl.mechanism}")
    answer = await connection.ask(SaslHandshakeRequest(mechanism=sasl.mechanism), timeout)
    if answer.error_code == UNSUPPORTED_SASL_MECHANISM:
        offers = ", ".join(answer.mechanisms) or "none"
        text = f"sasl.mechanism={sasl.mechanism} is not enabled there; it offers {offers}"
        raise _failed(connection, sasl, text)
    if answer.error_code == ILLEGAL_SASL_STATE:
        text = "this port takes no logins: set security.protocol to PLAINTEXT or SSL, or use a port that speaks SASL"
        raise _failed(connection, sasl, text)
    if answer.error_code:
        raise _failed(connection, sasl, f"error {answer.error_code}")
    return send_token if connection.best_version(SaslHandshakeRequest) >= 1 else send_bare_token


async def _send_token(
    connection: Connection, sasl: Sasl, timeout: float, token: bytes, is_last: bool
) -> tuple[bytes, float]:
    """Send a token as a SaslAuthenticate request (Kafka 1.0 and later)."""
    answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=token), timeout)
    if answer.error_code:
        reason = answer.error_message or f"error {answer.error_code}"
        raise _failed(connection, sasl, f"it refuses {sasl.login}: {reason}")
    return bytes(answer.auth_bytes or b""), float(answer.session_lifetime_ms or 0)


async def _send_bare_token(
    connection: Connection, sasl: Sasl, timeout: float, token: bytes, is_last: bool
) -> tuple[bytes, float]:
    """Send a token without a request around it (before Kafka 1.0); a broker that refuses it hangs up."""
    answer = connection.send_bare(token, is_answered=not is_last)
    try:
        async with asyncio.timeout(timeout):
            return bytes(await answer), 0.0
    except ConnectionLost:
        text = f"it hung up on {sasl.login}: brokers before 1.0 do not say why, but log it"
        raise _failed(connection, sasl, text) from None
    except TimeoutError:
        raise _failed(connection, sasl, f"no answer within {timeout:g} s") from None


def _failed(connection: Connection, sasl: Sasl, text: str) -> LoginFailed:
    return LoginFailed(f"{connection}: {text}{f' ({sasl.where})' if sasl.where else ''}")
