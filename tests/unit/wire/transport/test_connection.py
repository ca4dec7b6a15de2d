"""Opening, sending and closing, against a peer that does whatever a test wants."""

from __future__ import annotations

import asyncio
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from functools import partial
from typing import Any

import pytest
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest

from mirrormaker.errors import ConnectionLost, UnsupportedRequest
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.protocol.messages import HeartbeatRequest
from mirrormaker.wire.transport.connection import Connection
from tests.support.peer import connected, correlation_of, echo, frame, hear, run, silence

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
            first = connection.request(fetch.API_KEY, 3, False, parts)
            second = connection.request(fetch.API_KEY, 3, False, [b"behind it"])
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
            first = connection.request(fetch.API_KEY, 3, False, [large, b""])
            second = connection.request(fetch.API_KEY, 3, False, [b"", b"x", b""])
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


def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(reader: Reader, writer: Writer) -> None:
        writer.write(frame(correlation_of(await hear(reader)), bytes(2)))
        await silence(reader, writer)

    async def test() -> None:
        async with connected(talk) as connection:
            request = connection.request

            def cancelled_by_its_answer(*wanted: Any) -> asyncio.Future[memoryview]:
                answer = request(*wanted)
                answer.add_done_callback(lambda _: asking.cancel())
                return answer

            monkeypatch.setattr(connection, "request", cancelled_by_its_answer)
            asking = asyncio.ensure_future(connection.ask(HeartbeatRequest(), 5, version=0))
            await asyncio.wait([asking])
            assert asking.cancelled()

    run(test())
