"""Streams that come and go, as the scheduler sees them."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.control.control_messages import Order
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import scheduler as scheduler_module
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.model.position import Cut, Identity, Position


class Connected(ControlServer):
    """A control server to which the streams in `connected` are connected; orders go nowhere."""

    def __init__(self, *connected: int) -> None:
        super().__init__()
        self.connected = set(connected)

    def is_connected(self, flow: int, stream: int) -> bool:
        return stream in self.connected

    def order(self, flow: int, stream: int, order: Order) -> None:
        return None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let nobody wait for a stream that is away; keep what the group's membership is told of streams."""
    monkeypatch.setattr(scheduler_module, "_COVER_AFTER", -1.0)
    return []


def scheduler_of(told: list[bool]) -> Scheduler:
    nothing: Any = lambda *_: None  # noqa: E731
    reactions = Reactions(lambda: True, nothing, nothing, told.append)
    return Scheduler(0, 2, ControlServer(), nothing, reactions, "the log")


def test_a_process_whose_streams_are_all_gone_offers_its_share_until_one_is_back(told: list[bool]) -> None:
    scheduler = scheduler_of(told)
    scheduler.stream_arrived(0)
    scheduler.stream_arrived(1)
    assert told == [True, True]
    scheduler.stream_left(0)
    scheduler.tick()
    assert told == [True, True], "the other stream takes over"
    scheduler.stream_left(1)
    scheduler.tick()
    assert told == [True, True, False]
    scheduler.stream_arrived(0)
    assert told[-1]


def test_streams_that_end_because_they_were_told_to_are_not_missed(told: list[bool]) -> None:
    scheduler = scheduler_of(told)
    for stream in range(2):
        scheduler.stream_arrived(stream)
    scheduler.stop()
    for stream in range(2):
        scheduler.stream_left(stream)
    scheduler.tick()
    assert False not in told


def test_no_partition_moves_to_a_stream_that_has_just_gone() -> None:
    nothing: Any = lambda *_: None  # noqa: E731
    control = Connected(0, 1)
    scheduler = Scheduler(0, 2, control, nothing, Reactions(lambda: True, nothing, nothing, nothing), "the log")
    for number in range(4):
        position = Position("orders", number, 10, -1, "", Identity(1, 0), "there", "", 1, (Cut(0, 0, 0),))
        scheduler.add(OwnedPartition(position, stream=0))
        scheduler._busy["orders", number] = None
    for stream in range(2):
        scheduler.stream_arrived(stream)
    control.connected.discard(1)
    scheduler.stream_left(1)

    def balance() -> set[int | None]:
        for owned in scheduler:
            owned.bytes += 1_000_000
        scheduler.balance(5)
        return {owned.next_stream for owned in scheduler}

    assert balance() == {None}, "the stream is not back yet"
    control.connected.add(1)
    scheduler.stream_arrived(1)
    assert balance() == {None, 1}
