"""The buffer of a stream, bounded in bytes and, if --queue.size is set, in messages."""

from __future__ import annotations

import asyncio


class Buffer:
    """Counts what was fetched and not acknowledged yet. While it is full, fetching waits; nothing is ever dropped."""

    def __init__(self, max_bytes: int, max_messages: int | None) -> None:
        """`max_messages` is --queue.size; None: only bytes are limited."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.bytes = self.messages = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        """Return True if nothing more should be fetched."""
        return self.bytes >= self.max_bytes or (self.max_messages is not None and self.messages >= self.max_messages)

    @property
    def room(self) -> int:
        """Return how many bytes still fit, but at least 1."""
        return max(1, self.max_bytes - self.bytes)

    def count(self, size: int, messages: int) -> None:
        """Add bytes and messages, or with negative numbers take them away."""
        self.bytes += size
        self.messages += messages
        if self.is_full:
            self._room.clear()
        else:
            self._room.set()

    async def wait_for_room(self) -> None:
        """Wait until the buffer is not full."""
        await self._room.wait()


class Frame:
    """The memory of one fetched answer, which counts until the last batch in it is done: only then is it freed."""

    __slots__ = ("_buffer", "_size", "users")

    def __init__(self, buffer: Buffer, size: int) -> None:
        """Count `size` bytes, for a first user who has to call `drop(0)`."""
        self._buffer, self._size, self.users = buffer, size, 1
        buffer.count(size, 0)

    def keep(self, messages: int) -> None:
        """Add a user, who holds so many messages of it."""
        self.users += 1
        if self._buffer.max_messages is not None:
            self._buffer.count(0, messages)

    def drop(self, messages: int) -> None:
        """Remove a user, who held so many messages of it."""
        self.users -= 1
        if self.users == 0 or self._buffer.max_messages is not None:
            self._buffer.count(-self._size if self.users == 0 else 0, -messages)
