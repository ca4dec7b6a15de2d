"""One connection against a peer that does whatever a test wants: answers in crumbs, lies, stalls, hangs up."""

from __future__ import annotations

import asyncio
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

from mirrormaker.errors import AuthenticationFailed, ConnectionLost, UnsupportedRequest
from mirrormaker.wire.transport.connection import Connection
from tests.support.wire_peer import connected, correlation_of, echo, frame, hear, run, silence

SMALL = 16 * 1024  # what the connection reads at once; frames around that size are the interesting ones


# -- requests


@pytest.mark.parametrize("flexible", [False, True])
def test_a_request_has_the_header_that_kafka_python_would_write(flexible: bool) -> None:
    async def test() -> None:
        heard = asyncio.get_running_loop().create_future()

        async def talk(reader: Reader, writer: Writer) -> None:
            heard.set_result(await hear(reader))

        async with connected(talk) as connection:
            connection.request(1, 12, flexible, [b"bo", bytearray(b"d"), memoryview(b"y")])
            header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=1, client_id="us")
            assert await heard == header.encode(flexible=flexible) + b"body"

    run(test())


@pytest.mark.parametrize(
    ("api_key", "flexible", "after"), [(1, False, b"body"), (1, True, b"\0body"), (18, True, b"body")]
)
def test_an_answer_comes_without_its_header(api_key: int, flexible: bool, after: bytes) -> None:
    """Flexible versions have one more byte there, except for ApiVersions."""

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(frame(correlation_of(await hear(reader)), after))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(talk) as connection:
            assert bytes(await connection.request(api_key, 3, flexible, [])) == b"body"

    run(test())


def test_a_request_of_very_many_and_empty_buffers_arrives_whole() -> None:
    parts = [b"", *(bytes([n % 256]) * (n % 7) for n in range(3000)), b""]

    async def test() -> None:
        async with connected(echo) as connection:
            assert bytes(await connection.request(0, 3, False, parts)) == b"".join(parts)
            assert bytes(await connection.request(0, 3, False, [b""])) == b""

    run(test())


def test_a_large_request_to_a_slow_reader_arrives_whole_and_says_when_it_is_gone() -> None:
    parts = [bytes([n]) * 3_000_000 for n in range(10)]

    async def slow(reader: Reader, writer: Writer) -> None:
        await asyncio.sleep(0.05)
        await echo(reader, writer)

    async def test() -> None:
        async with connected(slow) as connection:
            drained = asyncio.Event()
            connection.on_drain = drained.set
            first = connection.request(0, 3, False, parts)
            second = connection.request(0, 3, False, [b"behind it"])
            assert not connection.can_write, "30 MB do not fit into the kernel"
            assert not drained.is_set()
            assert bytes(await first) == b"".join(parts)
            assert bytes(await second) == b"behind it"
            assert drained.is_set()
            assert connection.can_write

    run(test())


def test_empty_buffers_in_a_request_that_has_to_wait_do_not_block_what_follows() -> None:
    async def slow(reader: Reader, writer: Writer) -> None:
        await asyncio.sleep(0.02)
        await echo(reader, writer)

    async def test() -> None:
        async with connected(slow) as connection:
            large = bytes(20_000_000)
            first = connection.request(0, 3, False, [large, b""])
            second = connection.request(0, 3, False, [b"", b"x", b""])
            assert len(await first) == len(large)
            assert bytes(await second) == b"x"
            while not connection.can_write:
                await asyncio.sleep(0.001)

    run(test(), within=1)


def test_answers_and_their_absence_are_told_at_once_and_in_order() -> None:
    """Without a future in between: a batch's answer must not wait for a turn of the event loop."""

    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(frame(correlation_of(await hear(reader)), b"first"))
        await hear(reader)
        await hear(reader)
        writer.close()

    async def test() -> None:
        told: list[tuple[int, bytes | None, str]] = []

        def answered(number: int, data: memoryview | None, error: Exception | None) -> None:
            told.append((number, None if data is None else bytes(data), str(error or "")))

        async with connected(talk) as connection:
            for number in range(3):
                connection.send(0, 3, False, [], partial(answered, number))
            while connection.is_open:
                await asyncio.sleep(0.001)
            gone = f"{connection} closed the connection"
            assert told == [(0, b"first", ""), (1, None, gone), (2, None, gone)]

    run(test())


# -- answers

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
                with pytest.raises(ConnectionLost, match="a question that was not asked"):
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
            assert "was not asked" in str(connection.error)

    run(test())


@pytest.mark.parametrize(
    "said", [struct.pack(">i", -1), struct.pack(">i", 3), struct.pack(">i", 1001), b"HTTP/1.1 400 Bad Request"]
)  # fmt: skip
def test_a_frame_of_an_impossible_size_ends_the_connection_and_hints_at_the_cause(said: bytes) -> None:
    async def stranger(reader: Reader, writer: Writer) -> None:
        await hear(reader)
        writer.write(said)
        await silence(reader, writer)

    async def test() -> None:
        async with connected(stranger, max_frame=1000) as connection:
            with pytest.raises(ConnectionLost, match=r"frame of -?\d+ bytes: is that a Kafka broker, without TLS\?"):
                await connection.request(1, 4, False, [])

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


