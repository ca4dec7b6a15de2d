"""A fetch request under way: a thin line may take its time, a silent broker may not, and the next request asks for what fits."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer

import pytest

from mirrormaker.errors import Silent
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.worker.poll import Poll
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


class Line:
    """A connection whose answers take as long as a test says."""

    def __init__(self) -> None:
        self.future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

    def request(self, *_: object) -> asyncio.Future[memoryview]:
        return self.future


@pytest.mark.parametrize(("limit", "received", "seconds", "expected"), [
    (16 * MB, 16 * MB, 10.0, int(1.6 * MB)),  # about a second's worth
    (16 * MB, 16 * MB, 1.5, 16 * MB),
    (MB, MB, 0.5, 2 * MB),
    (MB, MB // 2, 0.1, MB),  # the source has no more
    (MB, 100, 0.1, MB),
    (MB, 100, 60.0, 64 << 10),
    (MB, 0, 60.0, MB // 4),  # no answer at all
    (100 << 10, 0, 60.0, 64 << 10),
])  # fmt: skip
def test_the_next_request_asks_for_what_the_line_brings_in_a_second_or_two(
    limit: int, received: int, seconds: float, expected: int
) -> None:
    async def test() -> None:
        line = Line()
        poll = Poll(line, 4, b"", size=limit, max_wait=0.5, is_new=True)  # type: ignore[arg-type]
        poll._answered_at = poll._sent_at + 0.5 + seconds
        assert abs(poll.next_limit(limit, received) - expected) < 1000

    asyncio.run(test())


def test_on_a_thin_line_answers_settle_at_a_second_or_two() -> None:
    async def test() -> None:
        rate, limit, times = MB, 32 * MB, []
        for _ in range(20):
            poll = Poll(Line(), 4, b"", size=limit, max_wait=0.0, is_new=False)  # type: ignore[arg-type]
            poll._answered_at = poll._sent_at + limit / rate
            times.append(limit / rate)
            limit = min(32 * MB, poll.next_limit(limit, limit))
        assert times[0] == 32.0
        assert all(0.5 <= seconds <= 2.0 for seconds in times[1:])

    asyncio.run(test())
