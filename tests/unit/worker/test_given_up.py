"""Records that the target refuses: what becomes of their copies, and of the records after them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count

import pytest

from mirrormaker.errors import Undeliverable
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker import stream_metadata
from mirrormaker.worker.handler import Handler
from mirrormaker.worker.handler import Record as HandlerRecord
from mirrormaker.worker.interrupts import Renumber
from mirrormaker.worker.stream import Stream
from tests.support.batches import Record, write_batch
from tests.support.spread_world import BAD, NOW, US, Actor, Log, World
from tests.support.worker_stage import LogStage, batches, until

Handle = Callable[[HandlerRecord], list[HandlerRecord]]
Play = Callable[[Callable[[LogStage], Awaitable[None]]], None]


def world_of(sizes: tuple[int, ...], bad: int) -> World:
    """Return a world of two target partitions, with batches of these sizes and one bad record."""
    world = World(random.Random(1))
    world.logs, world.deleted = [Log(), Log()], [[], []]
    world.is_recreated, world.bad = False, {bad}
    world.records, world.batches, world.starts = [], [], []
    for size in sizes:
        first = len(world.records)
        rows = [Record(NOW + n, b"k", (BAD if n == bad else b"v") + b"%d" % n) for n in range(first, first + size)]
        world.starts.append(first)
        world.batches.append(write_batch(rows, base_offset=first).data)
        world.records += rows
    return world


async def mirror(world: World, monkeypatch: pytest.MonkeyPatch) -> Exception | None:
    """Mirror everything; go on after a record that is given up, as the driver does. Return another reason to stop."""
    cuts: tuple[Cut, ...] = (Cut(0, 0, 0), Cut(1, 0, 0))
    start = Position("t", 3, 0, 0, "", US, "target", world.topic_id.hex(), 2, cuts)
    actor = Actor(world, start, monkeypatch, clean=True)
    for _ in range(5000):
        if actor.cursor.done.done():
            reason: Exception | None = actor.cursor.done.result()
            closing = actor.cursor.closing
            if not isinstance(reason, Undeliverable):
                assert isinstance(reason, Exception)
                return reason
            identity = Identity(closing.identity.producer_id + 1, 0)
            cuts = tuple(Cut(c.partition, 0, c.offset, "", c.ahead) for c in closing.cuts)
            after = replace(closing, offset=reason.offset + 1, identity=identity, cuts=cuts, leader_epoch=-1)
            actor = Actor(world, after, monkeypatch, clean=True)
        if actor.cursor.offset == len(world.records):
            break
        actor.fetch()
        actor.answer(smoothly=True)
        await asyncio.sleep(0.001)
    actor.run.cancel()
    await asyncio.gather(actor.run, return_exceptions=True)
    return None


def mirrored(world: World, handle: Handle, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[int]]:
    """Return the records that both target partitions hold in the end."""
    assert mirrored_until(world, handle, monkeypatch) is None
    first, second = world.logs
    return first.values(), second.values()


def mirrored_until(world: World, handle: Handle, monkeypatch: pytest.MonkeyPatch) -> Exception | None:
    """Mirror everything; return the reason if a partition stops before that."""
    init = Stream.__init__

    def with_handler(stream: Stream, *args: object) -> None:
        init(stream, *args)  # type: ignore[arg-type]
        stream.handler = Handler(handle)

    monkeypatch.setattr(Stream, "__init__", with_handler)
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)
    monkeypatch.setattr(stream_metadata, "_REFRESH_PAUSE", 0.0)
    return asyncio.run(mirror(world, monkeypatch))


SIZES = [((6,), 2), ((1, 1, 1), 1), ((20,), 0)]


@pytest.mark.parametrize(("sizes", "bad"), SIZES)
def test_copies_of_a_given_up_record_are_not_counted_as_records_after_it(
    sizes: tuple[int, ...], bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copies(record: HandlerRecord) -> list[HandlerRecord]:
        return [replace(record, partition=0), replace(record, partition=1, value=b"copy")]

    world = world_of(sizes, bad)
    first, second = mirrored(world, copies, monkeypatch)
    numbers = list(range(len(world.records)))
    assert first == [n for n in numbers if n != bad]
    assert second == numbers, "the second partition takes every copy, once and in order"


def test_a_handler_that_returns_other_records_each_time_and_a_refused_batch_are_named_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records of the other target partition cannot be told from new ones: only another identity helps, and not for long."""
    numbers = count()

    def differs(record: HandlerRecord) -> list[HandlerRecord]:
        return [replace(record, partition=0), replace(record, partition=1, value=b"%d" % next(numbers))]

    reason = mirrored_until(world_of((6,), 2), differs, monkeypatch)
    assert isinstance(reason, Renumber)
    assert reason.reason.startswith("the source is not what was mirrored")
    assert "; the target refuses a batch there: " in reason.reason and "INVALID_RECORD" in reason.reason


@pytest.mark.parametrize(("sizes", "bad"), SIZES)
def test_a_record_that_two_target_partitions_refuse_is_given_up(
    sizes: tuple[int, ...], bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copies(record: HandlerRecord) -> list[HandlerRecord]:
        return [replace(record, partition=0), replace(record, partition=1)]

    world = world_of(sizes, bad)
    others = [n for n in range(len(world.records)) if n != bad]
    assert mirrored(world, copies, monkeypatch) == (others, others)


def test_a_record_that_became_several_refused_batches_is_given_up(
    play_with_log: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))

    async def scene(stage: LogStage) -> None:
        stage.stream.work = replace(stage.stream.work, batch_bytes=300)
        stage.target_log.start = 1000
        stage.stream.handler = Handler(lambda record: [replace(record, value=b"x" * 100)] * 5)
        cursor = stage.take(clean=True)
        await until(lambda: cursor.flowing)
        for _ in range(2000):
            if cursor.flowing and cursor.expected == 100:
                stage.fetched(cursor, batches(1))
            while stage.wires[1].waiting:
                stage.wires[1].answer(error=87)
            if cursor.done.done():
                break
            await asyncio.sleep(0.001)
        assert isinstance(cursor.done.result(), Undeliverable)

    play_with_log(scene)
