"""What a stream holds between source and target, bounded in bytes and, if asked for, in messages."""

from __future__ import annotations

import asyncio


class Buffer:
    """Counts what was fetched and not yet acknowledged; when it is full, fetching waits. Nothing is ever dropped."""

    def __init__(self, max_bytes: int, max_messages: int | None) -> None:
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.bytes = self.messages = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return self.bytes >= self.max_bytes or (self.max_messages is not None and self.messages >= self.max_messages)

    @property
    def room(self) -> int:
        return max(1, self.max_bytes - self.bytes)

    def count(self, size: int, messages: int) -> None:
        self.bytes += size
        self.messages += messages
        if self.is_full:
            self._room.clear()
        else:
            self._room.set()

    async def wait_for_room(self) -> None:
        await self._room.wait()


class Frame:
    """One fetched answer: its memory is held as long as any batch in it is, so that is how long it counts."""

    __slots__ = ("_buffer", "_size", "users")

    def __init__(self, buffer: Buffer, size: int) -> None:
        self._buffer, self._size, self.users = buffer, size, 1
        buffer.count(size, 0)

    def keep(self, messages: int) -> None:
        self.users += 1
        if self._buffer.max_messages is not None:
            self._buffer.count(0, messages)

    def drop(self, messages: int) -> None:
        self.users -= 1
        if self.users == 0 or self._buffer.max_messages is not None:
            self._buffer.count(-self._size if self.users == 0 else 0, -messages)
