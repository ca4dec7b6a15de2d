"""One stream: a Spark task that mirrors the partitions which the driver gives it, until the driver says stop or is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
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
    MirrorError,
    Undeliverable,
    WireError,
    describe,
)
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol import produce
from mirrormaker.worker.buffer import Buffer
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.fetcher import Fetcher
from mirrormaker.worker.handler import load_handler
from mirrormaker.worker.interrupts import Renumber, RestartAt
from mirrormaker.worker.outlet import Outlet
from mirrormaker.worker.sender import Sender
from mirrormaker.worker.stream_task import StreamTask

_REFRESH_PAUSE = 0.1  # seconds between two looks at a cluster's metadata, however many partitions ask for one
_SKIP_WITHIN = (
    15.0  # seconds at the source's end with records of ours on the target that it does not show: a failover is shorter
)
_ZSTD_SINCE = 7  # the Produce request's version

T = TypeVar("T")


class Stream:
    """Holds what the parts of one stream share: both clusters, the buffer, and the cursors."""

    def __init__(self, work: StreamTask, number: int, attempt: int) -> None:
        self.work, self.number, self.attempt = work, number, attempt
        self.produce_timeout_ms = PRODUCE_TIMEOUT_MS
        self.source = Cluster(work.source)
        self.target = Cluster(work.target, self.has_lease)
        self.buffer = Buffer(work.buffer_bytes, work.buffer_messages)
        self.cursors: dict[tuple[str, int], Cursor] = {}
        # Partitions to take as soon as the cursor that has them now has ended.
        self._next: dict[tuple[str, int], Take] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._senders: dict[tuple[int, int], Sender] = {}
        self._limits: dict[str, int] = {}
        self._learnt: dict[str, int] = {}
        self._growth = 1.0  # bytes that are sent for each byte fetched
        self.handler, self._no_handler = None, ""
        try:
            self.handler = load_handler(work.handler, work.handler_object)
        except MirrorError as error:  # it was found where the mirror was started, and is not to be found here
            self._no_handler = str(error)
        self._hands = ThreadPoolExecutor(1, "message-handler")
        self._runs: set[asyncio.Task[None]] = set()
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._lease_from = lease_clock()  # when the last report was sent that the driver has answered
        self._sent_at: dict[int, float] = {}  # by report number
        self._parent = os.getppid()
        self._ended: list[Ended] = []
        self._never_taken: list[tuple[str, int]] = []
        self._reports = 0
        self._cpu_before = _cpu()  # Spark may have used this process for another task
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

    def _release(self, key: tuple[str, int]) -> None:
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
        self._hands.shutdown(wait=False, cancel_futures=True)

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

    def _knows(self, cursor: Cursor) -> bool:
        """Are all topics in the picture, with as many partitions as the driver has seen?"""
        targets = Counter(outlet.topic for outlet in cursor.outlets if cursor.fans_out) | Counter([cursor.topic])
        there = {name: len(topic.partitions) for name, topic in self.target.topics.items()}
        return cursor.topic in self.source.topics and all(there.get(t, 0) >= n for t, n in targets.items())

    def _agrees(self, cursor: Cursor) -> bool:
        """Is what we know of its topics as young as its position? The driver may have seen one created again before us."""
        try:
            self.check_topics(cursor)
        except Renumber:
            return False
        return True

    async def _mirror(self, cursor: Cursor) -> None:
        """Run one cursor to its end and tell the desk what became of it."""
        looked = self._agrees(cursor)
        while not (cursor.is_released or self._no_handler or (looked and self._knows(cursor))):
            looked = True
            try:
                await self.refresh_source()
                await self.refresh_target()
                for topic in {outlet.topic for outlet in cursor.outlets} & self.target.topics.keys():
                    await self._read_limit(topic)
            except OUTAGE as error:
                cursor.note = describe(error)
            if not self._knows(cursor):
                cursor.note = cursor.note or "waiting until the topics of source and target are to be seen"
                await asyncio.sleep(0.2)
        if self._no_handler:  # without it, records would go out that nobody has handled
            cursor.stop(cursor.stop_error(cursor.offset, self._no_handler))
        else:
            await cursor.run()
        self._ended.append(Ended(self._partition_report(cursor, cursor.closing), _outcome(cursor.done.result())))
        del self.cursors[cursor.topic, cursor.partition]
        self._report_now.set()
        if (take := self._next.pop((cursor.topic, cursor.partition), None)) is not None:
            self._take(take)

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
            cpu_seconds=round(_cpu() - self._cpu_before, 3),
            memory_bytes=_memory(),
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
            asyncio.get_running_loop().call_later(0.5, self._look_again, cursor)
            return
        if leader.leader not in self._fetchers:
            self._fetchers[leader.leader] = Fetcher(
                leader.leader,
                self.source,
                self.work,
                self.buffer,
                room_to_fetch=self.room_to_fetch,
                refresh=self.refresh_source,
            )
        self._fetchers[leader.leader].join(cursor)

    def _look_again(self, cursor: Cursor) -> None:
        if cursor.flowing:
            self._spawn(self.refresh_source())

    def check_topics(self, cursor: Cursor) -> None:
        """The same names may stand for other topics by now; the numbers were not meant for those."""
        source, target = self.source.topics.get(cursor.topic), self.target.topics.get(cursor.topic)
        if source and cursor.position.topic_id and any(source.id) and source.id != cursor.source_id:
            raise Renumber(RestartAt.FROM_THE_START, "the source topic was deleted and created again")
        if target and cursor.position.target_topic_id and any(target.id) and target.id != cursor.target_id:
            raise Renumber(RestartAt.SAME_PLACE, "the target topic was deleted and created again")

    def sender_of(self, outlet: Outlet) -> Sender:
        """The connection to the target partition's leader."""
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
        for fetcher in self._fetchers.values():
            fetcher.leave(cursor)

    def target_id(self, topic: str) -> bytes:
        return self.target.topics[topic].id

    async def target_takes_zstd(self) -> bool:
        """Since Kafka 2.1."""
        connection = await self.target.connection(min(self.target.brokers))
        return produce.version_for(connection) >= _ZSTD_SINCE

    def room_to_fetch(self) -> int:
        """Bytes to ask for: what still fits into the buffer once it is unpacked."""
        return max(1, min(self.work.fetch_max_bytes, int(self.buffer.room / self._growth)))

    def note_growth(self, came: int, goes: int) -> None:
        """Records may take more room than they came in; what is fetched next must fit all the same."""
        self._growth = max(1.0, 0.8 * self._growth + 0.2 * goes / max(1, came))

    async def run_in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Run user code in its own thread: reports must go on meanwhile, or the desk would take this stream for dead."""
        return await asyncio.get_running_loop().run_in_executor(self._hands, partial(call, *args))

    def learn_limit(self, topic: str, size: int) -> None:
        """The target refused a larger batch, though its settings allow it or could not be read: try half of it."""
        self._learnt[topic] = min(size, self.max_batch_bytes(topic))

    def max_batch_bytes(self, topic: str) -> int:
        return min(self.max_message_bytes(topic), self._learnt.get(topic, 1 << 62))

    def max_message_bytes(self, topic: str) -> int:
        return self._limits.get(topic, 1 << 62)

    async def _read_limit(self, topic: str) -> None:
        """The largest batch that the target topic takes; where it may not be read, the broker will say it."""
        with contextlib.suppress(WireError):
            for result in await describe_configs(self.target, TOPIC, [topic], ["max.message.bytes"]):
                for setting in result.configs or ():
                    if setting.name == "max.message.bytes" and setting.value:
                        self._limits[topic] = int(setting.value)

    # -- metadata, one look at a time

    async def refresh_source(self) -> None:
        await self._once("source", self._refresh_source)

    async def refresh_target(self) -> None:
        await self._once("target", self._refresh_target)

    async def _once(self, which: str, refresh: Any) -> None:
        task = self._refreshing.get(which)
        if task is None or task.done():
            task = self._refreshing[which] = asyncio.create_task(refresh())
        await asyncio.shield(task)

    async def _refresh_source(self) -> None:
        with contextlib.suppress(*OUTAGE):
            await self.source.refresh({topic for topic, _ in self.cursors})
        self._look_at_topics()
        for cursor in list(self.cursors.values()):
            if cursor.flowing:
                self.fetch(cursor)
        await asyncio.sleep(_REFRESH_PAUSE)

    async def _refresh_target(self) -> None:
        with contextlib.suppress(*OUTAGE):
            await self.target.refresh(self._target_topics())
        self._look_at_topics()
        await asyncio.sleep(_REFRESH_PAUSE)

    def _target_topics(self) -> set[str]:
        return {outlet.topic for cursor in self.cursors.values() for outlet in cursor.outlets}

    def _look_at_topics(self) -> None:
        for cursor in list(self.cursors.values()):
            try:
                self.check_topics(cursor)
            except Renumber as why:
                cursor.interrupt(why)


def _outcome(why: Exception | None) -> Outcome:
    """Translate the reason for which a cursor ended."""
    if why is None:
        return Released()
    if isinstance(why, Renumber):
        return NeedsIdentity(int(why.where), why.reason, tuple(why.topics))
    if isinstance(why, Undeliverable):
        return CannotDeliver(why.offset, why.cause, str(why))
    return Stopped(str(why), final=isinstance(why, MirrorError) and not why.retriable)


def _cpu() -> float:
    """Seconds of processor time that this process has had."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _memory() -> int:
    """Bytes in memory now; where the system does not tell, the most that there ever were."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(work: StreamTask, number: int, attempt: int) -> list[Position]:
    """The body of a Spark task."""

    async def whole() -> list[Position]:
        return await Stream(work, number, attempt).run()

    return asyncio.run(whole())
