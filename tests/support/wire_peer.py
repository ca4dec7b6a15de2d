"""A connection to a peer on this machine that behaves as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from mirrormaker.wire.transport.connection import Connection, Lease

Talk = Callable[[Reader, Writer], Awaitable[None]]


@contextlib.asynccontextmanager
async def connected(talk: Talk, *, lease: Lease | None = None, max_frame: int = 256 << 20) -> AsyncIterator[Connection]:
    """Open a connection to a peer that behaves as `talk` does."""

    async def serve(reader: Reader, writer: Writer) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = Connection(
        "127.0.0.1", server.sockets[0].getsockname()[1], client_id="us", lease=lease, max_frame=max_frame
    )
    async with server:
        await connection.open(5)
        try:
            yield connection
        finally:
            connection.close()
            await asyncio.sleep(0)


async def hear(reader: Reader) -> bytes:
    """Return the next request, without its length."""
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def correlation_of(request: bytes) -> int:
    """Return the correlation id of a request."""
    number: int = struct.unpack_from(">i", request, 4)[0]
    return number


def frame(correlation: int, body: bytes) -> bytes:
    """Return an answer with its length and correlation id."""
    return struct.pack(">ii", len(body) + 4, correlation) + body


async def echo(reader: Reader, writer: Writer) -> None:
    """Answer each request with its own body, which follows the client id."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = await hear(reader)
            writer.write(frame(correlation_of(request), request[12:]))


async def silence(reader: Reader, writer: Writer) -> None:
    """Read everything and answer nothing."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


def run(test: Awaitable[Any], within: float = 20) -> None:
    """Run a test to its end, for at most `within` seconds."""

    async def whole() -> None:
        await asyncio.wait_for(test, within)

    asyncio.run(whole())
