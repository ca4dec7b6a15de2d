"""The control server and everyone who is not a stream: strangers that connect, and relays in between."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mirrormaker.control import control_client as client_module
from mirrormaker.control import control_server as server_module
from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_messages import Order, Report
from mirrormaker.control.control_server import ControlServer
from mirrormaker.control.control_session import HANDSHAKE_BYTES
from mirrormaker.control.frames import FrameConnection, framed
from mirrormaker.errors import ConnectionLost, DriverGone


class Flow:
    """A listener that writes down what it hears."""

    may_answer = True

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []

    def stream_arrived(self, stream: int) -> None:
        self.heard.append(("arrived", stream))

    def stream_reported(self, stream: int, report: Report) -> None:
        self.heard.append(("reported", report.number))

    def stream_left(self, stream: int) -> None:
        self.heard.append(("left", stream))


def with_server(body: Callable[[ControlServer, Flow], Awaitable[None]]) -> None:
    """Run a test with a server; fail if something ends in a traceback."""
    unhandled: list[dict[str, Any]] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        server, flow = ControlServer(), Flow()
        server.register(0, flow)
        await server.open("127.0.0.1", "127.0.0.1")
        try:
            await asyncio.wait_for(body(server, flow), 20)
        finally:
            await server.close()
            await asyncio.sleep(0.05)  # connections that were closed are gone only after a turn of the loop

    asyncio.run(whole())
    assert not unhandled


async def stream(server: ControlServer, address: tuple[str, int] | None = None) -> ControlClient:
    return await ControlClient.open(address or server.address, server.secret, 0, 1, 0, 0)


def stranger(server: ControlServer, says: bytes) -> socket.socket:
    """Connect, and send as much as the kernel takes."""
    connection = socket.create_connection(server.address)
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        while says:
            says = says[connection.send(says) :]
    return connection


async def is_hung_up_on(connection: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 1000), 2):
            pass
    return True


@pytest.mark.parametrize("says", [struct.pack(">I", HANDSHAKE_BYTES), struct.pack(">I", 1 << 26), b"{" * 4])
def test_strangers_cost_a_few_bytes_each_and_there_are_few_of_them(
    says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server_module._MAX_STRANGERS * HANDSHAKE_BYTES <= 64 << 10
    monkeypatch.setattr(server_module, "_MAX_STRANGERS", 64)

    async def body(server: ControlServer, flow: Flow) -> None:
        data = says + bytes(1 << 20)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            strangers: list[socket.socket] = []
            for n in range(150):
                strangers.append(stranger(server, data[: HANDSHAKE_BYTES - 10] if n % 2 else data))
                if n % 50 == 0:  # the kernel lets only so many wait
                    await asyncio.sleep(0.01)
            for _ in range(20):
                await asyncio.sleep(0.01)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(server._strangers) <= 64
        assert sum(len(connection._buffer) for connection in server._strangers) <= 64 * HANDSHAKE_BYTES
        # Sockets, transports and tasks of 150 connections that came at once; their bytes stay in the kernel.
        assert most - before < 3 << 20
        client = await stream(server)
        await client.report(Report(1))
        assert await client.next_order() == Order(heard=1)
        client.close()
        for connection in strangers:
            connection.close()

    with_server(body)


def test_streams_that_start_at_the_same_moment_are_all_let_in() -> None:
    async def body(server: ControlServer, flow: Flow) -> None:
        opening = (ControlClient.open(server.address, server.secret, 0, 1, number, 0) for number in range(100))
        clients = await asyncio.gather(*opening)
        assert sorted(flow.heard) == [("arrived", number) for number in range(100)]
        for client in clients:
            client.close()

    with_server(body)


def test_a_stranger_that_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HELLO_WITHIN", 0.2)

    async def body(server: ControlServer, flow: Flow) -> None:
        with stranger(server, b"") as silent, stranger(server, framed(bytes(100))[:50]) as slow:
            assert await is_hung_up_on(silent)
            assert await is_hung_up_on(slow)
        assert not server._strangers
        assert not flow.heard

    with_server(body)


@pytest.mark.parametrize(
    "says",
    [b"[]\n", b"1\n", b'{"proof":"\xc3\xa9"}\n', b"[" * 100_000, bytes(4), *map(framed, [b"[]", b"1", bytes(102)])],
)
def test_a_stranger_that_says_something_else_is_hung_up_on_without_a_traceback(
    says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_HELLO_WITHIN", 0.3)

    async def body(server: ControlServer, flow: Flow) -> None:
        with stranger(server, says) as connection:
            assert await is_hung_up_on(connection)
        assert not flow.heard

    with_server(body)


def test_a_stream_says_what_is_wrong_with_a_driver_of_another_version() -> None:
    async def body(server: ControlServer, flow: Flow) -> None:
        def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(framed(b"MMcc\x00\x07" + bytes(60)))
            writer.close()

        other = await asyncio.start_server(answer, "127.0.0.1", 0)
        with pytest.raises(DriverGone, match="version 7"):
            await stream(server, other.sockets[0].getsockname()[:2])
        other.close()

    with_server(body)


def test_a_stream_does_not_wait_for_a_driver_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_CONNECT_WITHIN", 0.2)

    async def body(server: ControlServer, flow: Flow) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = silent.getsockname()
            with pytest.raises(DriverGone):
                await stream(server, address)
        with pytest.raises(DriverGone):
            await stream(server, address)

    with_server(body)


class Relay:
    """A man in the middle: it passes frames on as a test says."""

    def __init__(self, server: ControlServer, *, to_stream: Callable[[int, bytes], list[bytes]]) -> None:
        """`to_stream` returns what becomes of the driver's frames: it gets their number and bytes."""
        self._server, self._to_stream = server, to_stream
        self._passing: list[asyncio.Task[None]] = []
        self.to_driver: FrameConnection | None = None

    async def open(self) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: FrameConnection(1 << 20, self._connected), "127.0.0.1", 0)
        return "127.0.0.1", int(self._listener.sockets[0].getsockname()[1])

    def _connected(self, connection: FrameConnection) -> None:
        self._passing.append(asyncio.create_task(self._pass_on(connection)))

    async def _pass_on(self, to_stream: FrameConnection) -> None:
        to_driver = self.to_driver = FrameConnection(1 << 20)
        await asyncio.get_running_loop().create_connection(lambda: to_driver, *self._server.address)
        self._passing.append(asyncio.create_task(self._upstream(to_stream, to_driver)))
        number = 0
        try:
            while True:
                for frame in self._to_stream(number, await to_driver.read()):
                    to_stream.write(frame)
                number += 1
        except ConnectionLost:
            pass
        finally:
            to_stream.close()

    @staticmethod
    async def _upstream(to_stream: FrameConnection, to_driver: FrameConnection) -> None:
        try:
            while True:
                to_driver.write(await to_stream.read())
        except ConnectionLost:
            pass
        finally:
            to_driver.close()

    def close(self) -> None:
        self._listener.close()
        for task in self._passing:
            task.cancel()


