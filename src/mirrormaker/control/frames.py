"""Frames over TCP: four bytes that say how long a message is, then the message.

Anyone who reaches the driver's address can connect. So a connection never holds more than one frame, a frame has a limit from its
first byte on, and nothing more is read from the kernel before the frame was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from mirrormaker.errors import BadMessage, ConnectionLost, HungUp, describe

_LENGTH = 4  # bytes


def framed(message: bytes) -> bytes:
    """Return a message as it crosses the network."""
    return len(message).to_bytes(_LENGTH, "big") + message


class FrameConnection(asyncio.BufferedProtocol):
    """One end of a connection. Every failure is `BadMessage` or `ConnectionLost`, and the end of the connection."""

    def __init__(self, max_bytes: int, opened: Callable[[FrameConnection], None] | None = None) -> None:
        """Refuse frames of more than `max_bytes`; call `opened` when the connection is there."""
        self.max_bytes = max_bytes
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        # What is being received: first the length of a frame, then the frame.
        self._buffer, self._filled, self._has_length = bytearray(_LENGTH), 0, False
        self._frame: bytes | None = None
        self._error: BadMessage | ConnectionLost | None = None
        self._received, self._writable = asyncio.Event(), asyncio.Event()
        self._writable.set()

    async def read(self) -> bytes:
        """Wait for the next frame."""
        while self._frame is None:
            if self._error is not None:
                raise self._error
            self._received.clear()
            await self._received.wait()
        frame, self._frame = self._frame, None
        self._expect(_LENGTH, has_length=False)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return frame

    def write(self, *messages: bytes) -> None:
        """Send messages; they are lost if the connection has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(map(framed, messages)))

    async def drain(self) -> None:
        """Wait until the kernel has taken most of what was written."""
        await self._writable.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to receive."""
        self._transport = cast(asyncio.Transport, transport)
        if self._opened is not None:
            self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for the rest of what is being received, and for nothing more."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Go on once the length, or the frame, is complete."""
        self._filled += nbytes
        if self._filled < len(self._buffer):
            return
        if not self._has_length:
            size = int.from_bytes(self._buffer, "big")
            if not 0 < size <= self.max_bytes:
                self._fail(BadMessage(f"a control message of {size} bytes; {self.max_bytes} are allowed"))
                self.abort()
                return
            self._expect(size, has_length=True)
            return
        self._frame = bytes(self._buffer)
        self._received.set()
        if self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """The other side has closed: asyncio closes this side too."""
        self._fail(HungUp("the control connection was closed"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake up whoever waits."""
        self._fail(ConnectionLost(describe(exc) if exc is not None else "the control connection was closed"))
        self._writable.set()

    def pause_writing(self) -> None:
        """The kernel takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The kernel takes more again."""
        self._writable.set()

    def _expect(self, size: int, *, has_length: bool) -> None:
        self._buffer, self._filled, self._has_length = bytearray(size), 0, has_length

    def _fail(self, error: BadMessage | ConnectionLost) -> None:
        self._error = self._error or error
        self._received.set()
