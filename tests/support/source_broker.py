"""A source broker whose answers a test scripts, for the tests of fetchers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from kafka.protocol.consumer import FetchRequest

from mirrormaker.model.position import Cut
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.fetch import FetchedPartition
from mirrormaker.wire.transport.connection import Part
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetcher import Fetcher
from mirrormaker.worker.stream import Stream
from tests.support.answers import NONE_ABORTED, FetchAnswer, encode_fetch_answer
from tests.support.batches import Record, write_batch
from tests.support.worker_stage import NOW, START, TASK

TOPIC_ID = b"i" * 16
NOTHING = memoryview(b"")


@dataclass(frozen=True)
class Request:
    """A fetch request: what it asks for, by topic name or id and partition."""

    size: int  # bytes
    version: int
    session: tuple[int, int]
    offsets: dict[tuple[str | bytes, int], int]
    forgotten: set[tuple[str | bytes, int]]
    max_wait_ms: int
    max_bytes: int


def records(offset: int, count: int = 5) -> memoryview:
    """Return one batch of records."""
    return memoryview(bytearray(write_batch([Record(NOW, None, b"v")] * count, base_offset=offset).data))


def row(
    partition: int = 0, data: memoryview = NOTHING, *, high_watermark: int = 200, error: int = 0
) -> FetchedPartition:
    """Return one partition of an answer."""
    return FetchedPartition("", partition, error, high_watermark, high_watermark, 0, NONE_ABORTED, None, data)


class SourceConnection:
    """A connection to the broker, which keeps the last request until the test answers it."""

    def __init__(self, broker: SourceBroker) -> None:
        self.is_open = self.is_quiet = True
        self.versions = {1: (0, broker.version)}
        self.bytes_in = 0
        self.last_transfer = self.round_trip = 0.0
        self._broker = broker
        self._answer: asyncio.Future[memoryview] | None = None

    def __repr__(self) -> str:
        return "source:1"

    def close(self, error: Exception) -> None:
        """Close the connection, and with an error the request under way."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def request(self, key: int, version: int, flexible: bool, parts: list[Part]) -> asyncio.Future[memoryview]:
        """Keep a request."""
        assert self._answer is None or self._answer.done(), "there is one request at a time"
        body = b"".join(map(bytes, parts))
        self._broker.requests.append(_decoded(body, version))
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def answer(self, body: bytes) -> None:
        """Answer the request."""
        assert self._answer is not None
        self.bytes_in += len(body)
        self._answer.set_result(memoryview(bytearray(body)))


class SourceBroker:
    """Broker 1 of the source. Each answer and each lost connection is the test's."""

    def __init__(self, stream: Stream, version: int = 12, topic_id: bytes = bytes(16), partitions: int = 1) -> None:
        """Lead so many partitions of topic `t`."""
        self.version = version
        self.requests: list[Request] = []
        self.connections: list[SourceConnection] = []
        self.refreshed: list[set[str]] = []
        self.stream = stream
        stream.source.topics = {"t": Topic("t", topic_id, False, {p: Partition(1, 0, 1) for p in range(partitions)})}
        stream.source.brokers = {1: ("source", 1)}

        async def connection(node: int, purpose: str) -> SourceConnection:
            self.connections.append(SourceConnection(self))
            return self.connections[-1]

        async def refresh(topics: Iterable[str]) -> None:
            self.refreshed.append(set(topics))

        stream.source.connection = connection  # type: ignore[method-assign, assignment]
        self._refresh = refresh

    def fetcher(self, **settings: Any) -> Fetcher:
        """Return a fetcher of this broker."""
        defaults: dict[str, Any] = {
            "fetch_max_wait_ms": 500, "fetch_max_bytes": 1 << 20, "partition_fetch_bytes": 1 << 20,
        }  # fmt: skip
        buffer = self.stream.buffer
        return Fetcher(
            1,
            self.stream.source,
            replace(TASK, **(defaults | settings)),
            buffer,
            room_to_fetch=lambda: buffer.room_for_poll(1),
            refresh=self._refresh,
        )

    def cursor(self, partition: int = 0, topic_id: str = "") -> Cursor:
        """Return a cursor at offset 100 that wants records."""
        position = replace(START, partition=partition, topic_id=topic_id, cuts=(Cut(partition, 20, 1000),))
        cursor = Cursor(self.stream, position, clean=True)
        cursor.flowing = True
        return cursor

    async def asked(self, count: int) -> Request:
        """Wait for the request of this number, and return it."""
        while len(self.requests) < count:
            await asyncio.sleep(0.001)
        assert len(self.requests) == count
        return self.requests[-1]

    def answer(self, *rows: FetchedPartition, error: int = 0, session: int = 0, topic_id: bytes = TOPIC_ID) -> None:
        """Answer the last request."""
        answer = FetchAnswer(error, [("t", topic_id, list(rows))] if rows else [], None, [], session)
        self.connections[-1].answer(encode_fetch_answer(self.requests[-1].version, answer))


def _decoded(body: bytes, version: int) -> Request:
    found = FetchRequest.decode(body, version=version)

    def name(topic: Any) -> str | bytes:
        if version < 13:
            return str(topic.topic)
        assert isinstance(topic.topic_id, uuid.UUID)
        return topic.topic_id.bytes

    return Request(
        len(body),
        version,
        (found.session_id, found.session_epoch) if version >= 7 else (0, -1),
        {(name(t), p.partition): p.fetch_offset for t in found.topics for p in t.partitions},
        {(name(t), p) for t in (found.forgotten_topics_data if version >= 7 else ()) for p in t.partitions},
        found.max_wait_ms,
        found.max_bytes if version >= 3 else 0,
    )


def play_source(scene: Callable[[Stream], Any], within: float = 20) -> None:
    """Run a scene with a stream that has nothing but its source, for at most so many seconds."""

    async def whole() -> None:
        stream = Stream(TASK, 0, 0)
        await asyncio.wait_for(scene(stream), within)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    asyncio.run(whole())
