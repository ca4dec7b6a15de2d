"""A fetch request under way: a thin line may take its time, a silent broker may not, and the next request asks for what fits."""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer

import pytest

from mirrormaker.errors import Silent
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.worker.poll import _LONGEST_PAUSE, FetchLimit, Pace, Poll
from tests.support.peer import connected, correlation_of, frame, hear, run, silence

MB = 1 << 20


def poll_on(connection: Connection, size: int = MB) -> Poll:
    return Poll(connection, 4, b"", size=size, max_wait=0.0, is_new=True)


def test_an_answer_that_keeps_coming_in_may_take_longer_than_the_timeout() -> None:
    """The kernel wakes nobody up before half a megabyte is there, and that may be longer than the timeout too."""

    async def drip(reader: Reader, writer: Writer) -> None:
        answer = frame(correlation_of(await hear(reader)), bytes(400_000))
        for at in range(0, len(answer), 20_000):
            writer.write(answer[at : at + 20_000])
            await asyncio.sleep(0.05)
        await silence(reader, writer)

    async def test() -> None:
        async with connected(drip) as connection:
            assert len(await poll_on(connection).answer(0.4)) == 400_000

    run(test())


def test_a_broker_that_falls_silent_in_the_middle_of_an_answer_is_given_up() -> None:
    async def half(reader: Reader, writer: Writer) -> None:
        answer = frame(correlation_of(await hear(reader)), bytes(400_000))
        writer.write(answer[:100_000])
        await silence(reader, writer)

    async def test() -> None:
        async with connected(half) as connection:
            with pytest.raises(Silent, match="sent nothing"):
                await poll_on(connection).answer(0.1)

    run(test())


