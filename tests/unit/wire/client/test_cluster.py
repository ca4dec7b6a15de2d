"""A cluster whose brokers hang up, or send answers that cannot be decoded."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from mirrormaker.errors import BadFrame, ConnectionLost, HungUp
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.credentials import PLAINTEXT, Password, Sasl, Security
from tests.support.peer import Talk, correlation_of, frame, hear, run, serving

_API_VERSIONS, _METADATA = 18, 3
_KNOWN = [
    ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=1) for key in (_API_VERSIONS, _METADATA)
]
_HINT = "if it asks for a login, security.protocol must be SASL_PLAINTEXT or SASL_SSL"


async def _answer_versions(reader: Reader, writer: Writer) -> bytes:
    """Answer ApiVersions, and return the next request."""
    answer = ApiVersionsResponse(error_code=0, api_keys=_KNOWN).encode(version=0)
    writer.write(frame(correlation_of(await hear(reader)), answer))
    return await hear(reader)


async def hangs_up(reader: Reader, writer: Writer) -> None:
    """Hang up on the first request after ApiVersions, as a broker does that requires a login."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        await _answer_versions(reader, writer)


async def talks_nonsense(reader: Reader, writer: Writer) -> None:
    """Answer Metadata with an array of two billion brokers."""
    request = await _answer_versions(reader, writer)
    writer.write(frame(correlation_of(request), struct.pack(">i", 0x7FFFFFFF)))
    await reader.read()


async def refreshed(talk: Talk, security: Security = PLAINTEXT, *, is_known: bool = False) -> None:
    """Read the metadata of a cluster with one broker; `is_known`: it was read before."""
    async with serving(talk) as port:
        cluster = Cluster(Endpoint((("127.0.0.1", port),), security=security))
        if is_known:
            cluster.brokers = {1: ("127.0.0.1", port)}
        try:
            await cluster.refresh()
        finally:
            cluster.close()
            await asyncio.sleep(0.01)


def test_a_broker_that_hangs_up_on_the_first_request_may_want_a_login() -> None:
    with pytest.raises(ConnectionLost, match=f"closed the connection; {_HINT}"):
        run(refreshed(hangs_up))


def test_a_client_that_has_logged_in_gets_no_hint_at_a_login() -> None:
    login = Security("SASL_PLAINTEXT", sasl=Sasl("PLAIN", Password("me", "hush")))
    with pytest.raises(ConnectionLost) as error:
        run(refreshed(hangs_up, login))
    assert _HINT not in str(error.value)


def test_a_broker_that_answered_before_and_hangs_up_is_an_ordinary_outage() -> None:
    with pytest.raises(HungUp) as error:
        run(refreshed(hangs_up, is_known=True))
    assert _HINT not in str(error.value)


def test_an_answer_that_cannot_be_decoded_names_the_broker_and_the_request() -> None:
    with pytest.raises(
        BadFrame, match=r"127\.0\.0\.1:\d+: the answer to MetadataRequest \(version 1\) cannot be decoded"
    ):
        run(refreshed(talks_nonsense))
