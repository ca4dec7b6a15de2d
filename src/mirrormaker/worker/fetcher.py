"""Reading from one source broker: one fetch request for all its partitions at a time.

The next request is sent before the answer to the last one is forwarded, so that the broker is never idle.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable

from mirrormaker.errors import BrokerError, ConnectionLost, CorruptBatch, describe, raise_for
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import split
from mirrormaker.wire.records.transactions import Aborted
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.worker.buffer import Buffer, Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.intake import Fetched
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.stream_task import StreamTask

_PAUSE = 0.1  # seconds until the next request after an error; metadata is refreshed meanwhile
_MAX_TURN = 0.05  # seconds of unpacking until the rest of the event loop has its turn

# A cursor, its fetch round when the request was sent, its batches, and the aborted transactions among them.
Delivery = tuple[Cursor, int, Fetched, Aborted]
# The partitions of a request, by topic id or name, with the fetch round of each cursor.
Requested = dict[tuple[str | bytes, int], tuple[Cursor, int]]


class _PollCutShort(ConnectionLost):
    """The fetcher itself closed the connection, because a new partition joins."""


class Fetcher:
    """Fetches from one source broker. Cursors join and leave while it runs."""

    def __init__(
        self,
        node: int,
        source: Cluster,
        task: StreamTask,
        buffer: Buffer,
        *,
        room_to_fetch: Callable[[], int],
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """Start fetching in a task of its own.

        `room_to_fetch` returns how many bytes to ask for. `refresh` reads the source's metadata again, and moves each
        cursor to the fetcher of its leader.
        """
        self.node = node
        self.cursors: dict[Cursor, None] = {}
        self._source, self._stream_task, self._buffer = source, task, buffer
        self._room_to_fetch, self._refresh = room_to_fetch, refresh
        self._joined = asyncio.Event()
        self._connection: Connection | None = None
        self._polling: frozenset[Cursor] = frozenset()
        self.task = asyncio.create_task(self._run())

    def join(self, cursor: Cursor) -> None:
        """Fetch for a cursor from the next request on."""
        self.cursors[cursor] = None
        self._joined.set()
        # A request that waits for other partitions would make this one wait too: cut it short while no answer is coming
        # in.
        connection = self._connection
        if connection is not None and connection.is_quiet and self._polling and cursor not in self._polling:
            connection.close(_PollCutShort("a new partition joins"))

    def leave(self, cursor: Cursor) -> None:
        """Stop fetching for a cursor."""
        self.cursors.pop(cursor, None)

    async def _run(self) -> None:
        poll: tuple[asyncio.Future[memoryview], Requested, int] | None = None
        while True:
            try:
                if poll is None:
                    poll = await self._poll_when_possible()
                answer, requested, version = poll
                poll = None
                wait = self._stream_task.fetch_max_wait_ms / 1000 + self._source.endpoint.request_timeout
                data = await asyncio.wait_for(asyncio.shield(answer), wait)
                self._polling = frozenset()
                error, parts = fetch.decode_response(version, data)
                raise_for(error)
                failed = any(part.error for part in parts)
                deliveries = self._deliveries(parts, requested)
                frame = Frame(self._buffer, len(data))
                if not self._buffer.is_full:
                    poll = self._poll()
                try:
                    await self._deliver(deliveries, frame)
                finally:
                    frame.drop(0)
                del deliveries, parts, data
                if failed:
                    await self._back_off()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever it is, the partitions of this broker must be fetched again
                if self._connection is not None and self._connection.is_open:
                    self._connection.close(ConnectionLost(describe(error)))
                self._connection, self._polling, poll = None, frozenset(), None
                if not isinstance(error, _PollCutShort):
                    for cursor in self.cursors:
                        cursor.note = f"source: {describe(error)}"
                        cursor.counters.retries += 1
                    await self._back_off()

    async def _deliver(self, deliveries: list[Delivery], frame: Frame) -> None:
        """Hand the batches to their cursors, with pauses in between: reports to the driver must not wait for long."""
        started = time.monotonic()
        for cursor, fetch_round, fetched, aborted in deliveries:
            try:
                if cursor.flowing and cursor.fetch_round == fetch_round:
                    await cursor.accept(fetched, aborted, frame)
            except Exception as error:
                # Its next fetch begins after these batches already: it must go back, and the other cursors must not.
                cursor.interrupt(error)
            if time.monotonic() - started > _MAX_TURN:
                await asyncio.sleep(0)
                started = time.monotonic()

    async def _poll_when_possible(self) -> tuple[asyncio.Future[memoryview], Requested, int]:
        while True:
            await self._buffer.wait_for_room()
            while not any(c.flowing for c in self.cursors):
                self._joined.clear()
                await self._joined.wait()
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._source.connection(self.node, "fetch")
            poll = self._poll()
            if poll is not None:
                return poll

    def _poll(self) -> tuple[asyncio.Future[memoryview], Requested, int] | None:
        """Send a fetch request for every cursor on the hot path; return None if nothing could be sent."""
        connection, task = self._connection, self._stream_task
        topics: dict[tuple[str, bytes], list[fetch.PartitionToFetch]] = defaultdict(list)
        requested: Requested = {}
        if connection is None or not connection.is_open:
            return None
        version = fetch.version_for(connection)
        flowing = [cursor for cursor in self.cursors if cursor.flowing]
        room, most = self._room_to_fetch(), task.partition_fetch_bytes
        if version < fetch.FIRST_WITH_MAX_BYTES and flowing:
            most = min(most, room // len(flowing))
        for cursor in flowing:
            leader = self._source.leader(cursor.topic, cursor.partition)
            topics[cursor.topic, cursor.source_id].append(
                fetch.PartitionToFetch(
                    cursor.partition,
                    cursor.fetch_from[0],
                    leader.leader_epoch if leader else -1,
                    cursor.fetch_from[1],
                    max(most, cursor.min_fetch_bytes),
                )
            )
            key = cursor.source_id if version >= 13 else cursor.topic, cursor.partition
            requested[key] = (cursor, cursor.fetch_round)
        if not requested:
            return None
        body = fetch.encode_request(
            version,
            [(*topic, wanted) for topic, wanted in topics.items()],
            max_wait_ms=task.fetch_max_wait_ms,
            min_bytes=task.fetch_min_bytes,
            max_bytes=room,
            read_committed=task.read_committed,
        )
        self._polling = frozenset(cursor for cursor, _ in requested.values())
        return connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body]), requested, version

    def _deliveries(self, parts: list[fetch.FetchedPartition], requested: Requested) -> list[Delivery]:
        """Return the batches of an answer by cursor, and move each cursor's next fetch after them."""
        deliveries: list[Delivery] = []
        for part in parts:
            cursor, fetch_round = requested.get((part.topic, part.partition), (None, -1))
            if cursor is None or cursor.fetch_round != fetch_round:
                continue
            if part.diverging_epoch is not None:
                cursor.interrupt(Renumber(RestartAt.TRUNCATED, "the source's log was cut back"))
                continue
            if part.error:
                self._partition_error(cursor, part)
                continue
            if cursor.note:
                cursor.note = ""
            read_committed = self._stream_task.read_committed
            cursor.high_watermark = part.last_stable_offset if read_committed else part.high_watermark
            if not len(part.records):
                continue
            try:
                fetched = list(split(part.records))
            except CorruptBatch as error:
                cursor.interrupt(cursor.stop_error(cursor.expected, str(error)))
                continue
            if not fetched:
                self._ask_for_more(cursor, len(part.records))
                continue
            cursor.min_fetch_bytes = 0
            last = fetched[-1]
            if isinstance(last, memoryview):
                cursor.fetch_from = legacy.last_offset(last) + 1, -1
            else:
                batch = last[len(last) - 1]
                cursor.fetch_from = batch.last_offset + 1, batch.leader_epoch
            deliveries.append((cursor, cursor.fetch_round, fetched, part.aborted_transactions))
            # Brokers fill their answers from the front, so a cursor that got something goes to the end of the next
            # request.
            if cursor in self.cursors:
                del self.cursors[cursor]
                self.cursors[cursor] = None
        return deliveries

    def _ask_for_more(self, cursor: Cursor, size: int) -> None:
        """Double the fetch size of a cursor: a broker before 0.10.1 has cut even the first message to it."""
        cursor.min_fetch_bytes = max(cursor.min_fetch_bytes, 2 * size)
        if cursor.min_fetch_bytes > 2 * self._stream_task.fetch_max_bytes:
            cursor.interrupt(cursor.stop_error(cursor.expected, "its message is larger than fetch.max.bytes"))

    def _partition_error(self, cursor: Cursor, part: fetch.FetchedPartition) -> None:
        if part.error == OFFSET_OUT_OF_RANGE:
            reason = f"source offset {cursor.expected} is out of range"
            cursor.interrupt(Renumber(RestartAt.OUT_OF_RANGE, reason))
        elif part.error == TOPIC_AUTHORIZATION_FAILED:
            reason = denied(self._source.endpoint, "Read", "topic", cursor.topic)
            cursor.interrupt(cursor.stop_error(cursor.expected, reason))
        else:
            cursor.note = f"source: {describe(BrokerError(part.error))}"
            cursor.counters.retries += 1

    async def _back_off(self) -> None:
        """After an error, pause and refresh the metadata."""
        await asyncio.sleep(_PAUSE)
        await self._refresh()
