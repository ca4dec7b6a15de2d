"""A peer for one connection of ours: a server in the same process that does whatever a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mirrormaker.wire.transport.connection import Connection, Lease

Talk = Callable[[Reader, Writer], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Listen on a free port, and run `talk` for each connection."""

    writers: list[Writer] = []

    async def serve(reader: Reader, writer: Writer) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    talks: set[asyncio.Task[None]] = set()

    def accept(reader: Reader, writer: Writer) -> None:
        # A talk that is cancelled before its first step closes nothing.
        writers.append(writer)
        talks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for writer in writers:
                writer.close()


@contextlib.asynccontextmanager
async def connected(talk: Talk, *, lease: Lease | None = None) -> AsyncIterator[Connection]:
    """Open a connection to a peer that runs `talk`."""
    async with serving(talk) as port:
        connection = Connection("127.0.0.1", port, client_id="us", lease=lease)
        await connection.open(5)
        try:
            yield connection
        finally:
            connection.close()
            await asyncio.sleep(0)


async def hear(reader: Reader) -> bytes:
    """Read one request, without its length."""
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def correlation_of(request: bytes) -> int:
    """Return the correlation id of a request."""
    number: int = struct.unpack_from(">i", request, 4)[0]
    return number


def frame(correlation: int, body: bytes) -> bytes:
    """Return an answer as it goes over the wire."""
    return struct.pack(">ii", len(body) + 4, correlation) + body


async def echo(reader: Reader, writer: Writer) -> None:
    """Answer each request with its own body, which follows the client id `us`."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = await hear(reader)
            writer.write(frame(correlation_of(request), request[12:]))


async def silence(reader: Reader, writer: Writer) -> None:
    """Read everything and answer nothing."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


def run(test: Awaitable[Any], within: float = 20) -> None:
    """Run a test on an event loop of its own, for at most so many seconds."""

    async def whole() -> None:
        await asyncio.wait_for(test, within)

    asyncio.run(whole())
