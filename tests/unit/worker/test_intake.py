"""Fetches that take long or become large: others have their turn in between, and nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from mirrormaker.errors import ConnectionLost
from mirrormaker.wire.records import columns
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import MOST_RECORDS
from mirrormaker.worker import intake
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.interrupts import Renumber, RestartAt
from tests.support.batches import LZ4, NONE, ZSTD, Record, stamp_crc, write_batch, write_tiny_records
from tests.support.memory import peak
from tests.support.messages import wrap_messages, write_messages
from tests.support.worker_stage import NOW, START, Play, Stage, at_once, batches, settle, until

MB = 1 << 20


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch, play: Play) -> Play:
    """Unpack two records at a time, and let others have their turn after each such step."""

    def run(scene: Callable[[Stage], Awaitable[None]]) -> None:
        async def patched(stage: Stage) -> None:
            stage.stream.work = replace(stage.stream.work, codec=LZ4)
            monkeypatch.setattr(intake, "_MAX_TURN", -1.0)
            monkeypatch.setattr(columns, "MOST_RECORDS", 2)
            await scene(stage)

        play(patched)

    return run


def deliver(stage: Stage, cursor: Cursor, found: list[Batches | memoryview]) -> asyncio.Task[None]:
    """Give a cursor the batches of one fetch, in a task as a fetcher does."""

    async def whole() -> None:
        frame = Frame(stage.stream.buffer, 1)
        await cursor.accept(found, [], frame)
        frame.drop(0)

    return asyncio.create_task(whole())


def waiting(cursor: Cursor) -> list[tuple[int, int]]:
    """Return the source offsets of the batches that are ready or in flight, as (first, last)."""
    (outlet,) = cursor.outlets
    return [(entry.first, entry.last) for entry in (*outlet.sent, *outlet.ready)]


# -- turns


def test_a_long_fetch_lets_others_have_their_turn(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        delivery = deliver(stage, cursor, batches(20))
        turns = 0
        while not delivery.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 10
        assert waiting(cursor) == [(n, n + 1) for n in range(100, 120, 2)]
        assert cursor.expected == 120

    small_steps(scene)


def test_a_batch_of_countless_records_is_sent_in_steps_of_bounded_size(play: Play) -> None:
    """A batch of a few kilobytes would otherwise hold up reports to the driver, and the stream would lose its lease."""
    count = 700_000
    found = list(split(memoryview(bytearray(write_tiny_records(count, ZSTD, 100)))))

    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, codec=LZ4, buffer_bytes=64 * MB)
        stage.stream.buffer.max_bytes = 64 * MB
        cursor = stage.take()
        await settle()
        # Each of the records would take 500 bytes for a moment if all were unpacked and packed together.
        assert peak(lambda: stage.fetched(cursor, found)) < 8 * count + 500 * MOST_RECORDS
        assert cursor.expected == 100 + count
        units = list(cursor.progress.units)
        assert max(sum(unit.counts.values()) for unit in units) <= MOST_RECORDS
        ranges = waiting(cursor)
        assert ranges[0][0] == 100 and ranges[-1][1] == 99 + count
        assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(ranges))

    play(scene)


def test_a_bad_record_among_very_many_is_searched_in_few_units_at_a_time(play: Play) -> None:
    """The refused batch may have one record of a unit of thousands: the others are for other target partitions."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        cursor.split_size, cursor.split_until = 1, 10_100
        stage.fetched(cursor, batches(10_000))
        sizes = [last - first + 1 for first, last in waiting(cursor)]
        assert sum(sizes) == 10_000
        assert len(sizes) <= 65 and max(sizes) < 200

    play(scene)


