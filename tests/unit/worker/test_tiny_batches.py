"""A fetch with very many batches of one record: others have their turn while it is looked through."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c

from mirrormaker.wire.records.batch import TRANSACTIONAL, split
from mirrormaker.worker import fetcher as fetcher_module
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.intake import fetch_again
from mirrormaker.worker.stream import Stream
from tests.support.batches import NOW, Record, write_batch
from tests.support.loop_steps import longest_step
from tests.support.source_broker import SourceBroker, row
from tests.support.worker_stage import TASK, Play, Stage, until

MANY = 100_000
MOST = 60_000  # function calls in one step: about 10 ms


def tiny(count: int, *, attributes: int = 0, offset: int = 100) -> memoryview:
    """Return so many batches of one record. A transactional one is of producer 7."""
    one = bytearray(write_batch([Record(NOW, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0).data)
    struct.pack_into(">h", one, 21, attributes)
    struct.pack_into(">I", one, 17, crc32c(bytes(one[21:])))
    data, size = bytearray(bytes(one) * count), len(one)
    for number in range(count):
        struct.pack_into(">q", data, number * size, offset + number)
    return memoryview(data)


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give others their turn after each step, however quick this machine is."""
    monkeypatch.setattr(fetcher_module, "_MAX_TURN", 0.0)


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("partitions", [1, 5])
def test_the_answer_is_split_in_short_steps(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """All of it may belong to one partition, or to several that have little each."""
    got: list[int] = []

    async def accept(cursor: Cursor, *_: object) -> None:
        got.append(cursor.fetch_from[0])

    monkeypatch.setattr(Cursor, "accept", accept)
    each = tiny(MANY // partitions)

    async def play() -> None:
        broker = SourceBroker(Stream(TASK, 0, 0), partitions=partitions)
        fetcher = broker.fetcher()
        for partition in range(partitions):
            fetcher.join(broker.cursor(partition))
        await broker.asked(1)
        end = 100 + MANY // partitions
        broker.answer(*(row(partition, each, high_watermark=end) for partition in range(partitions)))
        assert set((await broker.asked(2)).offsets.values()) == {end}
        await until(lambda: len(got) == partitions)
        fetcher.task.cancel()

    assert longest_step(play()) < MOST


@pytest.mark.usefixtures("short_turns")
def test_a_partition_that_goes_back_meanwhile_gets_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[int] = []

    async def accept(cursor: Cursor, *_: object) -> None:
        got.append(cursor.fetch_from[0])

    monkeypatch.setattr(Cursor, "accept", accept)

    async def play() -> None:
        broker = SourceBroker(Stream(TASK, 0, 0))
        fetcher, cursor = broker.fetcher(), broker.cursor()
        fetcher.join(cursor)
        await broker.asked(1)
        broker.answer(row(0, tiny(MANY), high_watermark=100 + MANY))
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(broker.requests) == 1, "the answer is looked through"
        fetch_again(cursor)
        fetcher.join(cursor)
        assert set((await broker.asked(2)).offsets.values()) == {100}
        fetcher.task.cancel()

    asyncio.run(play())
    assert not got


@pytest.mark.parametrize("last", [0, TRANSACTIONAL])
def test_they_are_packed_together_in_short_steps(play: Play, last: int) -> None:
    """One transaction at the end is enough to look at every batch for itself."""

    # pyarrow loads pandas with its first array.
    pa.array([b""])

    async def scene(stage: Stage) -> None:
        cursor = stage.take()
        await until(lambda: cursor.flowing)
        (run,) = split(memoryview(bytearray(tiny(MANY - 1)) + tiny(1, attributes=last, offset=100 + MANY - 1)))
        frame = Frame(stage.stream.buffer, 1)
        assert longest_of(cursor._intake._steps([run], [], frame)) < 4 * MOST
        frame.drop(0)
        assert cursor.expected == 100 + MANY

    play(scene)


def longest_of(steps: Iterator[bool]) -> int:
    """Return the function calls of the longest step."""
    calls = longest = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    while True:
        calls = 0
        sys.setprofile(count)
        try:
            next(steps)
        except StopIteration:
            return longest
        finally:
            sys.setprofile(None)
            longest = max(longest, calls)