FORGED = bytes(16) + b'{"heard":1,"stop":true}'


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda number, frame: [FORGED] if number == 2 else [frame], id="forged"),
        pytest.param(lambda number, frame: [frame, frame] if number == 2 else [frame], id="repeated"),
        pytest.param(lambda number, frame: [] if number == 2 else [frame], id="left out"),
        pytest.param(lambda number, frame: [frame.replace(b"1", b"2")] if number == 2 else [frame], id="changed"),
    ],
)
def test_a_stream_does_not_obey_a_relay(tamper: Callable[[int, bytes], list[bytes]]) -> None:
    """The first two frames are challenge and welcome, the third is the answer to report 1, and the fourth that to report 2."""

    async def body(server: ControlServer, flow: Flow) -> None:
        relay = Relay(server, to_stream=tamper)
        client = await stream(server, await relay.open())
        heard: list[int | None] = []
        with pytest.raises(DriverGone):
            for number in (1, 2, 3):
                await client.report(Report(number))
                # A relay that leaves an answer out would make the stream wait for it.
                with contextlib.suppress(asyncio.TimeoutError):
                    heard.append((await asyncio.wait_for(client.next_order(), 0.2)).heard)
        assert heard in ([], [1])
        client.close()
        relay.close()

    with_server(body)


def test_the_driver_hears_no_relay() -> None:
    async def body(server: ControlServer, flow: Flow) -> None:
        relay = Relay(server, to_stream=lambda _, frame: [frame])
        client = await stream(server, await relay.open())
        await client.report(Report(1))
        assert await client.next_order() == Order(heard=1)
        assert relay.to_driver is not None
        relay.to_driver.write(bytes(16) + b'{"process":[0,0,0],"number":2}')
        with pytest.raises(DriverGone):
            await client.next_order()
        assert flow.heard == [("arrived", 0), ("reported", 1), ("left", 0)]
        client.close()
        relay.close()

    with_server(body)
