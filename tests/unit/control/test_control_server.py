"""The control server: which streams it listens to and answers, and what becomes of the partitions of silent ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirrormaker.control import control_server as server_module
from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_messages import Ended, Order, PartitionReport, Report, Stopped, Take
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import scheduler as scheduler_module
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.errors import DriverGone
from mirrormaker.events.event import Event
from mirrormaker.events.partition_events import PartitionRecovered, PartitionStopped
from mirrormaker.model import partition_life
from mirrormaker.model.partition_life import Life, Waiting
from mirrormaker.model.position import Cut, Identity, Position


def position(partition: int, offset: int = 0) -> Position:
    cuts = (Cut(partition, 0, 0),)
    return Position("orders", partition, offset, -1, "", Identity(1, 0), "there", "", 4, cuts)


class Office:
    """A control server, a scheduler with two streams and four partitions, and the events that were reported."""

    def __init__(self) -> None:
        self.certain = True
        self.events: list[Event] = []
        nothing: Callable[..., None] = lambda *_: None  # noqa: E731
        self.control = ControlServer()
        reactions = Reactions(lambda: self.certain, nothing, nothing, nothing)
        self.scheduler = Scheduler(0, 2, self.control, self.events.append, reactions, "the log")
        for number in range(4):
            self.scheduler.add(OwnedPartition(position(number), Life(Waiting(clean=True))))
        self.control.register(0, self.scheduler)

    async def stream(self, number: int, attempt: int = 0) -> ControlClient:
        return await ControlClient.open(self.control.address, self.control.secret, 0, 1, number, attempt)


def row(number: int, take: Take, state: str = "flowing") -> PartitionReport:
    partition = take.position.partition
    return PartitionReport(position(partition, number), take.tenancy, state, high_watermark=10)


def report(number: int, take: Take | None = None) -> Report:
    """What a stream reports of a partition that it was given and that flows."""
    return Report(number, (row(number, take),) if take else ())


def with_office(body: Callable[[Office], Awaitable[None]]) -> None:
    async def whole() -> None:
        office = Office()
        await office.control.open("127.0.0.1", "127.0.0.1")
        try:
            await asyncio.wait_for(body(office), 10)
        finally:
            await office.control.close()
            await asyncio.sleep(0.05)  # connections that were closed are gone only after a turn of the loop

    asyncio.run(whole())


async def hear(line: ControlClient) -> Order:
    return await asyncio.wait_for(line.next_order(), 2)


def test_a_report_is_answered_by_its_number_and_only_while_the_membership_is_certain() -> None:
    async def body(office: Office) -> None:
        line = await office.stream(0)
        await line.report(report(1))
        assert await hear(line) == Order(heard=1)
        office.certain = False
        await line.report(report(2))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(line.next_order(), 0.3)
        office.certain = True
        await line.report(report(3))
        assert await hear(line) == Order(heard=3)
        line.close()

    with_office(body)


def test_nothing_is_given_while_the_membership_is_not_certain() -> None:
    async def body(office: Office) -> None:
        office.certain = False
        line = await office.stream(0)
        office.scheduler.place()
        assert not any(h.is_running for h in office.scheduler)
        office.certain = True
        office.scheduler.tick()
        assert len((await hear(line)).take) == 2
        line.close()

    with_office(body)


def test_a_stranger_is_not_listened_to() -> None:
    async def body(office: Office) -> None:
        with pytest.raises(DriverGone):
            await ControlClient.open(office.control.address, b"another secret", 0, 1, 0, 0)
        assert not office.scheduler.has_seen_streams

    with_office(body)


def test_a_silent_stream_is_given_up_and_covered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_SILENT_FOR", 0.3)
    monkeypatch.setattr(scheduler_module, "_COVER_AFTER", 0.2)

    async def body(office: Office) -> None:
        office.scheduler.place()
        lines = [await office.stream(n) for n in (0, 1)]
        for line in lines:
            assert len((await hear(line)).take) == 2
        for number in range(1, 20):  # stream 1 says nothing
            await lines[0].report(report(number))
            answer = await hear(lines[0])
            office.scheduler.tick()
            if answer.take:
                break
            await asyncio.sleep(0.05)
        assert {h.stream for h in office.scheduler} == {0}
        assert all(h.is_running for h in office.scheduler)
        assert [take.clean for take in answer.take] == [False, False], "its requests may be under way"
        with pytest.raises(DriverGone):
            await hear(lines[1])
        for line in lines:
            line.close()

    with_office(body)


def test_a_partition_that_stopped_is_tried_again_and_spoken_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_life, "RETRY_AFTER", (0.1,))

    async def body(office: Office) -> None:
        office.scheduler.place()
        line = await office.stream(0)
        given, _ = (await hear(line)).take
        first = given.position.partition
        for number in (1, 2):
            ended = Ended(row(number, given, "stopped"), Stopped("orders stops: not allowed", final=False))
            await line.report(Report(number, ended=(ended,)))
            assert await hear(line) == Order(heard=number)
            owned = office.scheduler.owned["orders", first]
            assert owned.stop_reason
            assert not owned.is_running
            assert owned.is_done
            await asyncio.sleep(0.15)
            office.scheduler.tick()
            earlier = given
            (given,) = (await hear(line)).take
        assert office.events == [PartitionStopped("orders stops: not allowed")]
        office.scheduler.stream_reported(0, report(9, earlier))
        assert office.scheduler.owned["orders", first].stop_reason, (
            "what it reports from an earlier time does not count"
        )
        await line.report(report(10, given))
        await hear(line)
        assert office.events[1:] == [PartitionRecovered("orders", first)]
        assert not office.scheduler.owned["orders", first].stop_reason
        line.close()

    with_office(body)


def test_a_bug_of_the_driver_ends_the_connection_and_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    async def body(office: Office) -> None:
        monkeypatch.setattr(office.scheduler, "stream_reported", fail)
        line = await office.stream(0)
        await line.report(report(1))
        with pytest.raises(DriverGone):
            while True:
                await hear(line)
        await asyncio.sleep(0)
        assert "ValueError: a bug" in capsys.readouterr().err, "before the garbage collector finds the task"
        line.close()

    with_office(body)
