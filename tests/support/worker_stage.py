"""A stream whose target brokers are simulated by the test, for the tests of cursors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from mirrormaker.errors import UnsupportedRequest
from mirrormaker.model.numbers import Channel, LoggedBatch
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.produce import Appended
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.transport.connection import Answered, Part
from mirrormaker.worker import intake as intake_module
from mirrormaker.worker import resume as resume_module
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetcher import Fetcher
from mirrormaker.worker.outlet import RecordDigest
from mirrormaker.worker.resume import read_back as _read_back
from mirrormaker.worker.resume import read_last as _read_last
from mirrormaker.worker.stream import Stream
from mirrormaker.worker.stream_task import StreamTask
from tests.support.answers import ProduceAnswer, encode_produce_answer
from tests.support.batches import Record, write_batch
from tests.support.scripted_target import ScriptedLog, ScriptedTarget

US = Identity(7, 0)
VERSION = 12  # the newest produce request that has topics by name
START = Position(
    topic="t",
    partition=0,
    offset=100,
    leader_epoch=0,
    topic_id="",
    identity=US,
    target_cluster="target",
    target_topic_id="",
    target_partitions=1,
    cuts=(Cut(0, 20, 1000),),
)
NOW = int(time.time() * 1000)
NOWHERE = Endpoint((("nowhere", 1),))
TASK = StreamTask(
    flow=0, job=0, control=("", 0), secret=b"", source=NOWHERE, target=NOWHERE, read_committed=False, acks=-1,
    max_in_flight=5, connections=1, buffer_bytes=1 << 20, buffer_messages=None, max_request_bytes=1 << 20,
    fetch_max_wait_ms=1, fetch_min_bytes=1, fetch_max_bytes=1, partition_fetch_bytes=1,
    identity_expiration_ms=86_400_000, batch_bytes=1 << 19, linger=0, codec=None, partition_by=None, handler=None,
)  # fmt: skip


def batches(*counts: int, offset: int = 100) -> list[Batches | memoryview]:
    """Return batches with these numbers of records, as a fetch brings them."""
    data = bytearray()
    for count in counts:
        data += write_batch([Record(NOW, None, b"value")] * count, base_offset=offset).data
        offset += count
    return list(split(memoryview(data)))


class Wire:
    """A connection to one target broker. It keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.is_open = self.can_write = True
        self.versions = {0: (0, VERSION)}
        self.on_drain: Callable[[], None] | None = None
        self.error: Exception | None = None
        self.waiting: list[tuple[Batch, Answered]] = []

    def send(self, key: int, version: int, flexible: bool, parts: list[Part], answered: Answered) -> None:
        """Keep a Produce request of one batch."""
        (batch,) = (part for part in parts if isinstance(part, memoryview))
        self.waiting.append((Batch(batch), answered))

    def close(self, *, abort: bool = False) -> None:
        """Close the connection."""
        self.is_open = False

    def answer(self, error: int = 0, base_offset: int = -1) -> Batch:
        """Answer the oldest request and return its batch."""
        batch, answered = self.waiting.pop(0)
        body = encode_produce_answer(
            VERSION, ProduceAnswer([("t", bytes(16), [Appended("", 0, error, base_offset, None)])], [], None, [])
        )
        answered(memoryview(body), None)
        return batch

    def numbers(self) -> list[int]:
        """Return the base sequence numbers of the batches that wait for an answer."""
        return [batch.base_sequence for batch, _ in self.waiting]


