"""The buffer of a stream, bounded in bytes and, if --queue.size is set, in messages."""

from __future__ import annotations

import asyncio


class Buffer:
    """Counts what was asked for, and what was fetched and not acknowledged yet.

    While it is full, fetching waits; nothing is ever dropped.
    """

    def __init__(self, max_bytes: int, max_messages: int | None) -> None:
        """`max_messages` is --queue.size; None: only bytes are limited."""
        self.max_bytes, self.max_messages = max_bytes, max_messages
        self.bytes = self.messages = 0
        self._most = 0  # bytes at once since the last call of `peak`
        self.reserved = 0  # bytes that fetch requests under way may bring
        self._growth = 1.0  # bytes to send for each byte fetched
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        """Return True if nothing more should be fetched."""
        if self.bytes + self.reserved >= self.max_bytes:
            return True
        return self.max_messages is not None and self.messages >= self.max_messages

    @property
    def is_overfull(self) -> bool:
        """Return True if records take far more room than the bytes that were fetched."""
        return self.bytes > 2 * self.max_bytes

    def room_for_poll(self, polls: int) -> int:
        """Return how many bytes one of so many simultaneous polls may ask for, but at least 1.

        Once they are unpacked, they still have to fit. Each poll gets an equal share, and one more share is for the
        answer that is being processed: a poll that waits for an idle broker must not keep the others from fetching.
        """
        room = min(self.max_bytes - self.bytes - self.reserved, self.max_bytes // (polls + 1))
        return max(1, int(room / self._growth))

    def note_growth(self, fetched: int, sent: int) -> None:
        """Note that records take more room than the bytes that were fetched, so that less is fetched next."""
        self._growth = max(1.0, 0.8 * self._growth + 0.2 * sent / max(1, fetched))

    def reserve(self, size: int) -> None:
        """Keep bytes free for an answer, or with a negative number give them back."""
        self.reserved += size
        self._update()

    def count(self, size: int, messages: int) -> None:
        """Add bytes and messages, or with negative numbers take them away."""
        self.bytes += size
        self.messages += messages
        self._most = max(self._most, self.bytes)
        self._update()

    def peak(self) -> int:
        """Return how many bytes were there at once since the last call."""
        most, self._most = self._most, self.bytes
        return most

    def _update(self) -> None:
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
