"""One stream: a Spark task that mirrors the partitions which the driver gives it, until the driver says stop or is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_messages import Take
from mirrormaker.control.lease import LEASE, PRODUCE_TIMEOUT_MS, REPORT_EVERY, lease_clock
from mirrormaker.errors import BrokerError, DriverGone, LogReplaced, MirrorError, describe, describe_any
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster, topic_id
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.wire.transport.turns import in_turns
from mirrormaker.worker.buffer import Buffer
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetchers import Fetchers
from mirrormaker.worker.handler import load_handler
from mirrormaker.worker.interrupts import AwaitZombies, Renumber, RestartAt
from mirrormaker.worker.memory import FreedMemory
from mirrormaker.worker.outlet import Outlet
from mirrormaker.worker.reporting import Reporting
from mirrormaker.worker.sender import Sender
from mirrormaker.worker.stream_metadata import StreamMetadata
from mirrormaker.worker.stream_task import StreamTask

# How many seconds a cursor waits at the source's end for records that it expects to skip. A failover is shorter.
_SKIP_WITHIN = 15.0
# How many seconds a cursor waits for an acknowledgement once no request of a former sender can be appended any more.
_PROVED_WITHIN = 2.0
# How many cursors read their logs again in one tick, so that thousands of idle ones do not hold up the others.
_READ_AGAIN_AT_ONCE = 100

T = TypeVar("T")


class Stream:
    """Owns the parts of one stream: both clusters, the buffer, the cursors, and their fetchers and senders."""

    def __init__(self, work: StreamTask, number: int, attempt: int) -> None:
        self.work, self.number, self.attempt = work, number, attempt
        self.produce_timeout_ms = PRODUCE_TIMEOUT_MS
        self.source = Cluster(work.source)
        self.target = Cluster(work.target, self.has_lease)
        self.buffer = Buffer(work.buffer_bytes, work.buffer_messages)
        self._freed_memory = FreedMemory(work.buffer_bytes // 2)
        self.cursors: dict[TopicPartition, Cursor] = {}
        # Partitions to take as soon as the cursor that has them now has ended.
        self._next: dict[TopicPartition, Take] = {}
        # Cursors that wait for records which the target holds already, or for a proof of what it holds.
        self._watched: set[Cursor] = set()
        self._senders: dict[tuple[int, int], Sender] = {}
        # The ids of topics on source and target when their cursors were last checked.
        self._topic_ids: dict[str, tuple[bytes, bytes]] = {}
        self.metadata = StreamMetadata(self.source, self.target, self._source_refreshed, self._check_topics)
        self._fetchers = Fetchers(self.source, work, self.buffer, self.metadata.refresh_source, self._fail)
        self.handler, self._no_handler = None, ""
        try:
            self.handler = load_handler(work.handler, work.handler_object)
        except MirrorError as error:
            # The driver could load it; this machine cannot.
            self._no_handler = str(error)
        self._handler_thread = ThreadPoolExecutor(1, "message-handler")
        self._runs: set[asyncio.Task[None]] = set()
        self.reporting = Reporting()
        self._lease_from = lease_clock()  # when the last report was sent that the driver has answered
        self._sent_at: dict[int, float] = {}  # by report number
        self._parent = os.getppid()
        self._was_told_to_stop = False
        self._stopping = asyncio.Event()
        self._is_cut_off = False  # from the driver, and so without a lease
        # The error that ended one of the stream's own tasks, and with it the stream.
        self._failure: Exception | None = None

    # -- the life of a stream

    async def run(self) -> list[Position]:
        """Mirror until told to stop; return how far each partition came."""
        task = self.work
        client = await ControlClient.open(task.control, task.secret, task.flow, task.job, self.number, self.attempt)
        listening = asyncio.create_task(self._follow_orders(client))
        watch(listening, self._fail)
        self._spawn(self.metadata.follow_target(self._target_topics))
        try:
            next_tick = time.monotonic() + REPORT_EVERY
            while not self._stopping.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.reporting.is_urgent.wait(), max(0.0, next_tick - time.monotonic()))
                if time.monotonic() < next_tick:
                    # Only what has ended is urgent: looking at every cursor each time would be too much when many end.
                    await self._send_report(client, ())
                    continue
                next_tick = time.monotonic() + REPORT_EVERY
                self._tick()
                await self._send_report(client, self.cursors.values())
            if not self._is_cut_off:
                await self._finish(client)
        except DriverGone:
            self._is_cut_off = True
        finally:
            listening.cancel()
            client.close()
            self._close()
        if self._is_cut_off and not self._was_told_to_stop:
            # Spark starts a failed task again; a task that returns is done for good.
            raise self._failure or DriverGone("the driver does not answer")
        return [cursor.current for cursor in self.cursors.values()]

    async def _finish(self, client: ControlClient) -> None:
        """Release every partition, and report as they end."""
        for cursor in self.cursors.values():
            cursor.release()
        while self.cursors and self.has_lease():
            await asyncio.wait([c.done for c in self.cursors.values()], timeout=REPORT_EVERY)
            await asyncio.sleep(0)
            await self._send_report(client, self.cursors.values())
        await self._send_report(client, self.cursors.values())

    async def _send_report(self, client: ControlClient, cursors: Iterable[Cursor]) -> None:
        """Report what has changed of these cursors, and what has ended."""
        self.reporting.is_urgent.clear()
        now = lease_clock()
        report = self.reporting.report(cursors, self.buffer.bytes)
        self._sent_at[report.number] = now
        await client.report(report)

    async def _follow_orders(self, client: ControlClient) -> None:
        """Carry out the driver's orders as they come."""
        try:
            async for order in client:
                if order.heard is not None:
                    self._extend_lease(order.heard)
                for take in order.take:
                    self._take(take)
                for key in order.release:
                    self._release(key)
                if order.stop:
                    self._was_told_to_stop = True
                    self._stopping.set()
                    self.reporting.is_urgent.set()
        except DriverGone:
            self._end_at_once()

    def _end_at_once(self) -> None:
        """End like a stream that is killed: connections are reset, and the driver goes on from the last report."""
        self._is_cut_off = True
        self._stopping.set()
        self.reporting.is_urgent.set()

    def _fail(self, error: Exception) -> None:
        """End the stream, and raise the error to Spark, which starts it again.

        One of its tasks has died. It may be in the middle of anything, so nothing less is safe: without it, partitions could
        wait for ever.
        """
        traceback.print_exception(error)
        self._failure = self._failure or error
        self._end_at_once()

    def _extend_lease(self, number: int) -> None:
        """The lease counts from when the answered report was sent: answers may have waited in a frozen process."""
        self._lease_from = self._sent_at.pop(number, self._lease_from)
        self._sent_at = {other: when for other, when in self._sent_at.items() if other > number}

    def _release(self, key: TopicPartition) -> None:
        cursor = self.cursors.get(key)
        waiting = self._next.pop(key, None)
        if cursor is not None:
            cursor.release()
        if waiting is not None:
            self.reporting.never_began(waiting)
        elif cursor is None:
            self.reporting.never_taken(key)

    def has_lease(self) -> bool:
        """Return True while this stream may send."""
        return not self._is_cut_off and lease_clock() - self._lease_from < LEASE

    def _tick(self) -> None:
        is_orphan = os.getppid() != self._parent  # Spark's worker daemon has died
        if is_orphan or not self.has_lease():
            self._is_cut_off = True
            self._stopping.set()
        self._freed_memory.tick(self.buffer.peak())
        for sender in self._senders.values():
            sender.tick(self.work.target.request_timeout)
        for cursor in self._watched:
            cursor.check_skipping(_SKIP_WITHIN)
        overdue = (cursor for cursor in self._watched if cursor.must_read_again(_PROVED_WITHIN))
        for cursor in islice(overdue, _READ_AGAIN_AT_ONCE):
            cursor.interrupt(AwaitZombies())
        self._watched = {cursor for cursor in self._watched if cursor.flowing and cursor.is_unproved}

    def _close(self) -> None:
        abort = not self.has_lease()
        for task in self._runs:
            task.cancel()
        self._fetchers.close()
        for sender in self._senders.values():
            sender.close(abort=abort)
        self.source.close()
        self.target.close(abort=abort)
        self._handler_thread.shutdown(wait=False, cancel_futures=True)

    # -- partitions come and go

    def _take(self, take: Take) -> None:
        key = take.position.key
        if self._stopping.is_set():
            return
        if key in self.cursors:  # the driver gave up waiting for it, and wants it to start again
            self.cursors[key].release()
            if key in self._next:
                self.reporting.never_began(self._next[key])
            self._next[key] = take
            return
        cursor = Cursor(self, take.position, clean=take.clean)
        cursor.tenancy = take.tenancy
        self.cursors[key] = cursor
        self._spawn(self._mirror(cursor))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        watch(task, self._fail)

    def _knows_topics(self, cursor: Cursor) -> bool:
        """Return True if the metadata has all of the cursor's topics, with as many partitions as the driver has seen."""
        wanted = Counter(outlet.topic for outlet in cursor.outlets if cursor.fans_out) | Counter([cursor.topic])
        known = self.target.topics
        return cursor.topic in self.source.topics and all(
            topic in known and len(known[topic].partitions) >= count for topic, count in wanted.items()
        )

    def _is_up_to_date(self, cursor: Cursor) -> bool:
        """Return False if the driver has seen a topic created again that our metadata shows as it was before."""
        try:
            self.check_topics(cursor)
        except (LogReplaced, Renumber):
            return False
        return True

    async def _mirror(self, cursor: Cursor) -> None:
        """Run one cursor to its end, and report the outcome."""
        # Without its handler, records would be sent that nobody has handled.
        reason = self._no_handler
        try:
            await self._wait_for_topics(cursor)
        except Exception as error:  # nothing of it is under way yet, so the others can go on
            traceback.print_exc()
            reason = describe_any(error)
        if reason:
            cursor.stop(cursor.stop_error(cursor.offset, reason))
        else:
            await cursor.run()
        self.reporting.ended(cursor)
        del self.cursors[cursor.topic, cursor.partition]
        if (take := self._next.pop((cursor.topic, cursor.partition), None)) is not None:
            self._take(take)

    async def _wait_for_topics(self, cursor: Cursor) -> None:
        """Wait until the metadata has the cursor's topics, as the driver has seen them."""
        is_fresh = self._is_up_to_date(cursor)
        while not (cursor.is_released or self._no_handler or (is_fresh and self._knows_topics(cursor))):
            is_fresh = True
            await cursor.unless_released(self._learn_topics(cursor))

    def _target_topics(self) -> set[str]:
        """Return the topics that this stream's cursors write to."""
        return {outlet.topic for cursor in self.cursors.values() for outlet in cursor.outlets}

    async def _learn_topics(self, cursor: Cursor) -> None:
        """Refresh the metadata of a cursor's topics, and read their settings. Cursors share the requests."""
        topics = {outlet.topic for outlet in cursor.outlets}
        try:
            await self.metadata.learn(cursor.topic, topics)
        except Exception as error:  # whatever it is, the next attempt or the cursor itself finds out
            cursor.note = describe(error)
        if not self._knows_topics(cursor):
            cursor.note = cursor.note or "waiting until source and target show the topics"
            await asyncio.sleep(0.2)

    # -- what cursors ask for

    def fetch(self, cursor: Cursor) -> None:
        """Bring a cursor to the fetcher of its leader."""
        if cursor.is_unproved:
            self._watched.add(cursor)
        self._fetchers.fetch(cursor)

    def check_topics(self, cursor: Cursor) -> None:
        """Raise `Renumber` or `LogReplaced` if a topic was deleted and created again: numbers are not meant for the new one.

        Topics from before Kafka 2.8 have no id until their cluster is upgraded: the first id that a cursor sees counts.
        """
        source_id = _id_of(self.source, cursor.topic) or cursor.source_id
        if any(cursor.source_id) and source_id != cursor.source_id:
            raise Renumber(RestartAt.FROM_THE_START, "the source topic was deleted and created again")
        for topic, known_id in cursor.target_ids.items():
            if any(known_id) and (_id_of(self.target, topic) or known_id) != known_id:
                raise LogReplaced(topic)
        target_id = _id_of(self.target, cursor.topic) or cursor.target_ids[cursor.topic]
        if (source_id, target_id) != (cursor.source_id, cursor.target_ids[cursor.topic]):
            cursor.source_id, cursor.target_ids[cursor.topic] = source_id, target_id
            cursor.position = replace(cursor.position, topic_id=source_id.hex(), target_topic_id=target_id.hex())

    def sender_of(self, outlet: Outlet) -> Sender:
        """Return the sender to the leader of an outlet's target partition."""
        leader = self.target.leader(outlet.topic, outlet.partition)
        if leader is None:
            raise BrokerError(LEADER_NOT_AVAILABLE, f"{outlet.topic}-{outlet.partition} has no leader on the target")
        lane = (hash(outlet.topic) + outlet.partition) % self.work.connections
        sender = self._senders.get((leader.leader, lane))
        if sender is None:
            sender = Sender(leader.leader, lane, self.target, self.work, self.produce_timeout_ms)
            self._senders[leader.leader, lane] = sender
        return sender

    def forget(self, cursor: Cursor) -> None:
        """Fetch nothing more for a cursor."""
        self._fetchers.forget(cursor)

    def note_growth(self, fetched: int, sent: int) -> None:
        """Note that records take more room than the bytes that were fetched, so that less is fetched next."""
        self.buffer.note_growth(fetched, sent)

    async def run_handler(self, call: Callable[..., T], *args: Any) -> T:
        """Run the message handler in a thread of its own: reports must go on meanwhile, or the driver gives this stream up."""
        return await asyncio.get_running_loop().run_in_executor(self._handler_thread, partial(call, *args))

    # -- after a refresh of the metadata

    async def _source_refreshed(self, topics: set[str]) -> None:
        self._check_topics(topics)
        async for cursor in in_turns(cursor for cursor in self.cursors.values() if cursor.topic in topics):
            if cursor.flowing:
                self._fetchers.fetch(cursor)

    def _check_topics(self, topics: set[str]) -> None:
        """Check the cursors of topics whose ids have changed; a cursor that begins, or begins again, checks for itself."""
        ids = {topic: (_id_of(self.source, topic), _id_of(self.target, topic)) for topic in topics}
        changed = {topic for topic, found in ids.items() if self._topic_ids.get(topic) != found}
        self._topic_ids |= ids
        if not changed:
            return
        for cursor in [cursor for cursor in self.cursors.values() if not changed.isdisjoint(cursor.target_ids)]:
            try:
                self.check_topics(cursor)
            except (LogReplaced, Renumber) as reason:
                cursor.interrupt(reason)


def _id_of(cluster: Cluster, topic: str) -> bytes:
    """Return a topic's id; nothing if it has none, or is not known."""
    return bytes.fromhex(topic_id(cluster, topic))


def run(work: StreamTask, number: int, attempt: int) -> list[Position]:
    """Run one stream: the body of a Spark task."""

    async def whole() -> list[Position]:
        return await Stream(work, number, attempt).run()

    return asyncio.run(whole())
