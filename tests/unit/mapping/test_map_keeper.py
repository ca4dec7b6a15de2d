"""The writer of the offset map, on targets that do not take it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import committer as committer_module
from mirrormaker.driver.committer import Committer
from mirrormaker.driver.group_protocol import Generation
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.events.event import Event
from mirrormaker.events.map_events import OffsetMapMissing, OffsetMapUnwritten
from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER
from mirrormaker.mapping import map_keeper, map_topic
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model import offset_map
from mirrormaker.model.ledger import pack
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.keyed_log import LIST_OFFSETS, KeyedLog
from tests.support.scripted_broker import SILENT

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


def _numbered(offset: int) -> Position:
    return START.advanced(offset, 0, [Cut(0, offset, offset)])


def test_a_partition_that_was_given_up_is_not_written_behind_its_new_owner() -> None:
    async def play() -> None:
        log, ours = KeyedLog(TOPIC), set[object]()
        async with log.running() as target:
            await target.refresh()
            before = MapKeeper(target, target, "mirror", lambda _: None)
            before.is_ours = ours.__contains__
            await before.open()
            # A takeover that fails before the partition is owned: the write is not answered.
            await before.begin([START])
            owner = MapKeeper(target, target, "mirror", lambda _: None)
            await owner.open()
            await owner.begin([START])
            _move(owner, 5)
            await owner.write_all()
            rows = log.end
            await before.write([])
            await before.write_all()
            assert log.end == rows, "an older block would replace the one of the new owner"

    asyncio.run(play())


def test_blocks_of_an_earlier_owner_that_cannot_be_read_in_time_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was read long ago, the map would go on in a block that the other process has completed meanwhile."""
    monkeypatch.setattr(map_keeper, "_FENCE_EVERY", 0.05)

    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            late = MapKeeper(target, target, "mirror", lambda _: None)
            await late.open()
            first = MapKeeper(target, target, "mirror", lambda _: None)
            await first.open()
            await first.begin([START])
            _move(first, 5)
            await first.write_all()
            answer = log.answers.pop(LIST_OFFSETS)
            log.answers[LIST_OFFSETS] = SILENT
            monkeypatch.setattr(map_keeper, "_READ_WITHIN", 0.1)
            await late.begin([_numbered(9)])
            assert late.partition(START.key) is None
            await late.write([START.key])
            log.answers[LIST_OFFSETS] = answer
            monkeypatch.setattr(map_keeper, "_READ_WITHIN", 5.0)
            running = asyncio.create_task(late.run())
            async with asyncio.timeout(5):
                while late.partition(START.key) is None:
                    await asyncio.sleep(0.02)
            running.cancel()
            found = late.partition(START.key)
            assert found is not None and found.translate(("", 0), 3).offset == 3
            assert not found.is_due, "no block is deleted"

    asyncio.run(play())


def test_a_block_that_cannot_be_packed_leaves_the_others_and_the_committer_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> bytes:
        raise ValueError("a bug")

    monkeypatch.setattr(map_topic, "pack_block", fail)
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


def test_blocks_that_only_became_longer_are_stored_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()
            await keeper.begin([START])
            await keeper.write([START.key])
            stored = len(log.batches)
            for offset in range(1, 50):
                _move(keeper, offset)
                await keeper.write([START.key])
            assert len(log.batches) <= stored + 2, "the beginning of a run, and one block that became longer"
            monkeypatch.setattr(map_keeper, "_REFRESH_EVERY", 0.0)
            await keeper.write([START.key])
            topic = MapTopic(target, keeper.source_id)
            await topic.refresh()
            assert topic.read(START.key).end == 49

    asyncio.run(play())


