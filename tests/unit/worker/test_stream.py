"""A stream between its driver and its cursors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.control.control_messages import Ended, NeedsIdentity, Order, Released, Report, Stopped, Take
from mirrormaker.control.control_server import ControlServer
from mirrormaker.errors import DriverGone
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.worker import stream as stream_module
from mirrormaker.worker import stream_metadata
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.reporting import Reporting
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
        stream._take(Take(POSITION, True, 1))
        await asyncio.sleep(0.05)
        assert not stream.cursors
        return list(stream.reporting.report((), 0).ended)

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
        orders: Any = Orders(given(1), given(2), Order(release=(("orders", 0),)))
        await stream._follow_orders(orders)
        return stream

    stream = asyncio.run(body())
    (cursor,) = stream.cursors.values()
    assert (cursor.tenancy, getattr(cursor, "released", 0)) == (1, 2)
    assert not stream._next
    report = stream.reporting.report((), 0)
    assert [(ended.partition.tenancy, ended.outcome) for ended in report.ended] == [(2, Released())]
    assert not report.ended[0].partition.clean, "the first cursor may have requests under way"
    assert not report.never_taken


@pytest.mark.usefixtures("slow")
def test_what_was_given_twice_over_is_begun_once_and_every_other_tenancy_ends() -> None:
    async def body() -> Stream:
        stream = Stream(work(), 0, 0)
        orders: Any = Orders(given(1), given(2), given(3), Order(release=(("payments", 7),)))
        await stream._follow_orders(orders)
        return stream

    stream = asyncio.run(body())
    assert [take.tenancy for take in stream._next.values()] == [3]
    report = stream.reporting.report((), 0)
    assert [ended.partition.tenancy for ended in report.ended] == [2]
    assert report.never_taken == (("payments", 7),), "it never came, and no tenancy can be named"


def test_a_topic_that_the_driver_saw_created_again_is_looked_at_before_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With older metadata the stream would ask for new numbers again and again."""
    old, new = b"o" * 16, b"n" * 16

    async def look(metadata: StreamMetadata, topics: set[str]) -> None:
        metadata.source.topics = {"orders": Topic("orders", new, False, {0: Partition(1, 0, 1)})}

    async def nothing(*_: Any) -> None: ...

    async def run(cursor: Cursor) -> None:
        cursor.stream.check_topics(cursor)
        cursor.done.set_result(None)

    monkeypatch.setattr(StreamMetadata, "_refresh_source", look)
    monkeypatch.setattr(StreamMetadata, "_refresh_target", nothing)
    monkeypatch.setattr(StreamMetadata, "_read_settings", nothing)
    monkeypatch.setattr(Cursor, "run", run)

    async def body() -> list[Ended]:
        stream = Stream(work(), 0, 0)
        stream.source.topics = {"orders": Topic("orders", old, False, {0: Partition(1, 0, 1)})}
        stream.target.topics = {"orders": Topic("orders", bytes(16), False, {0: Partition(1, 0, 1)})}
        stream._take(Take(replace(POSITION, topic_id=new.hex()), True, 1))
        await asyncio.sleep(0.05)
        return list(stream.reporting.report((), 0).ended)

    (end,) = asyncio.run(body())
    assert not isinstance(end.outcome, NeedsIdentity)


