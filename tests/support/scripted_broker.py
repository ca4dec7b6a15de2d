"""A broker in this process that answers each request as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import uuid
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.credentials import PLAINTEXT, Security
from mirrormaker.wire.protocol import fetch, messages, produce
from tests.support.peer import serving

# An answer: one of kafka-python's responses, its bytes, or a function that makes either of the version and the request's body.
Answer = Any
API_VERSIONS, METADATA, PRODUCE, FETCH = 18, 3, produce.API_KEY, fetch.API_KEY
SILENT = object()  # in place of an answer: none comes
_REQUESTS = {
    request.API_KEY: request
    for request in (getattr(messages, name) for name in messages.__all__ if name.endswith("Request"))
}
_HEADER = struct.Struct(">hhi")  # API key, API version, correlation id


class ScriptedBroker:
    """Answers ApiVersions by itself and the other requests from `answers`; hangs up on a request without an answer."""

    def __init__(self, answers: Mapping[int, Answer], versions: Mapping[int, int] | None = None) -> None:
        """`answers` are by API key; `versions` limits the newest version of some requests, or adds them."""
        self.answers, self.versions = dict(answers), dict(versions or {})
        self.heard: list[tuple[int, int]] = []  # API key and version of each request
        self.port = 0
        self.patience = 5.0  # seconds that the cluster waits for an answer

    @contextlib.asynccontextmanager
    async def running(self, security: Security = PLAINTEXT) -> AsyncIterator[Cluster]:
        """Listen on a free port, and yield a cluster whose only bootstrap server this is."""
        async with serving(self.talk) as self.port:
            cluster = Cluster(Endpoint((("127.0.0.1", self.port),), security=security, request_timeout=self.patience))
            try:
                yield cluster
            finally:
                cluster.close()
                await asyncio.sleep(0)

    async def talk(self, reader: Reader, writer: Writer) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                key, version, correlation = _HEADER.unpack_from(request)
                self.heard.append((key, version))
                answer = self._versions() if key == API_VERSIONS and key not in self.answers else self.answers.get(key)
                if callable(answer) and not hasattr(answer, "encode"):
                    answer = answer(version, body_of(request, key, version))
                if answer is None:
                    return
                if answer is SILENT:
                    continue
                body = bytes(answer if isinstance(answer, bytes) else answer.encode(version=version))
                header = b"\0" if is_flexible(key, version) and key != API_VERSIONS else b""
                writer.write(struct.pack(">ii", 4 + len(header) + len(body), correlation) + header + body)

    def _versions(self) -> ApiVersionsResponse:
        row = ApiVersionsResponse.ApiVersion
        newest = {PRODUCE: produce.VERSIONS[1], FETCH: fetch.VERSIONS[1]}
        newest |= {key: request.max_version for key, request in _REQUESTS.items() if key not in newest}
        newest |= self.versions
        rows = [row(api_key=key, min_version=0, max_version=version) for key, version in newest.items()]
        return ApiVersionsResponse(error_code=0, api_keys=rows)


def is_flexible(key: int, version: int) -> bool:
    """Return True if this version of a request uses varint lengths and tagged fields."""
    if key == PRODUCE:
        return produce.is_flexible(version)
    if key == FETCH:
        return fetch.is_flexible(version)
    # The requests that kafka-python does not know are new ones.
    return key not in _REQUESTS or bool(_REQUESTS[key].flexible_version_q(version))


def body_of(request: bytes, key: int, version: int) -> bytes:
    """Return a request without its header."""
    (size,) = struct.unpack_from(">h", request, _HEADER.size)
    return request[_HEADER.size + 2 + max(0, size) + is_flexible(key, version) :]


def metadata(
    brokers: Mapping[int, int],
    topics: Mapping[str, int | list[int]],
    *,
    topic_id: int | None = None,
    cluster: str = "a-cluster",
) -> MetadataResponse:
    """Return the metadata of brokers (ports by node id) and topics (a number of partitions, or the numbers that they have)."""
    row, topic = MetadataResponse.MetadataResponseBroker, MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    leader = min(brokers, default=-1)
    return MetadataResponse(
        throttle_time_ms=0,
        cluster_id=cluster,
        controller_id=leader,
        brokers=[row(node_id=node, host="127.0.0.1", port=port, rack=None) for node, port in brokers.items()],
        topics=[
            topic(
                error_code=0,
                name=name,
                topic_id=None if topic_id is None else uuid.UUID(int=topic_id),
                is_internal=False,
                partitions=[
                    partition(
                        error_code=0,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=0,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                        offline_replicas=[],
                    )
                    for number in (range(numbers) if isinstance(numbers, int) else numbers)
                ],
            )
            for name, numbers in topics.items()
        ],
    )
