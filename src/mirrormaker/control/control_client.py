"""A stream's connection to the control server of its driver."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator

from mirrormaker.control.control_messages import (
    MAX_LINE,
    Hello,
    Order,
    Report,
    decode_challenge,
    decode_order,
    encode,
)
from mirrormaker.errors import BadMessage, DriverGone

_CONNECT_WITHIN = 4.0  # seconds


class ControlClient:
    """Sends reports and yields orders. Every failure is `DriverGone`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(
        cls, address: tuple[str, int], secret: bytes, flow: int, job: int, stream: int, attempt: int
    ) -> ControlClient:
        """Connect and answer the server's challenge. The secret itself never crosses the network."""
        try:
            connecting = asyncio.open_connection(*address, limit=MAX_LINE)
            reader, writer = await asyncio.wait_for(connecting, _CONNECT_WITHIN)
        except (OSError, asyncio.TimeoutError) as error:
            raise DriverGone(str(error)) from error
        client = cls(reader, writer)
        try:
            challenge = decode_challenge(await client._line())
        except BadMessage as error:
            raise DriverGone(str(error)) from error
        client._write(encode(Hello(proof(secret, challenge.nonce), flow, job, stream, attempt)))
        return client

    async def report(self, report: Report) -> None:
        """Send a report."""
        self._write(encode(report))
        try:
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise DriverGone(str(error)) from error

    async def next_order(self) -> Order:
        """Wait for the driver's next order."""
        try:
            return decode_order(await self._line())
        except BadMessage as error:
            raise DriverGone(str(error)) from error

    async def __aiter__(self) -> AsyncIterator[Order]:
        while True:
            yield await self.next_order()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _write(self, line: bytes) -> None:
        try:
            self._writer.write(line)
        except (OSError, RuntimeError) as error:
            raise DriverGone(str(error)) from error

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise DriverGone(str(error)) from error
        if not line.endswith(b"\n"):
            raise DriverGone("the driver closed the control connection")
        return line


def proof(secret: bytes, nonce: bytes) -> str:
    """Return what a stream answers to a challenge."""
    return hmac.new(secret, nonce, hashlib.sha256).hexdigest()
