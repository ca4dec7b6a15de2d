"""One source partition on its way through a stream.

The hot path is plain calls: the fetcher hands batches to `accept`, the sender takes them from `ready`, answers come to
`acknowledged`. Everything slow or rare (resuming, retrying, letting go) is `run`, a coroutine that reads top to bottom.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.errors import KafkaError

from mirrormaker.errors import PartitionError
from mirrormaker.stream.buffer import Frame
from mirrormaker.stream.identity import Channel, NumbersBroken
from mirrormaker.stream.lanes import committed, goes_as_is, why_not_as_is
from mirrormaker.stream.position import Position
from mirrormaker.stream.resume import Found, read_back
from mirrormaker.stream.work import ZOMBIE_HORIZON
from mirrormaker.wire.batch import Batch, CorruptBatch, OldFormat
from mirrormaker.wire.codec import BadFrame
from mirrormaker.wire.connection import UnsupportedRequest

T = TypeVar("T")

if TYPE_CHECKING:
    from mirrormaker.stream.sender import Sender
    from mirrormaker.stream.stream import Stream

_HOUR_MS = 3_600_000  # a margin: brokers look for expired identities only now and then
_BACKOFF = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts at one partition; a failover takes a broker 0.1 to 2 s


class Entry:
    """A batch to be sent; `end` and `epoch` are where the source stands once it is acknowledged."""

    __slots__ = ("batch", "end", "epoch", "frame", "old", "size")

    def __init__(self, batch: Batch, frame: Frame, old: bool) -> None:
        self.batch = batch
        self.frame = frame
        self.end = batch.last_offset + 1
        self.epoch = batch.leader_epoch
        self.old = old
        self.size = len(batch.data)
        frame.keep(batch.count)

    def drop(self) -> None:
        self.frame.drop(self.batch.count)


class Released(Exception):
    """The desk wants the partition back."""


class Hold(Exception):
    """Records that a broker may forget who wrote, soon after another sender was at work: wait, then look again."""


class Undeliverable(PartitionError):
    """The target will never take this: what happens next is for `--abort.on.send.failure` to say."""


# Where a partition goes on that needs new numbers.
SAME_PLACE, FROM_THE_START, OUT_OF_RANGE = 0, 1, 2


class Renumber(Exception):
    """The records that follow are not those that the numbers were meant for: only the driver may give a new identity."""

    def __init__(self, where: int, reason: str) -> None:
        super().__init__(reason)
        self.where, self.reason = where, reason


class Cursor:
    """Where one source partition stands: fetched, ready, sent, acknowledged."""

    def __init__(self, stream: Stream, position: Position, *, clean: bool) -> None:
        self.stream = stream
        self.position = position  # as taken; `current` is how far it has come
        self.topic, self.partition = position.key
        self.source_id, self.target_id = bytes.fromhex(position.topic_id), bytes.fromhex(position.target_topic_id)
        # Acknowledged; these three move together, or a successor would give a number to another record.
        self.offset, self.epoch, self.cut = position.offset, position.leader_epoch, position.cut(position.partition)
        self.channel = Channel(position.identity, self.cut)
        self.sender: Sender | None = None  # chosen once per lap: answers are matched in the order of one connection
        self.expected, self.expected_epoch = position.offset, position.leader_epoch  # the next to come out of a fetch
        self.fetch_from = (
            self.expected,
            self.expected_epoch,
        )  # the next to ask for: ahead of `expected` by what is under way
        self.ready: deque[Entry] = deque()
        self.sent: deque[Entry] = deque()
        self.flowing = False
        self.lap = 0  # fetches of an earlier lap are not ours any more
        self.skip = 0  # records after `offset` that the target already holds
        self.skip_to: Found | None = None
        self.high_watermark = -1
        self.records = self.bytes = self.resumes = 0
        self.state, self.note = "waiting", ""
        self.max_message_bytes = 1 << 62
        self.done = asyncio.get_running_loop().create_future()  # of Released, or of why it stopped
        self._clean = clean
        self._hold_until = 0.0 if clean else time.monotonic() + ZOMBIE_HORIZON
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_ack = time.monotonic()
        self._drained = asyncio.Event()
        self._released = asyncio.Event()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def current(self) -> Position:
        return self.position.advanced(self.offset, self.epoch, self.cut)

    @property
    def is_clean(self) -> bool:
        """Is nothing on its way to the target, or there already, that the position does not know of?"""
        return self._clean or not (self.channel.in_trouble or self.skip or self.sent)

    # -- the hot path

    def accept(self, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        """Take what was fetched: drop what is not data or already there, queue the rest."""
        expiration = self.stream.work.identity_expiration_ms - _HOUR_MS
        old_before = time.time() * 1000 - expiration
        if not self.sent and time.monotonic() - self._last_ack > expiration / 1000:
            self.channel.known = False  # quiet for so long that the leader may have forgotten us
        try:
            for batch, is_data in committed(batches, aborted):
                if batch.last_offset < self.expected:
                    continue  # the broker may start with a batch that lies before the wanted offset
                batch.check()
                if is_data:
                    if batch.base_offset < self.expected:
                        raise self._cannot(batch, f"it must be cropped to start at {self.expected}")
                    if self.skip:
                        self._skip(batch)
                        is_data = False
                if is_data:
                    if not goes_as_is(batch, self.max_message_bytes):
                        raise self._cannot(batch, why_not_as_is(batch, self.max_message_bytes))
                    old = batch.max_timestamp < old_before
                    if old and time.monotonic() < self._hold_until:
                        raise Hold
                    entry = Entry(batch, frame, old)
                    self.ready.append(entry)
                    self.expected, self.expected_epoch = entry.end, entry.epoch
                else:
                    self._pass_over(batch)
        except CorruptBatch as error:
            self.trouble(self.stops(self.expected, str(error)))
        except (PartitionError, Hold) as error:
            self.trouble(error)
        if self.ready and self.sender is not None:
            self.sender.offer(self)

    def _skip(self, batch: Batch) -> None:
        if self.skip < batch.count:
            raise self._cannot(batch, f"the target holds its first {self.skip} records and it must be cropped")
        self.skip -= batch.count
        if self.skip == 0 and self.skip_to is not None and self.skip_to.differs_from(Found.of(batch)):
            raise self.stops(
                batch.base_offset,
                "the source is not what was mirrored: its log was compacted or truncated since, and counting would lose records",
            )

    def _pass_over(self, batch: Batch) -> None:
        """Nothing to send for these offsets: they count as mirrored as soon as all before them is."""
        self.expected, self.expected_epoch = batch.last_offset + 1, batch.leader_epoch
        last = self.ready[-1] if self.ready else self.sent[-1] if self.sent else None
        if last is not None:
            last.end, last.epoch = self.expected, self.expected_epoch
        elif not self.skip:  # in the middle of a skip the cut is already behind it: offset and cut would not fit
            self.offset, self.epoch, self.cut = self.expected, self.expected_epoch, self.channel.cut

    def next_batch(self, limit: int, room: int) -> Entry | None:
        """Number and stamp the oldest batch that is ready, if it may go now; it counts as under way from then on."""
        entry = self.ready[0]
        channel = self.channel
        if entry.size > room or not channel.may_send(entry.old, limit):
            return None
        del self.ready[0]
        self.sent.append(entry)
        batch, identity = entry.batch, channel.identity
        batch.stamp(identity.producer_id, identity.epoch, channel.number(batch.count))
        return entry

    def acknowledged(self, base_offset: int) -> None:
        entry, channel = self.sent.popleft(), self.channel
        entry.frame.drop(entry.batch.count)
        try:
            channel.acknowledged(base_offset)
        except NumbersBroken as error:
            self.trouble(self.stops(entry.batch.base_offset, str(error)))
        if not channel.in_trouble:
            self.offset, self.epoch, self.cut = entry.end, entry.epoch, channel.cut
            self._last_ack = time.monotonic()
            self.records += entry.batch.count
            self.bytes += entry.size
        if not self.sent:
            self._drained.set()

    def refused(self, error: Exception) -> None:
        """The oldest batch under way was not appended, as far as the broker says."""
        entry = self.sent.popleft()
        entry.drop()
        self.channel.failed()
        if isinstance(error, KafkaError) and not _worth_another_try(error):
            error = Undeliverable(
                f"the target refused {self} at source offset {entry.batch.base_offset}"
                f" ({entry.batch.count} records, {entry.size} bytes): {describe(error)}"
            )
        self.trouble(error)
        if not self.sent:
            self._drained.set()

    def abandoned(self, error: Exception) -> None:
        """The connection is gone with answers outstanding."""
        if self.sent:
            for entry in self.sent:
                entry.drop()
            self.sent.clear()
            self._hold_until = time.monotonic() + ZOMBIE_HORIZON
        self.channel.abandon()
        self.trouble(error)
        self._drained.set()

    def trouble(self, error: BaseException) -> None:
        """Leave the hot path; the first reason counts."""
        self.flowing = False
        self.lap += 1
        if not self._trouble.done():
            self._trouble.set_exception(error)
            self._trouble.exception()

    def go_back(self) -> None:
        """Ask again for all that has not been acknowledged; what an earlier fetch brings no longer counts."""
        self.lap += 1
        self.expected, self.expected_epoch = self.fetch_from = self.offset, self.epoch

    @property
    def is_released(self) -> bool:
        return self._released.is_set()

    def release(self) -> None:
        self._released.set()
        self.trouble(Released())

    # -- the slow path

    async def run(self) -> None:
        """Mirror until the desk wants the partition back, or it cannot go on."""
        failures = 0
        while True:
            started = self.offset
            try:
                if self.is_released:
                    raise Released
                self.stream.check_topics(self)
                self.channel = Channel(self.position.identity, self.cut)
                self.skip, self.skip_to = 0, None
                if self._clean:
                    self.channel.resume([])
                    self._clean = False
                else:
                    self.state = "resuming"
                    scan = read_back(self.stream.target, self.topic, self.channel)
                    self.skip, self.skip_to = await self._unless_released(scan)
                    self.resumes += 1
                self.go_back()
                await self._flow()
            except Released:
                await self._drain()
                self.state = "released"
                self.done.set_result(None)
                return
            except (PartitionError, Renumber) as error:
                await self._drain()
                if self.is_released:
                    self.done.set_result(None)
                    return
                self._stop(error)
                return
            except (NumbersBroken, CorruptBatch, OldFormat) as error:
                self._stop(self.stops(self.offset, f"reading the target back: {error}"))
                return
            except Hold:
                await self._drain()
                self.state, self.note = (
                    "waiting",
                    "old records: waiting until another sender's requests must be through",
                )
                await self._pause(max(0.0, self._hold_until - time.monotonic()))
            except (KafkaError, OSError, BadFrame, UnsupportedRequest, asyncio.TimeoutError) as error:
                await self._drain()
                failures = 0 if self.offset > started else failures + 1
                self.state, self.note = "waiting", describe(error)
                await self._pause(_BACKOFF[min(failures, len(_BACKOFF) - 1)])
                await self.stream.refresh_target()
            except Exception as error:  # a mistake of ours must not end in silence
                traceback.print_exc()
                self._stop(self.stops(self.offset, f"unexpected {type(error).__name__}: {error}"))
                return

    async def _unless_released(self, work: Coroutine[Any, Any, T]) -> T:
        """Something that may take long, given up as soon as the desk wants the partition back."""
        task, released = asyncio.ensure_future(work), asyncio.ensure_future(self._released.wait())
        try:
            await asyncio.wait([task, released], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Released
            return task.result()
        finally:
            released.cancel()
            task.cancel()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._released.wait(), seconds)

    def _stop(self, why: Exception) -> None:
        self.state, self.note = "stopped", str(why)
        self.done.set_result(why)

    async def _flow(self) -> None:
        """Stand on the hot path until something gets in the way."""
        self._trouble = asyncio.get_running_loop().create_future()
        self.max_message_bytes = self.stream.max_message_bytes(self.topic)
        if self.is_released:
            raise Released
        self.sender = self.stream.sender_of(self)
        self.flowing, self.state, self.note = True, "flowing", ""
        self.stream.fetch(self)
        await self._trouble

    async def _drain(self) -> None:
        """Nothing new goes out; wait for the answers to what is under way. What was only fetched will be fetched again."""
        self.flowing = False
        self.lap += 1
        why = self._trouble.exception() if self._trouble.done() else None
        if isinstance(why, PartitionError | Renumber):
            while self.ready and not self.channel.in_trouble:  # all that comes before the bad batch still goes out
                await asyncio.sleep(0.01)
        for entry in self.ready:
            entry.drop()
        self.ready.clear()
        self.stream.forget(self)
        while self.sent:
            self._drained.clear()
            await self._drained.wait()

    def _cannot(self, batch: Batch, reason: str) -> PartitionError:
        return self.stops(batch.base_offset, f"this batch cannot be forwarded as it is: {reason}")

    def stops(self, offset: int, reason: str) -> PartitionError:
        return PartitionError(f"{self} stops at source offset {offset}: {reason}")


# Refused for good by their nature; everything else may be different in a moment.
_FINAL = frozenset({2, 10, 17, 18, 21, 29, 31, 32, 42, 43, 76, 87})


def _worth_another_try(error: KafkaError) -> bool:
    return getattr(error, "errno", None) not in _FINAL


def describe(error: BaseException) -> str:
    """A broker's error in one line: its name, number and words."""
    if isinstance(error, KafkaError):
        number = getattr(error, "errno", None)
        name = type(error).__name__.removesuffix("Error")
        detail = " ".join(str(a) for a in error.args if a)
        return f"{name}{f' ({number})' if number is not None else ''}{f': {detail}' if detail else ''}"
    return str(error) or type(error).__name__