def test_partitions_that_start_together_share_the_requests_for_their_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"topic-{number}" for number in range(250)]
    partitions = {number: Partition(1, 0, 1) for number in range(4)}
    refreshes: list[tuple[str, int]] = []
    described: list[int] = []

    def refresh_of(side: str) -> Any:
        async def refresh(cluster: Cluster, topics: set[str]) -> None:
            refreshes.append((side, len(topics)))
            await asyncio.sleep(0.01)
            cluster.topics |= {name: Topic(name, bytes(16), False, partitions) for name in topics}

        return refresh

    async def describe(cluster: Cluster, kind: int, topics: list[str], keys: list[str]) -> list[Any]:
        described.append(len(topics))
        setting = SimpleNamespace(name="max.message.bytes", value="1000")
        return [SimpleNamespace(resource_name=topic, error_code=0, configs=[setting]) for topic in topics]

    async def run(cursor: Cursor) -> None:
        cursor.done.set_result(None)

    monkeypatch.setattr(stream_metadata, "describe_configs", describe)
    monkeypatch.setattr(Cursor, "run", run)

    async def body() -> Stream:
        stream = Stream(work(), 0, 0)
        for side, cluster in (("source", stream.source), ("target", stream.target)):
            monkeypatch.setattr(cluster, "refresh", partial(refresh_of(side), cluster))
        for name in names:
            for partition in range(4):
                stream._take(Take(replace(POSITION, topic=name, partition=partition), True, 1))
        while len(stream.reporting._ended) < 1000:
            await asyncio.sleep(0.01)
        return stream

    stream = asyncio.run(body())
    assert sorted(refreshes) == [("source", 250), ("target", 250)]
    assert sorted(described) == [50, 100, 100]
    assert stream.metadata.max_message_bytes("topic-7") == 1000


def test_a_tick_looks_only_at_partitions_that_wait_for_records_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Cursor] = []
    monkeypatch.setattr(Cursor, "check_skipping", lambda cursor, _: looked_at.append(cursor))

    async def body() -> None:
        stream = Stream(work(), 0, 0)
        monkeypatch.setattr(stream._fetchers, "fetch", lambda cursor: None)
        cursors = [Cursor(stream, replace(POSITION, partition=number), clean=True) for number in range(100)]
        cursors[7].outlets[0].skip = cursors[8].outlets[0].skip = 5
        for cursor in cursors:
            cursor.flowing = True
            stream.fetch(cursor)
        stream._tick()
        assert set(looked_at) == {cursors[7], cursors[8]}
        cursors[7].outlets[0].skip = 0
        cursors[8].flowing = False
        stream._tick()
        looked_at.clear()
        stream._tick()
        assert not looked_at and not stream._watched

    asyncio.run(body())


class Driver:
    """A flow that writes down what a stream reports."""

    may_answer = True

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.events: list[str] = []

    def stream_arrived(self, stream: int) -> None:
        self.events.append("arrived")

    def stream_reported(self, stream: int, report: Report) -> None:
        self.reports.append(report)

    def stream_left(self, stream: int) -> None:
        self.events.append("left")

    @property
    def ended(self) -> list[int]:
        return [ended.partition.tenancy for report in self.reports for ended in report.ended]


def test_a_stream_looks_at_all_of_its_partitions_twice_a_second_and_not_whenever_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = 300
    looked_at = ticks = 0

    async def run(cursor: Cursor) -> None:
        await cursor._release.pause(60)
        # They end one after the other, each in its own turn of the event loop.
        for _ in range(cursor.partition):
            await asyncio.sleep(0)
        cursor.done.set_result(None)

    def is_news(reporting: Reporting, cursor: Cursor, ask: Callable[..., bool] = Reporting._is_news) -> bool:
        nonlocal looked_at
        looked_at += 1
        return ask(reporting, cursor)

    def tick(stream: Stream, go_on: Callable[[Stream], None] = Stream._tick) -> None:
        nonlocal ticks
        ticks += 1
        go_on(stream)

    monkeypatch.setattr(Cursor, "run", run)
    monkeypatch.setattr(Stream, "_tick", tick)
    monkeypatch.setattr(Stream, "_knows_topics", lambda *_: True)
    monkeypatch.setattr(Reporting, "_is_news", is_news)

    async def body() -> Driver:
        server, driver = ControlServer(), Driver()
        server.register(0, driver)
        await server.open("127.0.0.1", "127.0.0.1")
        running = asyncio.create_task(Stream(replace(work(), control=server.address, secret=server.secret), 0, 0).run())
        while not server.is_connected(0, 0):
            await asyncio.sleep(0.01)
        positions = [replace(POSITION, partition=number, cuts=(Cut(number, 0, 0),)) for number in range(many)]
        server.order(0, 0, Order(take=tuple(Take(position, True, n) for n, position in enumerate(positions))))
        while sum(len(report.partitions) for report in driver.reports) < many:
            await asyncio.sleep(0.01)
        idle = len(driver.reports)
        while len(driver.reports) < idle + 2:
            await asyncio.sleep(0.01)
        assert not any(report.partitions for report in driver.reports[idle:])
        for position in positions:
            server.order(0, 0, Order(release=(position.key,)))
        while len(driver.ended) < many:
            await asyncio.sleep(0.01)
        server.order(0, 0, Order(stop=True))
        assert await running == []
        await server.close()
        await asyncio.sleep(0.05)
        return driver

    driver = asyncio.run(asyncio.wait_for(body(), 60))
    assert sorted(driver.ended) == list(range(many))
    assert len(driver.reports) <= many + ticks + 2
    assert looked_at <= many * ticks
    assert driver.events == ["arrived", "left"]


