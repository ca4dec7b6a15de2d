"""A stream between its driver and its cursors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_messages import Ended, NeedsIdentity, Order, Stopped, Take
from mirrormaker.errors import DriverGone
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Endpoint, Partition, Topic
from mirrormaker.worker import stream as stream_module
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.stream import Stream
from mirrormaker.worker.stream_metadata import StreamMetadata
from mirrormaker.worker.stream_task import StreamTask

NOWHERE = Endpoint((("127.0.0.1", 1),))
POSITION = Position("orders", 0, 5, -1, "", Identity(1, 0), "there", "", 1, (Cut(0, 0, 0),))


def work(handler: tuple[str, str | None] | None = None) -> StreamTask:
    return StreamTask(
        flow=0, job=1, control=("127.0.0.1", 1), secret=b"", source=NOWHERE, target=NOWHERE, read_committed=False, acks=-1,
        max_in_flight=5, connections=1, buffer_bytes=1 << 20, buffer_messages=None, max_request_bytes=1 << 20,
        fetch_max_wait_ms=500, fetch_min_bytes=1, fetch_max_bytes=1 << 20, partition_fetch_bytes=1 << 20,
        identity_expiration_ms=86_400_000, batch_bytes=1 << 19, linger=0, codec=None, partition_by=None, handler=handler,
    )  # fmt: skip


class Orders:
    """A driver that orders what a test has written down, and then hangs up."""

    def __init__(self, *orders: Order) -> None:
        self.orders = orders

    async def __aiter__(self) -> AsyncIterator[Order]:
        for order in self.orders:
            yield order
            await asyncio.sleep(0.01)
        raise DriverGone("the end")


def test_a_stream_that_cannot_load_the_handler_mirrors_nothing() -> None:
    async def body() -> list[Ended]:
        stream = Stream(work(("no_such_module:handle", None)), 0, 0)
        stream._report_now = asyncio.Event()
        stream._take(Take(POSITION, True, 1))
        await asyncio.sleep(0.05)
        assert not stream.cursors
        return stream._ended

    (end,) = asyncio.run(body())
    assert isinstance(end.outcome, Stopped)
    assert "no_such_module" in end.outcome.reason
    assert end.partition.tenancy == 1


class Slow:
    """A cursor that takes its time to let go."""

    def __init__(self, stream: Stream, position: Position, *, clean: bool) -> None:
        self.topic, self.partition = position.key
        self.tenancy, self.released = 0, 0

    def release(self) -> None:
        self.released += 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(stream: Stream, cursor: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(stream_module, "Cursor", Slow)
    monkeypatch.setattr(Stream, "_mirror", never)


def given(tenancy: int) -> Order:
    return Order(take=(Take(POSITION, True, tenancy),))


@pytest.mark.usefixtures("slow")
def test_what_was_given_again_and_taken_back_is_not_begun() -> None:
    async def body() -> Stream:
        stream = Stream(work(), 0, 0)
        stream._report_now = asyncio.Event()
        orders: Any = Orders(given(1), given(2), Order(release=(("orders", 0),)))
        await stream._follow_orders(orders)
        return stream

    stream = asyncio.run(body())
    (cursor,) = stream.cursors.values()
    assert (cursor.tenancy, getattr(cursor, "released", 0)) == (1, 2)
    assert not stream._next
    assert stream._never_taken == [("orders", 0)]
    assert not stream._ended


def test_a_topic_that_the_driver_saw_created_again_is_looked_at_before_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With older metadata the stream would ask for new numbers again and again."""
    old, new = b"o" * 16, b"n" * 16

    async def look(metadata: StreamMetadata) -> None:
        metadata.source.topics = {"orders": Topic("orders", new, False, {0: Partition(1, 0, 1)})}

    async def nothing(*_: Any) -> None: ...

    async def run(cursor: Cursor) -> None:
        cursor.stream.check_topics(cursor)
        cursor.done.set_result(None)

    monkeypatch.setattr(StreamMetadata, "refresh_source", look)
    monkeypatch.setattr(StreamMetadata, "refresh_target", nothing)
    monkeypatch.setattr(StreamMetadata, "read_settings", nothing)
    monkeypatch.setattr(Cursor, "run", run)

    async def body() -> list[Ended]:
        stream = Stream(work(), 0, 0)
        stream._report_now = asyncio.Event()
        stream.source.topics = {"orders": Topic("orders", old, False, {0: Partition(1, 0, 1)})}
        stream.target.topics = {"orders": Topic("orders", bytes(16), False, {0: Partition(1, 0, 1)})}
        stream._take(Take(replace(POSITION, topic_id=new.hex()), True, 1))
        await asyncio.sleep(0.05)
        return stream._ended

    (end,) = asyncio.run(body())
    assert not isinstance(end.outcome, NeedsIdentity)