@pytest.mark.parametrize(("limit", "received", "seconds", "expected"), [
    (16 * MB, 16 * MB, 8.0, int(0.8 * MB)),  # less than half a second's worth
    (16 * MB, 16 * MB, 0.5, 16 * MB),
    (MB, MB, 0.1, 2 * MB),
    (MB, MB // 3, 0.3, MB),
    (MB, MB // 3, 0.01, 2 * MB),  # partitions had no more to bring, and the line has
    (MB, 100, 0.0, MB),
    (MB, 100, 60.0, 64 << 10),
])  # fmt: skip
def test_the_next_request_asks_for_what_the_line_brings_in_half_a_second(
    limit: int, received: int, seconds: float, expected: int
) -> None:
    line = FetchLimit(32 * MB)
    line.bytes = limit
    line.answered(received, seconds, seconds)
    assert abs(line.bytes - expected) < 1000


def test_a_request_without_an_answer_is_followed_by_a_smaller_one() -> None:
    line = FetchLimit(32 * MB)
    sizes = []
    for _ in range(4):
        line.unanswered(line.bytes)
        sizes.append(line.bytes)
    assert sizes == [256 << 10, 64 << 10, 64 << 10, 64 << 10]


@pytest.mark.parametrize("rate", [MB // 8, MB, 2 * MB, 10 * MB])
def test_on_a_thin_line_answers_settle_below_a_second(rate: int) -> None:
    line, times = FetchLimit(32 * MB), []
    for _ in range(20):
        times.append(line.bytes / rate)
        line.answered(line.bytes, line.bytes / rate, line.bytes / rate)
    assert all(0.2 <= seconds <= 0.8 for seconds in times[10:])


def test_a_wide_line_is_used_as_a_whole_after_a_few_answers() -> None:
    line, received = FetchLimit(32 * MB), 0
    for _ in range(6):
        received += line.bytes
        line.answered(line.bytes, 0.0, line.bytes / (1000 * MB))
    assert line.bytes == 32 * MB and not line.is_thin


def test_over_a_thin_line_a_backlog_leaves_room_for_every_other_partition() -> None:
    """The broker fills an answer from the front; the first partition may bring a batch that is larger than its share."""
    line = FetchLimit(32 * MB)
    assert line.share(MB, 2 * MB, 13) == 2 * MB
    line.answered(MB, 1.0, 1.0)
    size, batch = line.bytes, 256 << 10
    assert 12 * line.share(size, 2 * MB, 13) < size
    # The line is as wide as ever: what partitions bring is less than half of what is asked for.
    for _ in range(10):
        line.answered(batch, 0.0, batch / (1000 * MB))
    assert line.bytes == 32 * MB and line.share(MB, 2 * MB, 13) == 2 * MB


def brought(batch: int, size: int, share: int, partitions: int) -> tuple[int, int]:
    """Return how many bytes a broker answers if each partition has many batches of one size, and of how many partitions.

    It gives the first partition a whole batch at least, and the others whole batches only up to their share.
    """
    total = max(batch, min(share, size) // batch * batch)
    count = 1
    while count < partitions and (more := min(share, size - total) // batch * batch) > 0:
        total += more
        count += 1
    return total, count


@pytest.mark.parametrize("batch", [1 << 10, 16 << 10, 33 << 10, 48 << 10, 100 << 10, 900 << 10])
def test_hundreds_of_partitions_with_a_backlog_are_fetched_quickly_again_after_a_slow_answer(batch: int) -> None:
    line, rate = FetchLimit(32 * MB), 100 * MB
    line.answered(MB, 0.8, 0.8)
    assert line.is_thin
    speeds = []
    for _ in range(30):
        share = line.share(line.bytes, MB, 500)
        received, partitions = brought(batch, line.bytes, share, 500)
        # The broker looks at every partition first, and that takes some milliseconds.
        seconds = received / rate
        line.answered(received, seconds, seconds + 0.013, partitions)
        speeds.append(received / (seconds + 0.013))
    assert speeds[-1] > 20 * MB, [round(speed / MB, 1) for speed in speeds]


def test_an_answer_whose_bytes_come_all_at_once_tells_little_of_the_line() -> None:
    """Something on the way has collected them: the broker may have sent them at once, or have waited."""
    line = FetchLimit(32 * MB)
    line.answered(MB, 1.0, 1.0)
    size = line.bytes
    for _ in range(10):
        line.answered(256 << 10, 0.0, 0.25)
    assert line.bytes == size and line.is_thin


def test_the_transfer_of_an_answer_lasts_from_its_first_byte_to_its_last_at_least() -> None:
    async def late_and_slow(reader: Reader, writer: Writer) -> None:
        answer = frame(correlation_of(await hear(reader)), bytes(400_000))
        await asyncio.sleep(0.3)
        for at in range(0, len(answer), 100_000):
            writer.write(answer[at : at + 100_000])
            await asyncio.sleep(0.05)
        await silence(reader, writer)

    async def test() -> None:
        async with connected(late_and_slow) as connection:
            poll = Poll(connection, 4, b"", size=MB, max_wait=0.5, is_new=True)
            sent_at = time.monotonic()
            await poll.answer(5)
            least, most = poll.transfer
            assert 0.1 < least < most - 0.25
            assert most < time.monotonic() - sent_at + 0.1

    run(test())


def pauses(pace: Pace, batches: int, every: float, seconds: float = 1.0, size: int = 3000) -> list[float]:
    """Return the pause after each of several polls that bring so many batches every so many seconds."""
    count = round(seconds / every)
    return [pace.pause(batches, batches * size, 100 + number * every) for number in range(1, count + 1)]


def test_a_source_with_few_records_is_asked_again_at_once() -> None:
    pace = Pace()
    assert pauses(pace, 1, 0.002) == [0.0] * 500
    # A burst, and silence again.
    pauses(pace, 8, 0.002, 0.2)
    assert pace.pause(1, 3000, 200.0) == 0.0


@pytest.mark.parametrize("every", [0.0005, 0.0015, 0.004, 0.02])
def test_polls_are_milliseconds_apart_while_small_batches_come_all_the_time(every: float) -> None:
    found = pauses(Pace(), max(1, round(2000 * every)), every)
    assert all(pause == pytest.approx(_LONGEST_PAUSE) for pause in found[len(found) // 2 :])
    assert max(found) <= _LONGEST_PAUSE


def test_a_backlog_is_fetched_without_a_pause() -> None:
    assert set(pauses(Pace(), 60, 0.005, size=16 << 10)) == {0.0}
