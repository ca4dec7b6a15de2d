"""The buffer of a stream: what was fetched and what was asked for never exceed it together."""

from __future__ import annotations

import asyncio
import random

from mirrormaker.worker.buffer import Buffer, Frame


def test_polls_and_answers_together_stay_within_the_limit_whatever_comes_in_which_order() -> None:
    async def scene() -> None:
        rng = random.Random(1)
        for brokers in (1, 3, 30):
            buffer = Buffer(32 << 20, None)
            polls: dict[int, int] = {}
            frames: list[Frame] = []
            for _ in range(5000):
                broker = rng.randrange(brokers)
                if broker in polls:
                    asked = polls.pop(broker)
                    buffer.reserve(-asked)
                    frames.append(Frame(buffer, rng.randint(0, asked)))
                elif not buffer.is_full:
                    polls[broker] = buffer.room_for_poll(brokers)
                    buffer.reserve(polls[broker])
                elif frames:
                    frames.pop(rng.randrange(len(frames))).drop(0)
                assert buffer.bytes + buffer.reserved <= buffer.max_bytes
            for frame in frames:
                frame.drop(0)
            assert (buffer.bytes, buffer.reserved) == (0, sum(polls.values()))

    asyncio.run(scene())


def test_idle_polls_leave_room_for_a_broker_that_has_records() -> None:
    async def scene() -> None:
        buffer = Buffer(32 << 20, None)
        for _ in range(3):
            buffer.reserve(buffer.room_for_poll(3))
        assert not buffer.is_full
        buffer.reserve(-buffer.max_bytes // 4)
        frame = Frame(buffer, 8 << 20)
        assert buffer.room_for_poll(3) == 8 << 20, "the next poll goes out while an answer is processed"
        frame.drop(0)

    asyncio.run(scene())


def test_less_is_fetched_where_records_grow() -> None:
    async def scene() -> None:
        buffer = Buffer(32 << 20, None)
        for _ in range(50):
            buffer.note_growth(1, 4)
        assert abs(buffer.room_for_poll(1) - (4 << 20)) < 1000

    asyncio.run(scene())


def test_whoever_waits_for_room_goes_on_when_a_reservation_is_given_back() -> None:
    async def scene() -> None:
        buffer = Buffer(1000, None)
        buffer.reserve(1000)
        waiting = asyncio.create_task(buffer.wait_for_room())
        await asyncio.sleep(0)
        assert buffer.is_full and not waiting.done()
        buffer.reserve(-1)
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scene())


def test_the_peak_counts_from_the_last_question_on() -> None:
    buffer = Buffer(1000, None)
    buffer.count(700, 1)
    buffer.count(-600, -1)
    assert (buffer.peak(), buffer.peak()) == (700, 100)
