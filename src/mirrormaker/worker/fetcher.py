"""Reading from one source broker: one fetch request for all its partitions at a time.

The next request is sent before the answer to the last one is forwarded, so that the broker is never idle. Nothing here costs
time for each partition of each request: a request names partitions that have changed, an answer those that have news.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from mirrormaker.errors import BrokerError, ConnectionLost, CorruptBatch, Silent, describe, describe_any, raise_for
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.records.batch import Batches
from mirrormaker.wire.records.fetched_offsets import end_of
from mirrormaker.wire.records.transactions import Aborted
from mirrormaker.wire.transport.connection import Connection
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.worker.buffer import Buffer, Frame
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetch_session import SESSION_ERRORS, Asked, FetchSession
from mirrormaker.worker.intake import Fetched, fetch_again, is_corrupt_for_good
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.poll import FetchLimit, Pace, Poll
from mirrormaker.worker.splitting import split_in_turns
from mirrormaker.worker.stream_task import StreamTask

_PAUSE = 0.1  # seconds until the next request after a failure of the connection; metadata is refreshed meanwhile
# Seconds for which a partition is left out of the requests after an error, the second one in a row, and so on.
_RESTS = (0.1, 0.2, 0.5, 1.0, 2.0)
_MAX_TURN = 0.05  # seconds of splitting or unpacking until the rest of the event loop has its turn
# While partitions join, a broker answers after so many seconds at the latest. It does so for a second after each join.
_JOIN_WAIT, _JOINING = 0.05, 1.0

# A cursor, its fetch round when the request was sent, its batches, and the aborted transactions among them.
Delivery = tuple[Cursor, int, Fetched, Aborted]


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
        refresh: Callable[[set[str]], Awaitable[None]],
    ) -> None:
        """Start fetching in a task of its own.

        `room_to_fetch` returns how many bytes to ask for at most. `refresh` reads the source's metadata of some topics
        again, and moves each of their cursors to the fetcher of its leader.
        """
        self.node = node
        self.cursors: dict[Cursor, None] = {}
        self._source, self._stream_task, self._buffer = source, task, buffer
        self._room_to_fetch, self._refresh = room_to_fetch, refresh
        self._limit = FetchLimit(task.fetch_max_bytes)
        self._pace = Pace()
        self._next_poll_at = 0.0  # the earliest time for the next request
        self._session = FetchSession()
        # Cursors that the next request has to name: changed, or gone since the last request.
        self._changed: dict[Cursor, None] = {}
        self._gone: dict[Cursor, None] = {}
        # Cursors that are left out of the requests after an error until a time, and errors in a row by cursor.
        self._resting: dict[Cursor, float] = {}
        self._failures: dict[Cursor, int] = {}
        # The end of a cursor's batches where that was beyond the high watermark.
        self._doubtful_end: dict[Cursor, int] = {}
        # Cursors whose topic has no id: the broker must be asked by name.
        self._without_id: dict[Cursor, None] = {}
        self._joined = asyncio.Event()
        self._joining_until = 0.0
        self._connection: Connection | None = None
        self._poll: Poll | None = None
        # Topics whose metadata may be out of date, and the refreshes under way.
        self._stale: set[str] = set()
        self._refreshes: set[asyncio.Future[None]] = set()
        self.task = asyncio.create_task(self._run())

    # -- cursors come and go

    def join(self, cursor: Cursor) -> None:
        """Fetch for a cursor from the next request on; a cursor that is here already may have another leader epoch."""
        is_new = cursor not in self.cursors
        self.cursors[cursor] = self._changed[cursor] = None
        if any(cursor.source_id):
            self._without_id.pop(cursor, None)
        else:
            self._without_id[cursor] = None
        if is_new:
            cursor.note = ""
            self._gone.pop(cursor, None)
            self._joined.set()
            self._joining_until = time.monotonic() + _JOINING
            self._cut_short()

    def _cut_short(self) -> None:
        """Close the connection if the broker may wait for long: the newcomer would wait too.

        The requests of the next second are short, so there is at most one cut a second.
        """
        connection, poll = self._connection, self._poll
        if connection is not None and connection.is_quiet and poll is not None and poll.max_wait > _JOIN_WAIT:
            connection.close(_PollCutShort("a new partition joins"))

    def leave(self, cursor: Cursor) -> None:
        """Stop fetching for a cursor."""
        if cursor in self.cursors:
            self._gone[cursor] = None
            del self.cursors[cursor]
            for kept in (self._changed, self._without_id, self._resting, self._failures, self._doubtful_end):
                kept.pop(cursor, None)

    def _rest(self, cursor: Cursor) -> None:
        """Leave a cursor out of the requests for a while, longer after each error; the others go on."""
        failures = self._failures.get(cursor, 0)
        pause = _RESTS[min(failures, len(_RESTS) - 1)]
        self._failures[cursor] = failures + 1
        self._resting[cursor] = time.monotonic() + pause
        self._gone[cursor] = None
        self._stale.add(cursor.topic)
        asyncio.get_running_loop().call_later(pause, self._end_rest, cursor)

    def _end_rest(self, cursor: Cursor) -> None:
        if self._resting.pop(cursor, None) is not None:
            self._gone.pop(cursor, None)
            self._changed[cursor] = None
            self._joined.set()

    # -- the loop

    async def _run(self) -> None:
        while True:
            try:
                if self._poll is None:
                    await self._poll_when_possible()
                else:
                    await self._take(self._poll)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever it is, the partitions of this broker must be fetched again
                self._end_poll()
                if self._connection is not None and self._connection.is_open:
                    self._connection.close(ConnectionLost(describe(error)))
                self._connection = None
                self._session.restart()
                if not isinstance(error, _PollCutShort):
                    for cursor in self.cursors:
                        # An answer may have moved its next fetch, and may not have been delivered.
                        fetch_again(cursor)
                        cursor.note = f"source: {describe(error)}"
                        cursor.counters.retries += 1
                    await asyncio.sleep(_PAUSE)
                    # A refresh that fails must not end the fetcher.
                    await asyncio.wait([self._start_refresh({cursor.topic for cursor in self.cursors})])

    def _start_refresh(self, topics: set[str]) -> asyncio.Future[None]:
        refresh = asyncio.ensure_future(self._refresh(topics))
        self._refreshes.add(refresh)
        refresh.add_done_callback(self._refreshes.discard)
        watch(refresh, partial(self._refresh_failed, topics))
        return refresh

    def _refresh_failed(self, topics: set[str], error: Exception) -> None:
        """Let the partitions say so. A leader that is the wrong one answers with the next error, and it is tried again."""
        for cursor in self.cursors:
            if cursor.topic in topics:
                cursor.note = f"source: its metadata cannot be read: {describe_any(error)}"

    async def _poll_when_possible(self) -> None:
        if (pause := self._next_poll_at - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        await self._buffer.wait_for_room()
        while not any(cursor.flowing and cursor not in self._resting for cursor in self.cursors):
            self._joined.clear()
            await self._joined.wait()
        if self._connection is None or not self._connection.is_open:
            self._session.restart()
            self._connection = await self._source.connection(self.node, "fetch")
        self._send_poll()

    def _send_poll(self) -> None:
        """Send a fetch request, unless there is no room or no cursor on the hot path."""
        connection, session, task = self._connection, self._session, self._stream_task
        if connection is None or not connection.is_open or self._buffer.is_full:
            return
        version = fetch.version_for(connection, (cursor.source_id for cursor in self._without_id))
        session.use_topic_ids(version >= fetch.FIRST_WITH_TOPIC_IDS)
        header, is_new = session.header, session.is_new
        flowing = [
            cursor
            for cursor in (self.cursors if is_new else self._changed)
            if cursor.flowing and cursor in self.cursors and cursor not in self._resting
        ]
        size = min(self._room_to_fetch(), self._limit.bytes)
        most = self._limit.share(size, task.partition_fetch_bytes, len(self.cursors))
        if version < fetch.FIRST_WITH_MAX_BYTES and flowing:
            most = min(most, size // len(flowing))
        changes = session.change([self._asked(cursor, most) for cursor in flowing], self._gone)
        self._changed.clear()
        self._gone.clear()
        if not session.asked:
            session.restart()
            return
        max_wait = self._max_wait()
        body = fetch.encode_request(
            version,
            changes.wanted,
            max_wait_ms=round(max_wait * 1000),
            min_bytes=task.fetch_min_bytes,
            max_bytes=size,
            read_committed=task.read_committed,
            session=header,
            forgotten=changes.forgotten,
        )
        self._poll = Poll(connection, version, body, size=size, max_wait=max_wait, is_new=is_new)
        self._buffer.reserve(size)

    def _asked(self, cursor: Cursor, most: int) -> Asked:
        leader = self._source.leader(cursor.topic, cursor.partition)
        offset, epoch = cursor.fetch_from
        wanted = fetch.PartitionToFetch(
            cursor.partition, offset, leader.leader_epoch if leader else -1, epoch, max(most, cursor.min_fetch_bytes)
        )
        return Asked(cursor, cursor.fetch_round, cursor.source_id, wanted)

    def _max_wait(self) -> float:
        """Return how many seconds the broker may wait for records: less if a partition may want to be asked for sooner."""
        wait, now = self._stream_task.fetch_max_wait_ms / 1000, time.monotonic()
        if now < self._joining_until:
            wait = min(wait, _JOIN_WAIT)
        if self._resting:
            wait = min(wait, max(_JOIN_WAIT, min(self._resting.values()) - now))
        return wait

    def _end_poll(self) -> None:
        if self._poll is not None:
            self._buffer.reserve(-self._poll.size)
            self._poll = None

    # -- answers

    async def _take(self, poll: Poll) -> None:
        """Wait for an answer, send the next request, and hand the batches of the answer to their cursors."""
        try:
            data = await poll.answer(self._source.endpoint.request_timeout)
        except Silent:
            self._limit.unanswered(poll.size)
            raise
        self._end_poll()
        error, parts = fetch.decode_response(poll.version, data, len(self._session.asked))
        if error in SESSION_ERRORS and not poll.is_new:
            self._session.failed(error)
            return
        raise_for(error)
        self._session.answered(fetch.session_id(poll.version, data))
        frame = Frame(self._buffer, len(data))
        try:
            deliveries = await self._deliveries(parts)
            self._adapt(poll, len(data), len(deliveries))
            batches = sum(len(run) if isinstance(run, Batches) else 1 for _, _, runs, _ in deliveries for run in runs)
            self._next_poll_at = poll.sent_at + self._pace.pause(batches, len(data), poll.answered_at)
            if time.monotonic() >= self._next_poll_at:
                self._send_poll()
            await self._deliver(deliveries, frame)
        finally:
            frame.drop(0)

    def _adapt(self, poll: Poll, size: int, partitions: int) -> None:
        """Ask for more or less from now on, after an answer of so many bytes with batches of so many partitions."""
        shares = self._limit.shares
        self._limit.answered(size, *poll.transfer, partitions)
        if self._limit.shares != shares:
            self._changed |= self.cursors  # each of them may bring less, or more, from now on

    async def _deliveries(self, parts: Iterable[fetch.FetchedPartition]) -> list[Delivery]:
        """Return the batches of an answer by cursor, and move each cursor's next fetch after them.

        An answer may have half a million tiny batches: others have their turn in between.
        """
        deliveries: list[Delivery] = []
        turn_ends = time.monotonic() + _MAX_TURN
        for part in parts:
            if time.monotonic() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.monotonic() + _MAX_TURN
            asked = self._session.asked.get((part.topic, part.partition))
            if asked is None or asked.cursor.fetch_round != asked.fetch_round:
                continue
            cursor = asked.cursor
            if part.diverging_epoch is not None:
                cursor.interrupt(Renumber(RestartAt.TRUNCATED, "the source's log was cut back"))
            elif part.error:
                self._partition_error(cursor, part.error)
            elif (fetched := await self._records(asked, part)) is not None:
                deliveries.append((cursor, asked.fetch_round, fetched, part.aborted_transactions))
        if self._stale:
            stale, self._stale = self._stale, set()
            self._start_refresh(stale)
        return deliveries

    async def _records(self, asked: Asked, part: fetch.FetchedPartition) -> Fetched | None:
        """Return the batches of one partition, and move the cursor's next fetch after them; None if there are none."""
        cursor = asked.cursor
        if cursor.note:
            cursor.note = ""
        self._failures.pop(cursor, None)
        read_committed = self._stream_task.read_committed
        cursor.high_watermark = part.last_stable_offset if read_committed else part.high_watermark
        if not len(part.records):
            return None
        try:
            fetched = await split_in_turns(part.records)
            if cursor.fetch_round != asked.fetch_round:
                return None
            if not fetched:
                self._ask_for_more(cursor, len(part.records))
                return None
            end, epoch = end_of(fetched, asked.wanted.offset)
            if 0 <= part.high_watermark < end:
                self._doubt(cursor, end, part.high_watermark)
                return None
        except CorruptBatch as error:
            if cursor.fetch_round == asked.fetch_round:
                self._corrupt_answer(cursor, error)
            return None
        cursor.min_fetch_bytes = 0
        cursor.fetch_from = end, epoch
        self._doubtful_end.pop(cursor, None)
        self._changed[cursor] = None
        if cursor in self.cursors:
            # Brokers fill their answers from the front, so a cursor that got something goes to the end of the next
            # request that names all of them.
            del self.cursors[cursor]
            self.cursors[cursor] = None
        return fetched

    def _doubt(self, cursor: Cursor, end: int, high_watermark: int) -> None:
        """Fetch batches again that end beyond the high watermark; raise CorruptBatch if they cannot be right.

        A broker reads its high watermark a moment before the records. If that is the reason, the next answer has a high
        watermark that has reached the end of these batches.
        """
        before = self._doubtful_end.get(cursor, high_watermark)
        self._doubtful_end[cursor] = end
        if high_watermark < before:
            raise CorruptBatch(f"batches end at offset {before - 1}, but the high watermark is {high_watermark}")

    def _corrupt_answer(self, cursor: Cursor, error: CorruptBatch) -> None:
        """Fetch the same offset again, or stop the partition if that has not helped."""
        cursor.counters.retries += 1
        if is_corrupt_for_good(cursor, cursor.fetch_from[0]):
            cursor.interrupt(cursor.stop_error(cursor.expected, str(error)))

    def _ask_for_more(self, cursor: Cursor, size: int) -> None:
        """Double the fetch size of a cursor: a broker before 0.10.1 has cut even the first message to it."""
        cursor.min_fetch_bytes = max(cursor.min_fetch_bytes, 2 * size)
        self._changed[cursor] = None
        if cursor.min_fetch_bytes > 2 * self._stream_task.fetch_max_bytes:
            cursor.interrupt(cursor.stop_error(cursor.expected, "its message is larger than fetch.max.bytes"))

    def _partition_error(self, cursor: Cursor, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            reason = f"source offset {cursor.expected} is out of range"
            cursor.interrupt(Renumber(RestartAt.OUT_OF_RANGE, reason))
        elif code == TOPIC_AUTHORIZATION_FAILED:
            reason = denied(self._source.endpoint, "Read", "topic", cursor.topic)
            cursor.interrupt(cursor.stop_error(cursor.expected, reason))
        else:
            cursor.note = f"source: {describe(BrokerError(code))}"
            cursor.counters.retries += 1
            self._rest(cursor)

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