class Stage:
    """A stream, and the target that the test simulates: its leader, its answers and its log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = Stream(TASK, 0, 0)
        self.wires = {1: Wire(), 2: Wire()}
        self.log: list[LoggedBatch] = []  # our batches in the target's log
        self.reads = 0
        self.stream.target.brokers = {1: ("a", 1), 2: ("b", 1)}
        self.lead(1)

        async def connection(node: int, lane: str = "control") -> Wire:
            return self.wires[node]

        async def refresh(topics: object = None) -> None:
            return None

        async def read_back(
            target: object, topic: str, channel: Channel, again: object = None, **_: bool
        ) -> tuple[int, RecordDigest | None]:
            self.reads += 1
            return channel.resume([seen for seen in self.log if seen.last_offset >= channel.offset]), None

        async def ask(request: object, node: int | None = None) -> None:
            raise UnsupportedRequest("this target has no settings")

        monkeypatch.setattr(self.stream.target, "connection", connection)
        monkeypatch.setattr(self.stream.target, "refresh", refresh)
        monkeypatch.setattr(self.stream.target, "ask", ask)
        monkeypatch.setattr(self.stream, "fetch", lambda cursor: None)

        async def read_last(target: object, topic: str, cut: Cut) -> RecordDigest | None:
            return None

        # On a busy machine a small fetch may take longer than a turn: tests that are not about that never wait for it.
        monkeypatch.setattr(intake_module, "_MAX_TURN", 1000.0)
        monkeypatch.setattr(resume_module, "read_back", read_back)
        monkeypatch.setattr(resume_module, "read_last", read_last)

    def lead(self, node: int, topic_id: bytes = bytes(16)) -> None:
        """Make a broker the leader of the partition."""
        self.stream.target.topics = {"t": Topic("t", topic_id, False, {0: Partition(node, 0, 1)})}

    def take(self, position: Position = START, *, clean: bool = True) -> Cursor:
        """Start a cursor at a position."""
        cursor = Cursor(self.stream, position, clean=clean)
        self.stream.cursors[position.key] = cursor
        self.run = asyncio.create_task(cursor.run())
        return cursor

    def fetched(self, cursor: Cursor, found: list[Batches | memoryview]) -> None:
        """Give a cursor the batches of one fetch."""
        frame = Frame(self.stream.buffer, 1)
        at_once(cursor.accept(found, [], frame))
        frame.drop(0)


class LogStage(Stage):
    """A stage whose target has a log: batches that the test delivers are appended there, and the log is really read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: ScriptedLog | None = None) -> None:
        super().__init__(monkeypatch)
        self.scripted = ScriptedTarget({("t", 0): log or ScriptedLog()})
        self.refreshed_id: bytes | None = None  # the topic's id that the next refresh of the metadata brings
        wires = self.stream.target.connection

        async def connection(node: int, purpose: str = "control") -> Any:
            return await self.scripted.connection(node) if purpose == "scan" else await wires(node, purpose)

        async def refresh(topics: object = None) -> None:
            if self.refreshed_id is not None:
                self.lead(1, self.refreshed_id)

        monkeypatch.setattr(self.stream.target, "connection", connection)
        monkeypatch.setattr(self.stream.target, "refresh", refresh)
        monkeypatch.setattr(self.stream.target, "ask", self.scripted.ask)
        monkeypatch.setattr(resume_module, "read_back", _read_back)
        monkeypatch.setattr(resume_module, "read_last", _read_last)

    @property
    def target_log(self) -> ScriptedLog:
        """Return the target's log; a test may put another one in its place."""
        return self.scripted.logs["t", 0]

    @target_log.setter
    def target_log(self, log: ScriptedLog) -> None:
        self.scripted.logs["t", 0] = log

    def deliver(self, *, damage: int = 0) -> Batch:
        """Append the oldest batch under way, and acknowledge it. The bits of `damage` are wrong in the answer's offset."""
        base_offset = self.target_log.add(self.wires[1].waiting[0][0].data)
        return self.wires[1].answer(base_offset=base_offset ^ damage)


def at_once(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has no reason to wait for anything, without an await."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


async def settle() -> None:
    """Let all other tasks run until they wait for something."""
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    while not condition():
        await asyncio.sleep(0.005)


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


def fetcher_of(stream: Stream) -> Fetcher:
    """Return a fetcher for source broker 1, made as the stream makes its own."""
    return Fetcher(
        1,
        stream.source,
        stream.work,
        stream.buffer,
        room_to_fetch=lambda: stream.buffer.room_for_poll(1),
        refresh=stream.metadata.refresh_source,
    )