def test_records_are_split_even_if_each_of_them_became_many(play: Play) -> None:
    """A message handler may have made ten records out of two: half of ten is more than all of them."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        cursor.split_size, cursor.split_until = 5, 102
        stage.fetched(cursor, batches(2))
        assert waiting(cursor) == [(100, 100), (101, 101)]

    play(scene)


# -- interruptions in the middle of a fetch


def test_a_fetch_that_is_interrupted_in_the_middle_is_fetched_again_from_the_position(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        delivery = deliver(stage, cursor, batches(60))
        await settle()
        stage.wires[1].answer(base_offset=1000)
        assert 104 < cursor.expected < 160
        cursor.interrupt(ConnectionLost("anything"))
        before = cursor.expected
        await settle()
        assert delivery.done()
        assert cursor.progress.offset <= cursor.expected <= before, "the rest of the fetch was taken all the same"
        while stage.wires[1].waiting:
            stage.wires[1].answer(base_offset=1000 + stage.wires[1].numbers()[0] - 20)
        await until(lambda: cursor.flowing)
        assert cursor.expected == cursor.current.offset
        await deliver(stage, cursor, batches(60))
        while stage.wires[1].waiting:
            stage.wires[1].answer(base_offset=1000 + stage.wires[1].numbers()[0] - 20)
        assert (cursor.current.offset, cursor.current.cut(0).sequence) == (160, 80)
        assert stage.stream.buffer.bytes == 0

    small_steps(scene)


def test_after_a_change_of_the_sources_leader_in_the_middle_of_a_fetch_nothing_comes_twice(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        old = deliver(stage, cursor, batches(20))
        for _ in range(4):
            await asyncio.sleep(0)
        # As the stream does when it brings the cursor to another fetcher.
        cursor.fetch_round += 1
        cursor.fetch_from = cursor.expected, cursor.expected_epoch
        assert 100 < cursor.expected < 120
        new = deliver(stage, cursor, batches(20))
        await asyncio.gather(old, new)
        assert waiting(cursor) == [(n, n + 1) for n in range(100, 120, 2)]

    small_steps(scene)


@pytest.mark.parametrize("reason", [None, Renumber(RestartAt.SAME_PLACE, "anything")])
def test_a_partition_that_is_taken_away_in_the_middle_of_a_fetch_ends_where_it_is(
    small_steps: Play, reason: Renumber | None
) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        delivery = deliver(stage, cursor, batches(20))
        for _ in range(4):
            await asyncio.sleep(0)
        if reason is None:
            cursor.release()
        else:
            cursor.interrupt(reason)
        await settle()
        assert delivery.done()
        while stage.wires[1].waiting:
            stage.wires[1].answer(base_offset=1000 + stage.wires[1].numbers()[0] - 20)
        await until(cursor.done.done)
        assert cursor.done.result() is reason
        closing = cursor.closing
        assert closing.offset - 100 == closing.cut(0).sequence - 20 < 20
        assert stage.stream.buffer.bytes == 0

    small_steps(scene)


def test_damage_in_a_later_piece_stops_the_partition_behind_the_records_before_it(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        data = bytearray(write_batch([Record(NOW, None, b"value")] * 6, base_offset=100).data)
        # The length of the fifth record.
        data[61 + 4 * 12] = 0xFF
        stamp_crc(data)
        await deliver(stage, cursor, list(split(memoryview(data))))
        assert cursor.expected == 104
        assert waiting(cursor) == [(100, 101), (102, 103)]
        while stage.wires[1].waiting:
            stage.wires[1].answer(base_offset=1000 + stage.wires[1].numbers()[0] - 20)
        await until(cursor.done.done)
        assert "stops at source offset 104" in str(cursor.done.result())
        assert (cursor.current.offset, cursor.current.cut(0).sequence) == (104, 24)

    small_steps(scene)


# -- memory


def bombs(old: bool) -> list[Batches | memoryview]:
    """Return ten batches, or ten messages of format 1, of 600 KB each when they are decompressed."""
    if old:
        inner = write_messages([Record(NOW, None, bytes(200_000))] * 3, 1)
        data = b"".join(wrap_messages(inner, 1, LZ4, 102 + 3 * n) for n in range(10))
    else:
        rows = [Record(NOW, None, bytes(200_000))] * 3
        data = b"".join(write_batch(rows, codec=ZSTD, base_offset=100 + 3 * n).data for n in range(10))
    return list(split(memoryview(bytearray(data))))


@pytest.mark.parametrize("old", [False, True])
def test_a_fetch_that_becomes_larger_than_the_buffer_is_cut_short_and_fetched_again(
    play: Play, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    monkeypatch.setattr(intake, "_PIECE", 600_000)

    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, codec=NONE)
        assert stage.stream.buffer.max_bytes == 1 * MB
        cursor = stage.take()
        await settle()
        asked: list[int] = []
        monkeypatch.setattr(stage.stream, "fetch", lambda cursor: asked.append(cursor.fetch_from[0]))
        numbers: list[int] = []
        while cursor.current.offset < 130:
            fetch_round, first = cursor.fetch_round, cursor.expected
            # A broker begins with the batch that has the offset.
            stage.fetched(cursor, bombs(old))
            assert stage.stream.buffer.bytes < 2.5 * MB
            assert cursor.expected > first
            if cursor.expected < 130:
                assert cursor.fetch_round > fetch_round, "answers to earlier requests leave records out"
                assert asked[-1] == cursor.fetch_from[0] == cursor.expected
            await settle()
            while stage.wires[1].waiting:
                first = stage.wires[1].numbers()[0]
                numbers += range(first, first + stage.wires[1].waiting[0][0].count)
                stage.wires[1].answer(base_offset=1000 + first - 20)
        assert numbers == list(range(20, 50))
        assert len(asked) >= 2
        assert stage.stream.buffer.bytes == 0

    play(scene)


def test_each_fetch_makes_progress_however_full_the_buffer_is(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were taken before come again at the beginning of a batch: they are no progress."""
    monkeypatch.setattr(columns, "MOST_RECORDS", 2)

    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, codec=LZ4)
        cursor = stage.take()
        await settle()
        stage.stream.buffer.count(3 * MB, 0)
        for expected in (102, 104, 106, 107):
            stage.fetched(cursor, batches(7))
            assert cursor.expected == expected
        assert waiting(cursor) == [(100, 101), (102, 103), (104, 105), (106, 106)]

    play(scene)


