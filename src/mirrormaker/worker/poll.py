"""One fetch request under way, how much the next one should ask for, and when."""

from __future__ import annotations

import asyncio
import time

from mirrormaker.errors import Silent
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.transport.connection import Connection

# Seconds that the transfer of an answer should take: less is asked for above the last, more below the first. A record waits for the
# end of one answer, and comes with the next one.
_QUICK, _WANTED, _SLOW = 0.2, 0.4, 0.6
_LEAST = 64 << 10  # bytes to ask for, however slow the line is
_FIRST = 1 << 20  # bytes to ask for as long as nothing is known of the line
_WIDE = 8 << 20  # bytes: a line that brings so many in time is not thin
# Bytes of one partition. A broker leaves out a batch that is larger than a partition's share, except for an answer's first one:
# with small shares an answer would bring a single batch. Producers' batches have 16 KB by default.
_LEAST_SHARE = 32 << 10

# Batches a second that a broker has for us: up to the first, each of them is fetched at once; from the second on, polls are
# `_LONGEST_PAUSE` seconds apart, and bring two or more at a time. A poll, its answer and the request to the target cost brokers and
# mirror about as much for one small batch as for ten.
_FEW, _MANY = 500, 1500
_LONGEST_PAUSE = 0.0015
_CRUMBS = 128 << 10  # bytes: a poll that brings more is worth its cost
_REMEMBERED = 0.1  # seconds over which batches are counted


class FetchLimit:
    """How many bytes to ask a broker for, so that an answer takes less than a second also over a thin line."""

    def __init__(self, most: int) -> None:
        """`most` is fetch.max.bytes."""
        self.bytes = min(most, _FIRST)
        self._most = most
        self._least_share = _LEAST_SHARE
        # True from an answer that took too long until answers of some megabytes do not.
        self.is_thin = False

    def answered(self, received: int, least: float, most: float, partitions: int = 0) -> None:
        """Take into account the size of an answer with data of so many partitions, and the seconds of its transfer.

        It took that long at least and at most.
        """
        if partitions == 1 and received > self._least_share:
            # Perhaps a single batch that is larger than its share, and as large ones of other partitions were left out.
            self._least_share = min(2 * received, max(_LEAST_SHARE, self.bytes // 4))
        if least > _SLOW:
            self.bytes = max(_LEAST, int(received / least * _WANTED))
            self.is_thin = self.bytes < min(_WIDE, self._most)
            return
        in_time = received / max(most, 0.001) * _WANTED
        if (most < _QUICK and received > self.bytes // 2) or (received >= _LEAST_SHARE and in_time > 2 * self.bytes):
            self.bytes = min(2 * self.bytes, self._most)
            self.is_thin &= self.bytes < min(_WIDE, self._most)

    @property
    def shares(self) -> tuple[bool, int]:
        """Return what the share of each partition depends on, apart from the size of the answer."""
        return self.is_thin, self._least_share

    def unanswered(self, size: int) -> None:
        """Ask for less after a request for so many bytes that got no answer."""
        self.bytes, self.is_thin = max(_LEAST, size // 4), True

    def share(self, size: int, most: int, partitions: int) -> int:
        """Return how many bytes of each partition to ask for, if the answer may have `size` and a partition `most` bytes.

        A broker fills an answer partition by partition. Over a thin line, one with a backlog would take a whole answer, and
        those behind it would wait for one answer after the other. What does not fit comes first in the next answers.
        """
        return min(most, max(self._least_share, size // max(1, partitions))) if self.is_thin else most


class Pace:
    """How far apart polls are: a few milliseconds while small batches come all the time, else nothing."""

    def __init__(self) -> None:
        # Batches a second. How far apart polls are makes no difference to it.
        self._rate = 0.0
        self._answered_at = 0.0

    def pause(self, batches: int, size: int, now: float) -> float:
        """Return how many seconds after a poll the next one is sent at the earliest.

        The poll brought so many batches of `size` bytes in all, and was answered at `now`, which is a time of `time.monotonic`.
        """
        seconds, self._answered_at = max(now - self._answered_at, 1e-4), now
        self._rate += min(1.0, seconds / _REMEMBERED) * (batches / seconds - self._rate)
        if size >= _CRUMBS:
            return 0.0
        return _LONGEST_PAUSE * min(1.0, max(0.0, (self._rate - _FEW) / (_MANY - _FEW)))


class Poll:
    """A fetch request that was sent, and the time that its answer takes."""

    def __init__(
        self, connection: Connection, version: int, body: bytes, *, size: int, max_wait: float, is_new: bool
    ) -> None:
        """Send the request.

        It asks for `size` bytes, and the broker may wait `max_wait` seconds for them. `is_new`: it begins a session.
        """
        self.version, self.size, self.max_wait, self.is_new = version, size, max_wait, is_new
        # The seconds that the transfer of the answer took, at least and at most.
        self.transfer = (0.0, 0.0)
        self._connection = connection
        self.sent_at = self.answered_at = time.monotonic()
        self._answer = connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])
        self._answer.add_done_callback(self._note_time)

    def _note_time(self, _: asyncio.Future[memoryview]) -> None:
        self.answered_at = time.monotonic()

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
        answer = self._answer.result()
        seconds = self._connection.last_transfer
        # The first bytes seen may be the last ones: then a part of the answer, or all of it, was on its way before. The
        # broker may also have waited before it sent anything.
        since_sent = self.answered_at - self.sent_at - self._connection.round_trip
        self.transfer = max(seconds, since_sent - self.max_wait), max(seconds, since_sent)
        return answer
