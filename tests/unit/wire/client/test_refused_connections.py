"""Connections that a broker refuses with an error code, at the first request or at the login: every code is an outage."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from mirrormaker.errors import ConnectionLost, LoginFailed
from mirrormaker.kafka_errors import CODES
from mirrormaker.wire.credentials import PLAINTEXT, Password, Sasl, Security
from mirrormaker.wire.protocol.messages import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.peer import run
from tests.support.scripted_broker import Answer, ScriptedBroker, metadata

_LOGIN = Security("SASL_PLAINTEXT", sasl=Sasl("PLAIN", Password("me", "hush")))
_CODES = (*CODES, 9999)


def _versions(code: int) -> Answer:
    return struct.pack(">hi", code, 0)


def _handshake(code: int) -> Answer:
    return SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN"])


def _login(code: int) -> Answer:
    return SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"", session_lifetime_ms=0)


@pytest.mark.parametrize(
    "key, answer, security, kind",
    [
        (ApiVersionsRequest.API_KEY, _versions, PLAINTEXT, ConnectionLost),
        (ApiVersionsRequest.API_KEY, _versions, _LOGIN, ConnectionLost),
        (SaslHandshakeRequest.API_KEY, _handshake, _LOGIN, LoginFailed),
        (SaslAuthenticateRequest.API_KEY, _login, _LOGIN, LoginFailed),
    ],
    ids=["versions", "versions before a login", "handshake", "login"],
)
def test_every_code_is_an_outage_that_ends_with_the_code(
    key: int, answer: Callable[[int], Answer], security: Security, kind: type[Exception]
) -> None:
    async def refuse(code: int) -> None:
        broker = ScriptedBroker(
            {SaslHandshakeRequest.API_KEY: _handshake(0), SaslAuthenticateRequest.API_KEY: _login(0)}
        )
        async with broker.running(security) as cluster:
            allowed = broker.answers.pop(key, None)
            broker.answers[key] = answer(code)
            broker.answers[3] = metadata({1: broker.port}, {"orders": 1})
            with pytest.raises(kind) as error:
                await cluster.refresh()
            assert f"127.0.0.1:{broker.port}" in str(error.value)
            if code != CODES[33].code:
                return
            broker.answers.pop(key)
            if allowed is not None:
                broker.answers[key] = allowed
            await cluster.refresh()
            assert "orders" in cluster.topics

    for code in _CODES:
        run(refuse(code))