def test_batches_that_are_forwarded_unchanged_are_never_fetched_again(play: Play) -> None:
    """They are in memory already."""

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await settle()
        fetch_round = cursor.fetch_round
        rows = [Record(NOW, None, b"x" * 300_000)] * 3
        data = b"".join(write_batch(rows, base_offset=100 + 3 * n).data for n in range(5))
        frame = Frame(stage.stream.buffer, len(data))
        at_once(cursor.accept(list(split(memoryview(bytearray(data)))), [], frame))
        frame.drop(0)
        assert stage.stream.buffer.is_full
        assert (cursor.fetch_round, cursor.expected) == (fetch_round, 115)

    play(scene)


# -- linger.ms


def test_fetches_that_come_while_those_before_them_are_processed_follow_in_order(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, linger=0.001)
        cursor = stage.take()
        await settle()
        await deliver(stage, cursor, batches(10))
        while cursor.expected == 100:
            await asyncio.sleep(0)
        assert cursor.expected < 110, "the first fetch is still being processed"
        await deliver(stage, cursor, batches(6, offset=110))
        await deliver(stage, cursor, batches(4, offset=116))
        await until(lambda: cursor.expected == 120)
        await settle()
        while stage.wires[1].waiting:
            stage.wires[1].answer(base_offset=1000 + stage.wires[1].numbers()[0] - 20)
        assert (cursor.current.offset, cursor.current.cut(0).sequence) == (120, 40)
        assert cursor.records == 20
        assert stage.stream.buffer.bytes == 0

    small_steps(scene)


def test_fetches_that_wait_are_forgotten_if_the_partition_leaves_the_hot_path(small_steps: Play) -> None:
    async def scene(stage: Stage) -> None:
        stage.stream.work = replace(stage.stream.work, linger=0.001)
        cursor = stage.take()
        await settle()
        await deliver(stage, cursor, batches(10))
        cursor.interrupt(ConnectionLost("anything"))
        await until(lambda: cursor.flowing)
        await asyncio.sleep(0.01)
        assert cursor.expected == START.offset
        assert not waiting(cursor)
        assert stage.stream.buffer.bytes == 0

    small_steps(scene)
