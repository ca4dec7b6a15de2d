"""One stream: a Spark task that mirrors the partitions which the driver gives it, until the driver says stop or is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_messages import (
    CannotDeliver,
    Ended,
    NeedsIdentity,
    Outcome,
    PartitionReport,
    Released,
    Report,
    Stopped,
    Take,
)
from mirrormaker.control.lease import LEASE, PRODUCE_TIMEOUT_MS, REPORT_EVERY, lease_clock
from mirrormaker.errors import (
    OUTAGE,
    BrokerError,
    DriverGone,
    LogReplaced,
    MirrorError,
    Undeliverable,
    describe,
)
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.worker.buffer import Buffer
from mirrormaker.worker.counters import cpu_seconds, memory_bytes
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetcher import Fetcher
from mirrormaker.worker.handler import load_handler
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.outlet import Outlet
from mirrormaker.worker.sender import Sender
from mirrormaker.worker.stream_metadata import StreamMetadata
from mirrormaker.worker.stream_task import StreamTask

# How many seconds a cursor waits at the source's end for records that it expects to skip. A failover is shorter.
_SKIP_WITHIN = 15.0
_PROVED_WITHIN = (
    2.0  # seconds that a cursor waits for an acknowledgement after the requests of a former sender are through
)

T = TypeVar("T")


class Stream:
    """Owns the parts of one stream: both clusters, the buffer, the cursors, and their fetchers and senders."""

    def __init__(self, work: StreamTask, number: int, attempt: int) -> None:
        self.work, self.number, self.attempt = work, number, attempt
        self.produce_timeout_ms = PRODUCE_TIMEOUT_MS
        self.source = Cluster(work.source)
        self.target = Cluster(work.target, self.has_lease)
        self.buffer = Buffer(work.buffer_bytes, work.buffer_messages)
        self.cursors: dict[TopicPartition, Cursor] = {}
        # Partitions to take as soon as the cursor that has them now has ended.
        self._next: dict[TopicPartition, Take] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._senders: dict[tuple[int, int], Sender] = {}
        self.metadata = StreamMetadata(
            self.source, self.target, lambda: (topic for topic, _ in self.cursors), self._target_topics
        )
        self.metadata.on_source, self.metadata.on_target = self._source_refreshed, self._check_all_topics
        self._growth = 1.0  # bytes sent for each byte fetched
        self.handler, self._no_handler = None, ""
        try:
            self.handler = load_handler(work.handler, work.handler_object)
        except MirrorError as error:
            # The driver could load it; this machine cannot.
            self._no_handler = str(error)
        self._handler_thread = ThreadPoolExecutor(1, "message-handler")
        self._runs: set[asyncio.Task[None]] = set()
        self._lease_from = lease_clock()  # when the last report was sent that the driver has answered
        self._sent_at: dict[int, float] = {}  # by report number
        self._parent = os.getppid()
        self._ended: list[Ended] = []
        self._never_taken: list[TopicPartition] = []
        self._reports = 0
        self._cpu_before = cpu_seconds()  # Spark may have used this process for another task before
        self._was_told_to_stop = False
        self._stopping = asyncio.Event()
        self._is_cut_off = False  # from the driver, and so without a lease

    # -- the life of a stream

    async def run(self) -> list[Position]:
        """Mirror until told to stop; return how far each partition came."""
        task = self.work
        client = await ControlClient.open(task.control, task.secret, task.flow, task.job, self.number, self.attempt)
        self._report_now = asyncio.Event()
        listening = asyncio.create_task(self._follow_orders(client))
        self._spawn(self.metadata.follow_target())
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._report_now.wait(), REPORT_EVERY)
                self._report_now.clear()
                self._tick()
                await self._send_report(client)
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
            raise DriverGone("the driver does not answer")
        return [cursor.current for cursor in self.cursors.values()]

    async def _finish(self, client: ControlClient) -> None:
        """Release every partition, and report as they end."""
        for cursor in self.cursors.values():
            cursor.release()
        while self.cursors and self.has_lease():
            await asyncio.wait([c.done for c in self.cursors.values()], timeout=REPORT_EVERY)
            await asyncio.sleep(0)
            await self._send_report(client)
        await self._send_report(client)

    async def _send_report(self, client: ControlClient) -> None:
        number = self._reports = self._reports + 1
        self._sent_at[number] = lease_clock()
        await client.report(self._report(number))

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
                    self._report_now.set()
        except DriverGone:
            self._is_cut_off = True
            self._stopping.set()
            self._report_now.set()

    def _extend_lease(self, number: int) -> None:
        """The lease counts from when the answered report was sent: answers may have waited in a frozen process."""
        self._lease_from = self._sent_at.pop(number, self._lease_from)
        self._sent_at = {other: when for other, when in self._sent_at.items() if other > number}

    def _release(self, key: TopicPartition) -> None:
        cursor = self.cursors.get(key)
        waiting = self._next.pop(key, None)
        if cursor is not None:
            cursor.release()
        if cursor is None or waiting is not None:
            self._never_taken.append(key)
            self._report_now.set()

    def has_lease(self) -> bool:
        """Return True while this stream may send."""
        return not self._is_cut_off and lease_clock() - self._lease_from < LEASE

    def _tick(self) -> None:
        is_orphan = os.getppid() != self._parent  # Spark's worker daemon has died
        if is_orphan or not self.has_lease():
            self._is_cut_off = True
            self._stopping.set()
        for sender in self._senders.values():
            sender.tick(self.work.target.request_timeout)
        for cursor in self.cursors.values():
            cursor.check_skipping(_SKIP_WITHIN)
            cursor.check_zombies(_PROVED_WITHIN)

    def _close(self) -> None:
        abort = not self.has_lease()
        for task in self._runs:
            task.cancel()
        for fetcher in self._fetchers.values():
            fetcher.task.cancel()
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

    def _knows_topics(self, cursor: Cursor) -> bool:
        """Return True if the metadata has all of the cursor's topics, with as many partitions as the driver has seen."""
        wanted = Counter(outlet.topic for outlet in cursor.outlets if cursor.fans_out) | Counter([cursor.topic])
        known = {name: len(topic.partitions) for name, topic in self.target.topics.items()}
        return cursor.topic in self.source.topics and all(known.get(t, 0) >= n for t, n in wanted.items())

    def _is_up_to_date(self, cursor: Cursor) -> bool:
        """Return False if the driver has seen a topic created again that our metadata shows as it was before."""
        try:
            self.check_topics(cursor)
        except (LogReplaced, Renumber):
            return False
        return True

    async def _mirror(self, cursor: Cursor) -> None:
        """Run one cursor to its end, and report the outcome."""
        is_fresh = self._is_up_to_date(cursor)
        while not (cursor.is_released or self._no_handler or (is_fresh and self._knows_topics(cursor))):
            is_fresh = True
            await self._learn_topics(cursor)
        if self._no_handler:
            # Without it, records would be sent that nobody has handled.
            cursor.stop(cursor.stop_error(cursor.offset, self._no_handler))
        else:
            await cursor.run()
        self._ended.append(Ended(self._partition_report(cursor, cursor.closing), _outcome(cursor.done.result())))
        del self.cursors[cursor.topic, cursor.partition]
        self._report_now.set()
        if (take := self._next.pop((cursor.topic, cursor.partition), None)) is not None:
            self._take(take)

    async def _learn_topics(self, cursor: Cursor) -> None:
        """Refresh the metadata of a cursor's topics, and read their settings."""
        try:
            await self.metadata.refresh_source()
            await self.metadata.refresh_target()
            await self.metadata.read_settings(self.target.topics.keys() & {outlet.topic for outlet in cursor.outlets})
        except OUTAGE as error:
            cursor.note = describe(error)
        if not self._knows_topics(cursor):
            cursor.note = cursor.note or "waiting until source and target show the topics"
            await asyncio.sleep(0.2)

    def _report(self, number: int) -> Report:
        """Collect each cursor's position, and the partitions that ended since the last report."""
        ended, self._ended = self._ended, []
        never_taken, self._never_taken = self._never_taken, []
        return Report(
            number,
            tuple(self._partition_report(cursor, cursor.current) for cursor in self.cursors.values()),
            tuple(ended),
            tuple(never_taken),
            buffer_bytes=self.buffer.bytes,
            cpu_seconds=round(cpu_seconds() - self._cpu_before, 3),
            memory_bytes=memory_bytes(),
        )

    def _partition_report(self, cursor: Cursor, position: Position) -> PartitionReport:
        return PartitionReport(
            position,
            cursor.tenancy,
            cursor.state,
            cursor.note,
            cursor.records,
            cursor.bytes,
            cursor.high_watermark,
            cursor.is_clean,
            cursor.counters.collect(),
        )

    # -- what cursors ask for

    def fetch(self, cursor: Cursor) -> None:
        """Bring a cursor to the fetcher of its leader."""
        leader = self.source.leader(cursor.topic, cursor.partition)
        for node, fetcher in self._fetchers.items():
            if cursor in fetcher.cursors and (leader is None or node != leader.leader):
                fetcher.leave(cursor)
                cursor.fetch_round += 1
                cursor.fetch_from = cursor.expected, cursor.expected_epoch
        if leader is None:
            cursor.note = "source: the partition has no leader"
            asyncio.get_running_loop().call_later(0.5, self._refresh_for, cursor)
            return
        if leader.leader not in self._fetchers:
            self._fetchers[leader.leader] = Fetcher(
                leader.leader,
                self.source,
                self.work,
                self.buffer,
                room_to_fetch=self.room_to_fetch,
                refresh=self.metadata.refresh_source,
            )
        self._fetchers[leader.leader].join(cursor)

    def _refresh_for(self, cursor: Cursor) -> None:
        if cursor.flowing:
            self._spawn(self.metadata.refresh_source())

    def check_topics(self, cursor: Cursor) -> None:
        """Raise `Renumber` or `LogReplaced` if a topic was deleted and created again: numbers are not meant for the new one."""
        source = self.source.topics.get(cursor.topic)
        if source and cursor.position.topic_id and any(source.id) and source.id != cursor.source_id:
            raise Renumber(RestartAt.FROM_THE_START, "the source topic was deleted and created again")
        for topic, known_id in cursor.target_ids.items():
            target = self.target.topics.get(topic)
            if target and any(known_id) and any(target.id) and target.id != known_id:
                raise LogReplaced(topic)

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
        for fetcher in self._fetchers.values():
            fetcher.leave(cursor)

    def room_to_fetch(self) -> int:
        """Return how many bytes to fetch: as many as fit into the buffer once they are unpacked."""
        return max(1, min(self.work.fetch_max_bytes, int(self.buffer.room / self._growth)))

    def note_growth(self, fetched: int, sent: int) -> None:
        """Note that records take more room than the bytes that were fetched, so that less is fetched next."""
        self._growth = max(1.0, 0.8 * self._growth + 0.2 * sent / max(1, fetched))

    async def run_handler(self, call: Callable[..., T], *args: Any) -> T:
        """Run the message handler in a thread of its own: reports must go on meanwhile, or the driver gives this stream up."""
        return await asyncio.get_running_loop().run_in_executor(self._handler_thread, partial(call, *args))

    # -- after a refresh of the metadata

    def _target_topics(self) -> set[str]:
        return {outlet.topic for cursor in self.cursors.values() for outlet in cursor.outlets}

    def _source_refreshed(self) -> None:
        self._check_all_topics()
        for cursor in list(self.cursors.values()):
            if cursor.flowing:
                self.fetch(cursor)

    def _check_all_topics(self) -> None:
        for cursor in list(self.cursors.values()):
            try:
                self.check_topics(cursor)
            except (LogReplaced, Renumber) as reason:
                cursor.interrupt(reason)


def _outcome(why: Exception | None) -> Outcome:
    """Translate the reason for which a cursor ended."""
    if why is None:
        return Released()
    if isinstance(why, Renumber):
        return NeedsIdentity(int(why.where), why.reason, tuple(why.topics))
    if isinstance(why, Undeliverable):
        return CannotDeliver(why.offset, why.cause, str(why))
    return Stopped(str(why), final=isinstance(why, MirrorError) and not why.retriable)


def run(work: StreamTask, number: int, attempt: int) -> list[Position]:
    """Run one stream: the body of a Spark task."""

    async def whole() -> list[Position]:
        return await Stream(work, number, attempt).run()

    return asyncio.run(whole())
