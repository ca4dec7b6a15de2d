"""One fetch request under way, and how much the next one should ask for."""

from __future__ import annotations

import asyncio
import time

from mirrormaker.errors import Silent
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.transport.connection import Connection

# Seconds that the transfer of an answer should take: less is asked for above the second, more below the first.
_QUICK, _SLOW = 1.0, 2.0
_LEAST = 64 << 10  # bytes to ask for, however slow the line is


class Poll:
    """A fetch request that was sent, and the time that its answer takes."""

    def __init__(
        self, connection: Connection, version: int, body: bytes, *, size: int, max_wait: float, is_new: bool
    ) -> None:
        """Send the request.

        It asks for `size` bytes, and the broker may wait `max_wait` seconds for them. `is_new`: it begins a session.
        """
        self.version, self.size, self.max_wait, self.is_new = version, size, max_wait, is_new
        self._connection = connection
        self._sent_at = self._answered_at = time.monotonic()
        self._answer = connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])
        self._answer.add_done_callback(self._note_time)

    def _note_time(self, _: asyncio.Future[memoryview]) -> None:
        self._answered_at = time.monotonic()

    async def answer(self, timeout: float) -> memoryview:
        """Return the answer; raise Silent if so many seconds pass without a byte of it.

        An answer that is on its way may take as long as it needs.
        """
        patience = self.max_wait + timeout
        arrived = self._connection.bytes_in
        while not (await asyncio.wait([self._answer], timeout=patience))[0]:
            if self._connection.bytes_in == arrived:
                raise Silent(f"{self._connection} sent nothing for {patience:g} s")
            arrived = self._connection.bytes_in
        return self._answer.result()

    def next_limit(self, limit: int, received: int) -> int:
        """Return how many bytes to ask for next, so that an answer takes a second or two also over a thin line.

        `limit` is the value before, and `received` are the bytes of the answer; 0: there was none.
        """
        if not received:
            return max(_LEAST, self.size // 4)
        # The broker may have waited before it sent the first byte.
        seconds = self._answered_at - self._sent_at - self.max_wait
        if seconds > _SLOW:
            return max(_LEAST, int(received / seconds))
        return 2 * limit if seconds < _QUICK and received > limit // 2 else limit
