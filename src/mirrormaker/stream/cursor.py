"""One source partition on its way through a stream.

The hot path is plain calls: the fetcher hands what it got to `accept`, outlets keep it for their senders, answers come to
`delivered`. Everything slow or rare (resuming, retrying, letting go) is `run`, a coroutine that reads top to bottom.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.errors import KafkaError

from mirrormaker.errors import PartitionError
from mirrormaker.stream.buffer import Frame
from mirrormaker.stream.identity import NumbersBroken
from mirrormaker.stream.intake import Fetched, Intake
from mirrormaker.stream.outlet import Entry, Outlet
from mirrormaker.stream.position import Cut, Position
from mirrormaker.stream.progress import Progress
from mirrormaker.stream.resume import read_back
from mirrormaker.stream.trouble import SAME_PLACE, Hold, Released, Renumber, Split, Undeliverable, describe
from mirrormaker.stream.work import ZOMBIE_HORIZON
from mirrormaker.wire.batch import CorruptBatch
from mirrormaker.wire.codec import BadFrame
from mirrormaker.wire.compression import LZ4, ZSTD
from mirrormaker.wire.connection import UnsupportedRequest

T = TypeVar("T")

if TYPE_CHECKING:
    from mirrormaker.stream.stream import Stream

_BACKOFF = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts at one partition; a failover takes a broker 0.1 to 2 s
_SCANS = 4  # target logs read back side by side for one source partition


class Cursor:
    """Where one source partition stands: fetched, ready, sent, acknowledged."""

    def __init__(self, stream: Stream, position: Position, *, clean: bool) -> None:
        self.stream = stream
        self.position = position  # as taken; `current` is how far it has come
        self.topic, self.partition = position.key
        self.source_id, self.target_id = bytes.fromhex(position.topic_id), bytes.fromhex(position.target_topic_id)
        self.handler = stream.handler
        self.spreads = position.by_key or self.handler is not None  # over several target partitions
        self.progress = Progress(position)  # acknowledged
        self.expected, self.expected_epoch = position.offset, position.leader_epoch  # the next to come out of a fetch
        self.fetch_from = self.expected, self.expected_epoch  # the next to ask for: ahead by what is under way
        self.outlets = [Outlet(self, position.identity, cut) for cut in self._wanted_cuts()]
        self.flowing = False
        self.lap = 0  # fetches of an earlier lap are not ours any more
        self.high_watermark = -1
        self.records = self.bytes = self.resumes = 0
        self.forwarded = self.packed = 0  # batches that took the one lane and the other
        self.state, self.note = "waiting", ""
        self.singly_until = -1  # the target refused a batch: up to here records go one by one, to find the one it means
        self.takes_zstd = True
        self.hold_until = 0.0 if clean else time.monotonic() + ZOMBIE_HORIZON
        self.drained = asyncio.Event()
        self.done = asyncio.get_running_loop().create_future()  # of None if released, or of why it stopped
        self._intake = Intake(self)
        self._clean = clean
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def offset(self) -> int:
        return self.progress.offset

    @property
    def current(self) -> Position:
        return self.position.advanced(self.progress.offset, self.progress.epoch, self.progress.cuts.values())

    @property
    def is_clean(self) -> bool:
        """Is nothing on its way to the target, or there already, that the position does not know of?"""
        return self._clean or all(outlet.known_ahead_of(self._cut(outlet)) == 0 for outlet in self.outlets)

    @property
    def is_settled(self) -> bool:
        """Does no target partition hold records that have not been seen at the source yet?"""
        return not any(outlet.skip for outlet in self.outlets)

    def _wanted_cuts(self) -> list[Cut]:
        if not self.spreads:
            return [self.position.cut(self.partition)]
        return sorted(self.position.cuts, key=lambda cut: cut.place)

    def _cut(self, outlet: Outlet) -> Cut:
        return self.progress.cuts.get(outlet.place) or self.position.cut(outlet.partition, outlet.place[0])

    def outlets_of(self, topic: str) -> list[Outlet]:
        """By partition; empty if the position has no numbers for the topic."""
        if not self.spreads:
            return self.outlets
        return [outlet for outlet in self.outlets if outlet.place[0] == topic]

    def codec_of(self, codec: int) -> int:
        """What to compress with what came with this codec."""
        if self.stream.work.codec is not None:
            return self.stream.work.codec
        return LZ4 if codec == ZSTD and not self.takes_zstd else codec

    # -- the hot path

    def accept(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        self._intake.accept(fetched, aborted, frame)

    def doubt_after(self, seconds: float) -> None:
        """A target partition that was quiet for so long may be led by a broker that has forgotten us."""
        before = time.monotonic() - seconds
        for outlet in self.outlets:
            if outlet.last_ack < before and not outlet.sent:
                outlet.channel.known = False

    def offer(self) -> None:
        for outlet in self.outlets:
            if outlet.ready and outlet.sender is not None:
                outlet.sender.offer(outlet)

    def delivered(self, entry: Entry, cut: Cut) -> None:
        self.progress.acknowledged(entry.unit, cut)
        self.records += entry.count
        self.bytes += entry.size

    def hold(self) -> None:
        """Requests of unknown fate are under way: old records must wait until they are through."""
        self.hold_until = time.monotonic() + ZOMBIE_HORIZON

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
        self.progress.start_over()
        self.expected, self.expected_epoch = self.fetch_from = self.progress.offset, self.progress.epoch

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
                await self._resume()
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
            except (NumbersBroken, CorruptBatch) as error:
                self._stop(self.stops(self.offset, f"reading the target back: {error}"))
                return
            except Split:
                await self._drain()
            except Hold:
                await self._drain()
                self.state = "waiting"
                self.note = "old records: waiting until another sender's requests must be through"
                await self._pause(max(0.0, self.hold_until - time.monotonic()))
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

    async def _resume(self) -> None:
        """Find out how many records behind the cut each target partition holds."""
        clean, self._clean = self._clean, False
        unknown = []
        for outlet in self.outlets:
            ahead = outlet.known_ahead_of(self._cut(outlet))
            if ahead is None:
                outlet.restart(self.position.identity, self._cut(outlet))
                if clean:
                    outlet.channel.resume([])
                else:
                    unknown.append(outlet)
            else:
                outlet.skip, outlet.skip_to = ahead, None
        if unknown:
            if self.handler is not None and not self.handler.is_deterministic:
                raise Renumber(
                    SAME_PLACE, "its message handler is not deterministic, so some records may be there twice"
                )
            self.state = "resuming"
            await self._unless_released(self._read_back(unknown))
            self.resumes += 1

    async def _read_back(self, outlets: list[Outlet]) -> None:
        slots = asyncio.Semaphore(_SCANS)

        async def one(outlet: Outlet) -> None:
            async with slots:
                outlet.skip, outlet.skip_to = await read_back(self.stream.target, outlet.topic, outlet.channel)

        tasks = [asyncio.ensure_future(one(outlet)) for outlet in outlets]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

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
        self.takes_zstd = await self.stream.target_takes_zstd()
        for outlet in self.outlets:
            outlet.max_bytes = self.stream.max_batch_bytes(outlet.topic)
            outlet.target_id = self.stream.target_id(outlet.topic)
            outlet.sender = self.stream.sender_of(outlet)
        if self.is_released:
            raise Released
        self.flowing, self.state, self.note = True, "flowing", ""
        self.stream.fetch(self)
        await self._trouble

    async def _drain(self) -> None:
        """Nothing new goes out; wait for the answers to what is under way. What was only fetched will be fetched again."""
        self.flowing = False
        self.lap += 1
        why = self._trouble.exception() if self._trouble.done() else None
        if isinstance(why, PartitionError | Renumber):  # all that comes before the bad batch still goes out
            while any(o.ready for o in self.outlets) and not any(o.channel.in_trouble for o in self.outlets):
                await asyncio.sleep(0.01)
        for outlet in self.outlets:
            outlet.clear()
        self.stream.forget(self)
        while any(outlet.sent for outlet in self.outlets):
            self.drained.clear()
            await self.drained.wait()

    def undeliverable(self, offset: int, cause: str) -> Undeliverable:
        return Undeliverable(str(self), offset, cause)

    def stops(self, offset: int, reason: str) -> PartitionError:
        return PartitionError(f"{self} stops at source offset {offset}: {reason}")
