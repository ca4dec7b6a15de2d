"""One source partition that spreads over several target partitions, through hundreds of short histories of trouble.

Everything from `accept` to `Sender` is the real thing; only the brokers are played: their logs take a batch as real
ones do (the next number of a known identity, or one of the last five again), and around them requests are refused,
appended but not confirmed, lost with their connection, and delivered after their sender is dead. Streams crash and are
replaced at a position that was reported some time before. In the end every record is there once, in its place, in
order.

In a fifth of the histories the target topic is deleted and created again, with requests on their way to it. In the end
the new logs hold each record at most once and in order, and all records that the deleted logs do not hold.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from mirrormaker.wire.records import columns as columns_module
from mirrormaker.worker import cursor as cursor_module
from mirrormaker.worker import intake as intake_module
from mirrormaker.worker import stream_metadata
from mirrormaker.worker.cursor import Cursor
from tests.support.spread_world import Actor, World, consistent

_make_certain = Cursor.make_certain
HISTORIES = 120
# Histories in which records that were refused together never ended, a topic was created again while its end was awaited,
# records that were ahead in a deleted topic counted in the new one, and a new log was read from where the old one had ended.
NOTABLE = (2185, 2585, 2121, 78)


async def history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = world.chance

    async def make_certain(cursor: Cursor) -> None:
        """By the time that the logs are read, requests of the dead are appended, or never will be."""
        while world.on_the_way:
            partition, data = world.on_the_way.pop(0)
            if chance.random() < 0.5:
                world.logs[partition].take(data)
        world.is_certain = True  # the driver goes on in these logs
        try:
            await _make_certain(cursor)
        except BaseException:
            world.is_certain = False
            raise

    monkeypatch.setattr(Cursor, "make_certain", make_certain)
    # In some histories a fetch is processed in many small steps, and everything else may happen between two of them.
    monkeypatch.setattr(intake_module, "_MAX_TURN", chance.choice((-1.0, 1000.0)))
    monkeypatch.setattr(intake_module, "_PIECE", chance.choice((1, 100, 4 << 20)))
    monkeypatch.setattr(columns_module, "MOST_RECORDS", chance.choice((1, 7, 1 << 16)))
    actor = Actor(world, world.start(), monkeypatch, clean=True)
    reported = world.start()
    for _ in range(150):
        what = chance.random()
        if what < 0.35:
            actor.fetch()
        elif what < 0.8:
            actor.answer(smoothly=False)
        elif what < 0.83:
            actor.lose_a_connection()
        elif what < 0.86:
            reported = actor.cursor.current
            assert consistent(world, reported), f"a successor of {reported} gives other numbers"
        elif what < 0.88:
            actor.crash()
            await asyncio.gather(actor.run, return_exceptions=True)
            actor = Actor(world, replace(reported), monkeypatch, clean=False)
        elif what < 0.90:
            actor = await actor.hand_over(monkeypatch)
            reported = actor.cursor.current
        elif what < 0.92 and world.on_the_way:
            partition, data = world.on_the_way.pop(0)
            world.logs[partition].take(data)
        elif what < 0.94 and world.is_recreated and world.incarnation < 4 and not world.is_certain:
            world.create_again()
        for _ in range(chance.choice((0, 1, 5))):
            await asyncio.sleep(0)
        if actor.cursor.done.done():
            actor = actor.go_on(monkeypatch)
            reported = actor.cursor.current
    for _ in range(20_000):
        if actor.cursor.offset == len(world.records):
            break
        if actor.cursor.done.done():
            actor = actor.go_on(monkeypatch)
        actor.fetch()
        actor.answer(smoothly=True)
        await asyncio.sleep(0)
    else:
        raise AssertionError(f"{actor.cursor} is {actor.cursor.state} at {actor.cursor.current}: {actor.cursor.note}")
    assert consistent(world, actor.cursor.current)
    assert world.seen["given up"] == len(world.bad)
    await asyncio.gather(actor.delivery)
    assert actor.stream.buffer.bytes == 0, "memory that nobody gives back"
    actor.run.cancel()
    await asyncio.gather(actor.run, return_exceptions=True)
    world.check()


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, HISTORIES, 20)] + [NOTABLE])
def test_each_record_arrives_once_in_its_place_and_in_order(
    seeds: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_module, "_BACKOFF", (0.0,))
    monkeypatch.setattr(cursor_module, "ZOMBIE_HORIZON", 0.0)
    monkeypatch.setattr(stream_metadata, "_REFRESH_PAUSE", 0.0)
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(random.Random(seed))
        try:
            asyncio.run(history(world, monkeypatch))
            seen += world.seen
        except BaseException as error:
            print(f"history {seed}: {error!r}")
            raise
    assert seen["even"], "no partition was let go in order"
