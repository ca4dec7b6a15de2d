"""Receiving, against a peer that does whatever a test wants: answers in pieces, lies, stalls, hangs up."""

from __future__ import annotations

import asyncio
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrormaker.errors import AuthenticationFailed, ConnectionLost
from tests.support.peer import connected, correlation_of, echo, frame, hear, run, silence

SMALL = 16 * 1024  # what the connection reads at once; frames around that size are the interesting ones

sizes = st.one_of(st.integers(0, 100), st.integers(SMALL - 20, SMALL + 20), st.sampled_from([3 * SMALL, 200_000]))


@settings(max_examples=40)
@given(st.lists(sizes, min_size=1, max_size=5), st.lists(st.integers(1, 2 * SMALL), min_size=1, max_size=6))
@example([10, 0, 300], [1])
@example([SMALL - 8, SMALL - 4, SMALL - 3, SMALL, SMALL + 1], [SMALL])
@example([100_000, 5, 100_000], [4])
@example([100_000, 5, 100_000], [SMALL + 1, 3])
def test_answers_arrive_whole_and_in_order_however_they_are_cut_up(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([n + 1]) * size for n, size in enumerate(sizes)]

    async def in_pieces(reader: Reader, writer: Writer) -> None:
        stream = b"".join([frame(correlation_of(await hear(reader)), body) for body in bodies])
        at = count = 0
        while at < len(stream):
            # Crumbs at first, and at the borders; whole pieces where thousands of crumbs would only take time.
            cut = cuts[count % len(cuts)] if count < 200 else 4 * SMALL
            writer.write(stream[at : at + cut])
            at, count = at + cut, count + 1
            await asyncio.sleep(0)
        await silence(reader, writer)

    async def test() -> None:
        async with connected(in_pieces) as connection:
            answers = [connection.request(1, 4, False, []) for _ in bodies]
            assert [bytes(a) for a in await asyncio.gather(*answers)] == bodies
            assert connection.is_quiet
            assert connection.bytes_in == sum(len(body) + 8 for body in bodies)

    run(test())


def test_a_connection_is_not_quiet_while_an_answer_is_under_way() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def talk(reader: Reader, writer: Writer) -> None:
            for size in (100, 100_000):
                answer = frame(correlation_of(await hear(reader)), bytes(size))
                writer.write(answer[:50])
                await go_on.wait()
                go_on.clear()
                writer.write(answer[50:])
            await silence(reader, writer)

        async with connected(talk) as connection:
            for _ in range(2):
                assert connection.is_quiet
                answer = connection.request(1, 4, False, [])
                while connection.is_quiet:
                    await asyncio.sleep(0.001)
                go_on.set()
                await answer
            assert connection.is_quiet

    run(test())


def test_large_answers_may_be_written_to() -> None:
    """Batches are stamped in the frame that they came in, small or large."""

    async def test() -> None:
        async with connected(echo) as connection:
            for size in (10, 10 * SMALL):
                body = await connection.request(1, 4, False, [bytes(size)])
                body[0] = 7
                assert body[0] == 7

    run(test())


# -- a peer that cannot be trusted


def test_an_answer_to_another_question_ends_the_connection() -> None:
    async def liar(reader: Reader, writer: Writer) -> None:
        writer.write(frame(correlation_of(await hear(reader)) + 1, b""))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(liar) as connection:
            first, second = connection.request(1, 4, False, []), connection.request(1, 4, False, [])
            for answer in (first, second):
                with pytest.raises(ConnectionLost, match="an answer that belongs to no request"):
                    await answer
            assert not connection.is_open

    run(test())


def test_an_answer_that_nobody_waits_for_ends_the_connection() -> None:
    async def chatterbox(reader: Reader, writer: Writer) -> None:
        writer.write(frame(1, b"hello"))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(chatterbox) as connection:
            while connection.is_open:
                await asyncio.sleep(0.001)
            assert "belongs to no request" in str(connection.error)

    run(test())


@pytest.mark.parametrize(
    "said", [struct.pack(">i", -1), struct.pack(">i", 3), struct.pack(">i", (256 << 20) + 1), b"HTTP/1.1 400 Bad Request"]
)  # fmt: skip
def test_a_frame_of_an_impossible_size_ends_the_connection_and_hints_at_the_cause(said: bytes) -> None:
    async def stranger(reader: Reader, writer: Writer) -> None:
        await hear(reader)
        writer.write(said)
        await silence(reader, writer)

    async def test() -> None:
        async with connected(stranger) as connection:
            with pytest.raises(ConnectionLost, match=r"frame of -?\d+ bytes: is that a Kafka broker, without TLS\?"):
                await connection.request(1, 4, False, [])

    run(test())


_HEARTBEAT, _METADATA = 12, 3


@pytest.mark.parametrize(("api_key", "longest"), [(_HEARTBEAT, 1 << 20), (_METADATA, 64 << 20)])
def test_an_answer_longer_than_its_request_allows_ends_the_connection_before_it_is_received(
    api_key: int, longest: int
) -> None:
    async def stranger(reader: Reader, writer: Writer) -> None:
        await hear(reader)
        writer.write(struct.pack(">i", longest + 1))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(stranger) as connection:
            with pytest.raises(ConnectionLost, match=f"frame of {longest + 1} bytes"):
                await connection.request(api_key, 0, False, [])
            assert connection.bytes_in == 4

    run(test())


def test_a_long_answer_that_nobody_waits_for_is_not_received() -> None:
    async def chatterbox(reader: Reader, writer: Writer) -> None:
        writer.write(struct.pack(">i", 1 << 20))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(chatterbox) as connection:
            while connection.is_open:
                await asyncio.sleep(0.001)
            assert "frame of 1048576 bytes" in str(connection.error)

    run(test())


def test_an_alert_in_place_of_an_answer_means_that_tls_is_spoken_there() -> None:
    async def secured(reader: Reader, writer: Writer) -> None:
        await hear(reader)
        writer.write(b"\x15\3\3\0\2\2\x50")
        await silence(reader, writer)

    async def test() -> None:
        async with connected(secured) as connection:
            with pytest.raises(AuthenticationFailed, match=r"it speaks TLS: .* security\.protocol to SSL or SASL_SSL"):
                await connection.request(1, 4, False, [])

    run(test())


@pytest.mark.parametrize("size", [0, 100, 100_000])
@pytest.mark.parametrize("kept", [0, 3, 8, 60, 50_000])
def test_a_peer_that_hangs_up_in_the_middle_ends_all_that_wait(size: int, kept: int) -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(frame(correlation_of(await hear(reader)), bytes(size))[:kept])
        await hear(reader)
        writer.close()

    async def test() -> None:
        async with connected(talk) as connection:
            first, second = connection.request(1, 4, False, []), connection.request(1, 4, False, [])
            if kept >= size + 8:
                await first
            else:
                with pytest.raises(ConnectionLost, match="closed the connection"):
                    await first
            with pytest.raises(ConnectionLost, match="closed the connection"):
                await second
            with pytest.raises(ConnectionLost, match="closed the connection"):
                connection.request(1, 4, False, [])

    run(test())
