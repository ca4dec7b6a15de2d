"""Who is listened to at the desk, who is answered, and what becomes of the partitions of those who fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mirrormaker.control import control_server as desk_module
from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import owned_partition as holding_module
from mirrormaker.driver import scheduler as roster_module
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Consequences, Scheduler
from mirrormaker.errors import DriverGone
from mirrormaker.model.position import Cut, Identity, Position


def position(partition: int, offset: int = 0) -> Position:
    cuts = (Cut(partition, 0, 0),)
    return Position("orders", partition, offset, -1, "", Identity(1, 0), "there", "", 4, cuts)


class Office:
    """A desk, a roster of two streams and four partitions, and what was said."""

    def __init__(self) -> None:
        self.sure = True
        self.said: list[str] = []
        nothing: Callable[..., None] = lambda *_: None  # noqa: E731
        self.control = ControlServer()
        then = Consequences(lambda: self.sure, nothing, nothing, nothing, nothing)
        self.scheduler = Scheduler(0, 2, self.control, self.said.append, then, "the log")
        self.scheduler.holdings = {("orders", n): OwnedPartition(position(n), clean=True) for n in range(4)}
        self.control.register(0, self.scheduler)

    async def stream(self, number: int, attempt: int = 0) -> ControlClient:
        return await ControlClient.open(self.control.address, self.control.secret, 0, 1, number, attempt)


def report(number: int, given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What a stream reports of a partition that it was given and that flows, or that has ended."""
    figures = {"records": 0, "bytes": 0, "end": 10, "state": "flowing", "note": "", "resumes": 0, "clean": False}
    rows = []
    if given is not None:
        p, tenancy = given["position"]["partition"], given["tenancy"]
        place = {"topic": "orders", "partition": p, "tenancy": tenancy, "position": position(p, number).to_json()}
        rows = [{**place, **figures, **more}]
    return {"number": number, "partitions": [] if more else rows, "finished": rows if more else []}


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


async def hear(line: ControlClient) -> dict[str, Any]:
    return await asyncio.wait_for(line._hear(), 2)


def test_a_report_is_answered_by_its_number_and_only_while_the_seat_is_sure() -> None:
    async def body(office: Office) -> None:
        line = await office.stream(0)
        await line.say(report(1))
        assert await hear(line) == {"heard": 1}
        office.sure = False
        await line.say(report(2))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(line._hear(), 0.3)
        office.sure = True
        await line.say(report(3))
        assert await hear(line) == {"heard": 3}
        line.close()

    with_office(body)


def test_nothing_is_given_while_the_seat_is_not_sure() -> None:
    async def body(office: Office) -> None:
        office.sure = False
        line = await office.stream(0)
        office.scheduler.plan()
        assert not any(h.given for h in office.scheduler)
        office.sure = True
        office.scheduler.tick()
        assert len((await hear(line))["take"]) == 2
        line.close()

    with_office(body)


def test_a_stranger_is_not_listened_to() -> None:
    async def body(office: Office) -> None:
        line = await ControlClient.open(office.control.address, b"another secret", 0, 1, 0, 0)
        with pytest.raises(DriverGone):
            await hear(line)
        assert not office.scheduler.seen
        line.close()

    with_office(body)


def test_a_silent_stream_is_given_up_and_covered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_SILENT_FOR", 0.3)
    monkeypatch.setattr(roster_module, "_COVER_AFTER", 0.2)

    async def body(office: Office) -> None:
        office.scheduler.plan()
        lines = [await office.stream(n) for n in (0, 1)]
        for line in lines:
            assert len((await hear(line))["take"]) == 2
        for number in range(1, 20):  # stream 1 says nothing
            await lines[0].say(report(number))
            answer = await hear(lines[0])
            office.scheduler.tick()
            if "take" in answer:
                break
            await asyncio.sleep(0.05)
        assert {h.stream for h in office.scheduler} == {0}
        assert all(h.given for h in office.scheduler)
        assert [given["clean"] for given in answer["take"]] == [False, False], "its requests may be under way"
        with pytest.raises(DriverGone):
            await hear(lines[1])
        for line in lines:
            line.close()

    with_office(body)


def test_a_partition_that_stopped_is_tried_again_and_spoken_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding_module, "_TRY_AGAIN", (0.1,))

    async def body(office: Office) -> None:
        office.scheduler.plan()
        line = await office.stream(0)
        given, _ = (await hear(line))["take"]
        first = given["position"]["partition"]
        for number in (1, 2):
            why = {"stopped": True, "reason": "orders stops: not allowed", "final": False, "state": "stopped"}
            await line.say(report(number, given, **why))
            assert await hear(line) == {"heard": number}
            holding = office.scheduler.holdings["orders", first]
            assert holding.stopped
            assert not holding.given
            assert holding.is_done
            await asyncio.sleep(0.15)
            office.scheduler.tick()
            earlier = given
            (given,) = (await hear(line))["take"]
        assert office.said == ["orders stops: not allowed"]
        await line.say(report(9, earlier))
        assert await hear(line) == {"heard": 9}
        assert office.scheduler.holdings["orders", first].stopped, "what it reports from an earlier time does not count"
        await line.say(report(10, given))
        await hear(line)
        assert office.said[1:] == [f"orders-{first} flows again"]
        assert not office.scheduler.holdings["orders", first].stopped
        line.close()

    with_office(body)


def test_broken_numbers_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding_module, "_TRY_AGAIN", (0.0,))
    holding = OwnedPartition(position(0), clean=True)
    assert holding.stop("someone else uses them", final=True)
    assert not holding.is_idle
    assert not holding.stop("someone else uses them", final=True), "no news"
    outdated = OwnedPartition(position(0), clean=True, outdated=True)
    assert not outdated.is_idle
