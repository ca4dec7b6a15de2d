"""Reading from one source broker: one long poll for all its partitions, the next one sent before the last is forwarded."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from mirrormaker.errors import BrokerError, ConnectionLost, CorruptBatch, describe, raise_for
from mirrormaker.wire.client.acls import TOPIC_DENIED, denied
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import split
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.intake import Fetched
from mirrormaker.worker.interrupts import OUT_OF_RANGE, TRUNCATED, Renumber

if TYPE_CHECKING:
    from mirrormaker.worker.stream import Stream

_OUT_OF_RANGE = 1
_PAUSE = 0.1  # seconds before asking again after an error; metadata is refreshed meanwhile

_TURN = 0.05  # seconds of unpacking before others have their turn

Delivery = tuple[Cursor, int, Fetched, list[tuple[int, int]]]
Asked = dict[tuple[str | bytes, int], tuple[Cursor, int]]


class Fetcher:
    """One source broker. Cursors join and leave while it runs."""

    def __init__(self, stream: Stream, node: int) -> None:
        self.stream, self.node = stream, node
        self.cursors: dict[Cursor, None] = {}
        self._joined = asyncio.Event()
        self._connection: Connection | None = None
        self._polling: frozenset[Cursor] = frozenset()
        self.task = asyncio.create_task(self._run())

    def join(self, cursor: Cursor) -> None:
        self.cursors[cursor] = None
        self._joined.set()
        # A poll that waits for news of other partitions would make this one wait too: cut it short while nothing is coming.
        connection = self._connection
        if connection is not None and connection.is_quiet and self._polling and cursor not in self._polling:
            connection.close(ConnectionLost("a new partition joins"))

    def leave(self, cursor: Cursor) -> None:
        self.cursors.pop(cursor, None)

    async def _run(self) -> None:
        poll: tuple[asyncio.Future[memoryview], Asked, int] | None = None
        while True:
            try:
                if poll is None:
                    poll = await self._poll_when_possible()
                answer, asked, version = poll
                poll = None
                wait = self.stream.work.fetch_max_wait_ms / 1000 + self.stream.source.endpoint.request_timeout
                data = await asyncio.wait_for(asyncio.shield(answer), wait)
                self._polling = frozenset()
                error, parts = fetch.answer(version, data)
                raise_for(error)
                failed = any(part.error for part in parts)
                deliveries = self._look_at(parts, asked)
                frame = Frame(self.stream.buffer, len(data))
                if not self.stream.buffer.is_full:
                    poll = self._poll()
                try:
                    await self._deliver(deliveries, frame)
                finally:
                    frame.drop(0)
                del deliveries, parts, data
                if failed:
                    await self._settle()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever it is, the others on this broker must not wait for ever
                if self._connection is not None and self._connection.is_open:
                    self._connection.close(ConnectionLost(describe(error)))
                cut_short = "a new partition joins" in str(error)
                self._connection, self._polling, poll = None, frozenset(), None
                if not cut_short:
                    for cursor in self.cursors:
                        cursor.note = f"source: {describe(error)}"
                        cursor.counters.retries += 1
                    await self._settle()

    async def _deliver(self, deliveries: list[Delivery], frame: Frame) -> None:
        """Unpacking takes time: after a while the others on the loop have their turn, above all the reports to the desk."""
        started = time.monotonic()
        for cursor, lap, fetched, aborted in deliveries:
            try:
                if cursor.flowing and cursor.lap == lap:
                    cursor.accept(fetched, aborted, frame)
            except (
                Exception
            ) as error:  # its next offset lies behind this already: it must go back, and the others must not
                cursor.trouble(error)
            if time.monotonic() - started > _TURN:
                await asyncio.sleep(0)
                started = time.monotonic()

    async def _poll_when_possible(self) -> tuple[asyncio.Future[memoryview], Asked, int]:
        while True:
            await self.stream.buffer.wait_for_room()
            while not any(c.flowing for c in self.cursors):
                self._joined.clear()
                await self._joined.wait()
            if self._connection is None or not self._connection.is_open:
                self._connection = await self.stream.source.connection(self.node, "fetch")
            poll = self._poll()
            if poll is not None:
                return poll

    def _poll(self) -> tuple[asyncio.Future[memoryview], Asked, int] | None:
        """Send a fetch for every partition that flows."""
        connection, work = self._connection, self.stream.work
        topics: dict[tuple[str, bytes], list[fetch.Wanted]] = defaultdict(list)
        asked: Asked = {}
        if connection is None or not connection.is_open:
            return None
        version = fetch.version_for(connection)
        known = self.stream.source
        flowing = [cursor for cursor in self.cursors if cursor.flowing]
        room, most = self.stream.room_to_fetch(), work.partition_fetch_bytes
        if version < fetch.LIMITS_ALL and flowing:
            most = min(most, room // len(flowing))
        for cursor in flowing:
            leader = known.leader(cursor.topic, cursor.partition)
            topics[cursor.topic, cursor.source_id].append(
                fetch.Wanted(
                    cursor.partition,
                    cursor.fetch_from[0],
                    leader.leader_epoch if leader else -1,
                    cursor.fetch_from[1],
                    max(most, cursor.needs_bytes),
                )
            )
            asked[cursor.source_id if version >= 13 else cursor.topic, cursor.partition] = (cursor, cursor.lap)
        if not asked:
            return None
        body = fetch.request(
            version,
            [(*topic, wanted) for topic, wanted in topics.items()],
            max_wait_ms=work.fetch_max_wait_ms,
            min_bytes=work.fetch_min_bytes,
            max_bytes=room,
            read_committed=work.read_committed,
        )
        self._polling = frozenset(cursor for cursor, _ in asked.values())
        return connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body]), asked, version

    def _look_at(self, parts: list[fetch.Fetched], asked: Asked) -> list[Delivery]:
        """Find the batches, move each cursor's next offset past them, and count them as held."""
        deliveries: list[Delivery] = []
        for part in parts:
            cursor, lap = asked.get((part.topic, part.partition), (None, -1))
            if cursor is None or cursor.lap != lap:
                continue
            if part.diverging is not None:
                cursor.trouble(Renumber(TRUNCATED, "the source's log was cut back"))
                continue
            if part.error:
                self._partition_error(cursor, part)
                continue
            if cursor.note:
                cursor.note = ""
            cursor.high_watermark = part.stable_offset if self.stream.work.read_committed else part.high_watermark
            if not len(part.records):
                continue
            try:
                found = list(split(part.records))
            except CorruptBatch as error:
                cursor.trouble(cursor.stops(cursor.expected, str(error)))
                continue
            if not found:
                self._ask_for_more(cursor, len(part.records))
                continue
            cursor.needs_bytes = 0
            last = found[-1]
            if isinstance(last, memoryview):
                cursor.fetch_from = legacy.last_offset(last) + 1, -1
            else:
                batch = last[len(last) - 1]
                cursor.fetch_from = batch.last_offset + 1, batch.leader_epoch
            deliveries.append((cursor, cursor.lap, found, list(part.aborted)))
            if cursor in self.cursors:  # brokers fill their answers from the front: whoever got something asks last
                del self.cursors[cursor]
                self.cursors[cursor] = None
        return deliveries

    def _ask_for_more(self, cursor: Cursor, size: int) -> None:
        """Brokers before 0.10.1 cut even the first message to the limit: it comes whole when there is room for it."""
        cursor.needs_bytes = max(cursor.needs_bytes, 2 * size)
        if cursor.needs_bytes > 2 * self.stream.work.fetch_max_bytes:
            cursor.trouble(cursor.stops(cursor.expected, "its message is larger than fetch.max.bytes"))

    def _partition_error(self, cursor: Cursor, part: fetch.Fetched) -> None:
        if part.error == _OUT_OF_RANGE:
            cursor.trouble(Renumber(OUT_OF_RANGE, f"source offset {cursor.expected} is out of range"))
        elif part.error == TOPIC_DENIED:
            cursor.trouble(
                cursor.stops(cursor.expected, denied(self.stream.source.endpoint, "Read", "topic", cursor.topic))
            )
        else:
            cursor.note = f"source: {describe(BrokerError(part.error))}"
            cursor.counters.retries += 1

    async def _settle(self) -> None:
        """After an error: a pause, a fresh look at who leads what, and each cursor to its leader."""
        await asyncio.sleep(_PAUSE)
        await self.stream.refresh_source()