def test_a_partition_that_fails_before_it_begins_stops_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[int] = []

    def knows_topics(_: Stream, cursor: Cursor) -> bool:
        if cursor.partition == 0:
            raise ValueError("a bug")
        return True

    async def run(cursor: Cursor) -> None:
        started.append(cursor.partition)
        await asyncio.sleep(60)

    monkeypatch.setattr(Stream, "_knows_topics", knows_topics)
    monkeypatch.setattr(Cursor, "run", run)

    async def body() -> Stream:
        stream = Stream(work(), 0, 0)
        for partition in (0, 1):
            stream._take(Take(replace(POSITION, partition=partition), True, partition + 1))
        await asyncio.sleep(0.05)
        return stream

    stream = asyncio.run(body())
    assert started == [1] and list(stream.cursors) == [("orders", 1)]
    (end,) = stream.reporting.report((), 0).ended
    assert isinstance(end.outcome, Stopped) and not end.outcome.final
    assert end.outcome.reason == "orders-0 stops at source offset 5: unexpected ValueError: a bug"
    assert end.partition.tenancy == 1 and end.partition.clean
    assert "ValueError: a bug" in capsys.readouterr().err


async def fail_soon(*_: Any) -> None:
    await asyncio.sleep(0.01)
    raise ValueError("a bug")


def take_nothing(*_: Any) -> None:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("owner", "method", "replacement"),
    [
        (StreamMetadata, "follow_target", fail_soon),
        (Cursor, "run", fail_soon),
        (Reporting, "ended", take_nothing),
        (Stream, "_take", take_nothing),
    ],
)
def test_a_stream_whose_own_task_dies_ends_with_its_error_and_sends_nothing_more(
    owner: type, method: str, replacement: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark starts it again. Otherwise its partitions, or all orders, could wait for ever."""

    async def run(cursor: Cursor) -> None:
        cursor.done.set_result(None)

    monkeypatch.setattr(Stream, "_knows_topics", lambda *_: True)
    monkeypatch.setattr(Cursor, "run", run)
    monkeypatch.setattr(owner, method, replacement)

    async def body() -> Stream:
        server, driver = ControlServer(), Driver()
        server.register(0, driver)
        await server.open("127.0.0.1", "127.0.0.1")
        stream = Stream(replace(work(), control=server.address, secret=server.secret), 0, 0)
        running = asyncio.create_task(stream.run())
        while not server.is_connected(0, 0):
            await asyncio.sleep(0.01)
        server.order(0, 0, given(1))
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.wait_for(running, 2)
        await server.close()
        await asyncio.sleep(0.05)
        return stream

    stream = asyncio.run(body())
    assert not stream.has_lease()
    assert "ValueError: a bug" in capsys.readouterr().err
