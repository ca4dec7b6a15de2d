"""A stream's line to the desk: JSON in lines, both ways, after proving that it knows the secret."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

from mirrormaker.errors import DriverGone

MAX_LINE = 64 << 20  # a report of 100,000 partitions


class ControlClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(
        cls, address: tuple[str, int], secret: bytes, flow: int, epoch: int, stream: int, attempt: int
    ) -> ControlClient:
        """Answer the desk's challenge: the secret itself never crosses the network here."""
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(*address, limit=MAX_LINE), 4)
            line = cls(reader, writer)
            challenge = bytes.fromhex((await line._hear())["challenge"])
        except (OSError, asyncio.TimeoutError, ValueError, KeyError) as error:
            raise DriverGone(str(error)) from error
        await line.say(
            {"proof": proof(secret, challenge), "flow": flow, "epoch": epoch, "stream": stream, "attempt": attempt}
        )
        return line

    async def say(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise DriverGone(str(error)) from error

    async def _hear(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
        except (OSError, ValueError) as error:
            raise DriverGone(str(error)) from error
        if not line.endswith(b"\n"):
            raise DriverGone("the desk hung up")
        message: dict[str, Any] = json.loads(line)
        return message

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while True:
            yield await self._hear()

    def close(self) -> None:
        self._writer.close()


def proof(secret: bytes, challenge: bytes) -> str:
    return hmac.new(secret, challenge, hashlib.sha256).hexdigest()