def test_a_refused_connection_is_one_line_with_the_address() -> None:
    async def test() -> None:
        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionLost, match=rf"127\.0\.0\.1:{port}: connect"):
            await Connection("127.0.0.1", port, client_id="us").open(5)

    run(test())


# -- closing


def test_closing_in_order_lets_the_peer_read_what_was_sent() -> None:
    async def test() -> None:
        heard = asyncio.get_running_loop().create_future()

        async def talk(reader: Reader, writer: Writer) -> None:
            await asyncio.sleep(0.02)
            heard.set_result(await reader.read())

        async with connected(talk) as connection:
            answer = connection.request(1, 4, False, [b"last words"])
            connection.close()
            assert (await heard).endswith(b"last words")
            with pytest.raises(ConnectionLost, match="was closed"):
                await answer

    run(test())


def test_aborting_resets_the_connection() -> None:
    """What the broker has not read yet is dropped there, and does not run later."""

    async def test() -> None:
        ended = asyncio.get_running_loop().create_future()

        async def talk(reader: Reader, writer: Writer) -> None:
            try:
                await reader.read()
            except ConnectionResetError as error:
                ended.set_result(error)

        async with connected(talk) as connection:
            answer = connection.request(1, 4, False, [b"x"])
            await asyncio.sleep(0.01)
            connection.close(abort=True)
            assert isinstance(await ended, ConnectionResetError)
            with pytest.raises(ConnectionLost):
                await answer
            connection.close()  # a second time does nothing

    run(test())


def test_an_answer_that_nobody_wants_any_more_does_no_harm() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            given_up = connection.request(1, 4, False, [b"first"])
            given_up.cancel()
            assert bytes(await connection.request(1, 4, False, [b"second"])) == b"second"

    run(test())


# -- the lease


def test_without_a_lease_nothing_leaves_and_the_connection_is_reset() -> None:
    async def test() -> None:
        allowed = True
        heard = bytearray()
        ended = asyncio.get_running_loop().create_future()

        async def talk(reader: Reader, writer: Writer) -> None:
            try:
                while data := await reader.read(1000):
                    heard.extend(data)
                ended.set_result(None)
            except ConnectionResetError as error:
                ended.set_result(error)

        async with connected(talk, lease=lambda: allowed) as connection:
            before = connection.request(0, 3, False, [b"in time"])
            await asyncio.sleep(0.01)
            allowed = False
            after = connection.request(0, 3, False, [b"too late"])
            for answer in (before, after):
                with pytest.raises(ConnectionLost, match="the lease ran out"):
                    await answer
            assert isinstance(await ended, ConnectionResetError)
            assert heard.endswith(b"in time")

    run(test())


def test_a_lease_that_runs_out_stops_a_request_in_its_middle() -> None:
    size = 30_000_000

    async def test() -> None:
        allowed = True
        heard = 0
        read_on = asyncio.Event()
        ended = asyncio.get_running_loop().create_future()

        async def talk(reader: Reader, writer: Writer) -> None:
            nonlocal heard
            await read_on.wait()
            try:
                while data := await reader.read(1 << 20):
                    heard += len(data)
                ended.set_result(None)
            except ConnectionResetError as error:
                ended.set_result(error)

        async with connected(talk, lease=lambda: allowed) as connection:
            answer = connection.request(0, 3, False, [bytes(size)])
            assert not connection.can_write
            allowed = False
            read_on.set()
            with pytest.raises(ConnectionLost, match="the lease ran out"):
                await answer
            assert isinstance(await ended, ConnectionResetError)
            assert heard < size

    run(test())


# -- kafka-python's messages


def test_a_question_is_answered_in_the_newest_version_that_both_sides_know() -> None:
    entry = ApiVersionsResponse.ApiVersion

    async def broker(reader: Reader, writer: Writer) -> None:
        request = await hear(reader)
        version = struct.unpack_from(">h", request, 2)[0]
        answer = ApiVersionsResponse(error_code=0, api_keys=[entry(api_key=18, min_version=0, max_version=version)])
        writer.write(frame(correlation_of(request), answer.encode(version=version)))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(broker) as connection:
            connection.versions = {18: (0, 2)}
            answer = await connection.ask(ApiVersionsRequest(), 5)
            assert [(v.api_key, v.max_version) for v in answer.api_keys] == [(18, 2)]

    run(test())


def test_a_question_without_an_answer_ends_the_connection() -> None:
    """Later answers could not be told apart from it."""

    async def test() -> None:
        async with connected(silence) as connection:
            with pytest.raises(ConnectionLost, match=r"did not answer ApiVersionsRequest within 0\.02 s"):
                await connection.ask(ApiVersionsRequest(), 0.02, version=0)
            assert not connection.is_open

    run(test())


def test_a_request_that_the_broker_does_not_know_is_refused_by_name() -> None:
    connection = Connection("host", 9092, client_id="us")
    with pytest.raises(UnsupportedRequest, match="host:9092 does not know MetadataRequest"):
        connection.best_version(MetadataRequest)
    connection.versions = {3: (1000, 1001)}
    with pytest.raises(UnsupportedRequest, match="only from version 1000 on"):
        connection.best_version(MetadataRequest)
