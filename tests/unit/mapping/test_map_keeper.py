"""The writer of the offset map, on targets that do not take it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import OffsetMapUnwritten
from mirrormaker.mapping import map_keeper
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.keyed_log import KeyedLog

START = Position("orders", 0, 0, 0, "", Identity(1, 0), "", "", 1, (Cut(0, 0, 0),))


def _move(keeper: MapKeeper, offset: int) -> None:
    moved = START.advanced(offset, 0, [Cut(0, offset, offset)])
    keeper.note(moved, PartitionReport(moved, 1, "flowing", runs=((("", 0), (NotedRun(0, 0, offset, 0),)),)))


def test_a_last_write_ends_although_the_topic_was_never_opened() -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.begin([START])
            _move(keeper, 5)
            # A loop without a pause would also keep this timeout from ending it.
            await asyncio.wait_for(keeper.write_all(), 5)
            assert not log.batches

    asyncio.run(play())


def test_a_map_that_cannot_be_written_is_reported_once_and_positions_go_on() -> None:
    async def play() -> None:
        log, events = KeyedLog(TOPIC), list[Event]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", events.append)
            await keeper.open()
            await keeper.begin([START])
            for offset in (5, 9):
                _move(keeper, offset)
                log.errors = [29]  # TOPIC_AUTHORIZATION_FAILED
                assert await keeper.write([START.key]) == set()
            (event,) = events
            assert isinstance(event, OffsetMapUnwritten) and "kafka-acls" in event.reason

    asyncio.run(play())


def test_what_was_noted_meanwhile_is_stored_later() -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()
            await keeper.begin([START])
            _move(keeper, 5)
            await keeper.write_all()
            successor = MapKeeper(target, target, "mirror", lambda _: None)
            await successor.open()
            found = successor.partition(START.key)
            assert found is not None and found.translate(("", 0), 3).offset == 3

    asyncio.run(play())


def test_a_map_whose_stored_part_could_not_be_read_is_not_used_until_it_is() -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            first = MapKeeper(target, target, "mirror", lambda _: None)
            await first.open()
            await first.begin([START])
            _move(first, 5)
            await first.write_all()

            late = MapKeeper(target, target, "mirror", lambda _: None)
            await late.begin([START.advanced(5, 0, [Cut(0, 5, 5)])])
            assert late.partition(START.key) is None, "a group would seem to be behind all that was mirrored"
            await late.open()
            found = late.partition(START.key)
            assert found is not None and found.translate(("", 0), 3).offset == 3

    asyncio.run(play())


def test_a_block_that_cannot_be_packed_leaves_the_others_and_the_committer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bytes:
        raise ValueError("a bug")

    monkeypatch.setattr(map_keeper, "pack_block", fail)
    monkeypatch.setattr(map_keeper, "_PATIENCE", 0.0)

    async def play() -> None:
        log, events = KeyedLog(TOPIC), list[Event]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", events.append)
            keeper._topic = MapTopic(target, keeper.source_id)
            keeper._looked_at = float("inf")
            await keeper.begin([START])
            assert await keeper.write([START.key]) == set(), "positions are committed without the map"
            assert isinstance(events[0], OffsetMapUnwritten)

    asyncio.run(play())


def test_many_blocks_are_stored_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_keeper, "_CHUNK_BYTES", 500)

    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()
            many = [replace(START, partition=number, identity=Identity(number + 1, 0)) for number in range(40)]
            await keeper.begin(many)
            assert await keeper.write([position.key for position in many]) == set()
            assert len(log.batches) > 5
            found = MapTopic(target, keeper.source_id)
            await found.refresh()
            assert len(found.partitions) == len(found.identities) == 40
            assert keeper._topic is not None and keeper._topic.end == found.end, "own rows need not be read again"

    asyncio.run(play())