def test_a_topic_that_was_deleted_is_created_and_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_keeper, "_FENCE_EVERY", 0.05)
    monkeypatch.setattr(offset_map, "BLOCK_RUNS", 2)
    monkeypatch.setattr(offset_map, "BLOCKS_AT_ONCE", 3)

    async def play() -> None:
        log, events = KeyedLog(TOPIC), list[Event]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", events.append)
            await keeper.open()
            await keeper.begin([START])
            for offset in range(0, 60, 3):  # two records and a marker
                moved = START.advanced(offset + 3, 0, [Cut(0, offset // 3 * 2 + 2, offset // 3 * 2 + 2)])
                run = NotedRun(offset, offset // 3 * 2, 2, offset // 3 * 2)
                keeper.note(moved, PartitionReport(moved, 1, "flowing", runs=((("", 0), (run,)),)))
            await keeper.write_all()
            log.batches.clear()
            log.producers.clear()
            running = asyncio.create_task(keeper.run())
            async with asyncio.timeout(5):
                while not events:
                    await asyncio.sleep(0.02)
            assert [event.text for event in events] == [
                "__mirrormaker_offsets was deleted on the target: this process stores the offset map of its 1 partitions again"
            ]
            async with asyncio.timeout(5):
                while keeper._topic is None:
                    await asyncio.sleep(0.02)
            running.cancel()
            assert await keeper.write([START.key]) == set()
            stored = MapTopic(target, keeper.source_id)
            await stored.refresh()
            found = stored.read(START.key)
            assert [found.translate(("", 0), offset).offset for offset in range(0, 60, 3)] == list(range(0, 40, 2))
            assert START.identity in stored.identities

    asyncio.run(play())


def test_a_map_of_another_process_is_unpacked_again_only_after_it_has_changed() -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            owner = MapKeeper(target, target, "mirror", lambda _: None)
            other = MapKeeper(target, target, "mirror", lambda _: None)
            await owner.open()
            await owner.begin([START])
            _move(owner, 5)
            await owner.write_all()
            await other.open()
            before = other.partition(START.key)
            assert before is not None and other.partition(START.key) is before
            _move(owner, 9)
            await owner.write_all()
            await other.refresh()
            after = other.partition(START.key)
            assert after is not None and (before.end, after.end) == (5, 9)

    asyncio.run(play())


def test_a_process_forgets_its_oldest_blocks_beyond_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "BLOCK_RUNS", 2)
    monkeypatch.setattr(map_keeper, "_MOST_RUNS", 10)

    async def play() -> None:
        log, events = KeyedLog(TOPIC), list[Event]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", events.append)
            await keeper.open()
            await keeper.begin([START])
            for offset in range(0, 60, 3):  # two records and a marker
                moved = START.advanced(offset + 3, 0, [Cut(0, offset // 3 * 2 + 2, offset // 3 * 2 + 2)])
                run = NotedRun(offset, offset // 3 * 2, 2, offset // 3 * 2)
                keeper.note(moved, PartitionReport(moved, 1, "flowing", runs=((("", 0), (run,)),)))
            await keeper.write_all()
            await keeper.clean()
            await keeper.write_all()
            found = keeper.partition(START.key)
            assert found is not None and 8 <= found.size <= 10
            assert len(set(events)) == 1 and "orders-0" in events[0].text
            stored = MapTopic(target, keeper.source_id)
            await stored.refresh()
            again = stored.read(START.key)
            assert (again.first, again.size) == (found.first, found.size)
            assert [again.translate(("", 0), offset).offset for offset in range(again.first, 60, 3)] == list(
                range(again.first // 3 * 2, 40, 2)
            )

    asyncio.run(play())


def test_a_mirror_whose_map_was_deleted_while_it_was_stopped_says_so_once() -> None:
    async def play() -> None:
        log, events = KeyedLog(TOPIC), list[Event]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", events.append)
            await keeper.open()
            await keeper.begin([replace(_numbered(9), partition=number) for number in range(3)])
            await keeper.begin([replace(START, partition=7, identity=Identity(9, 0))])
            (event,) = events
            assert isinstance(event, OffsetMapMissing) and event.partitions == 3

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


def test_a_map_that_is_missing_is_not_used_until_its_rebuild_was_tried() -> None:
    async def play() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()
            await keeper.begin([_numbered(9)])
            assert keeper.partition(START.key) is None, "groups would go back to the beginning of the target's log"
            keeper.missing.clear()
            assert keeper.partition(START.key) is not None

    asyncio.run(play())


def test_an_identity_that_came_while_the_map_had_no_leader_is_stored_with_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partition is mirrored meanwhile, and so is everything that was assigned along with it."""
    monkeypatch.setattr(committer_module, "_MAP_WITHIN", 0.2)

    async def play() -> None:
        log, rows = KeyedLog(TOPIC), list[str]()
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()

            async def commit(found: Any, _: Generation) -> dict[Any, Any]:
                rows.extend(row[3] for of in found.values() for row in of)
                return {}

            membership: Any = SimpleNamespace(
                commit=commit, is_certain=True, generation=Generation(assigned=frozenset({START.key}))
            )
            reactions: Any = None
            scheduler = Scheduler(0, 1, ControlServer(), lambda _: None, reactions, "the log")
            committer = Committer(membership, scheduler, 1.0, lambda _: None, keeper)
            log.errors = [NOT_LEADER_OR_FOLLOWER] * 1000
            assert not await asyncio.wait_for(committer.commit_new([START], membership.generation), 2)
            assert rows == [pack(START)] and not log.batches
            scheduler.add(OwnedPartition(START, committed=START))
            log.errors = []
            await committer.commit_moved()
            assert log.end == 2, "the identity's row and its block, although the partition has not moved"

    asyncio.run(play())
