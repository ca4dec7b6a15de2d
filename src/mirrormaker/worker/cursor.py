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
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from mirrormaker.control.lease import ZOMBIE_HORIZON
from mirrormaker.errors import (
    OUTAGE,
    BrokerError,
    CorruptBatch,
    DataError,
    NumbersBroken,
    PartitionError,
    Undeliverable,
    describe,
)
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.position import Cut, Place, Position
from mirrormaker.model.progress import Progress, Unit
from mirrormaker.wire.client.acls import denied
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.counters import Counters
from mirrormaker.worker.intake import Fetched, Intake
from mirrormaker.worker.interrupts import (
    FORGOTTEN,
    OUT_OF_RANGE,
    SAME_PLACE,
    TRUNCATED,
    Hold,
    Released,
    Renumber,
    Split,
)
from mirrormaker.worker.outlet import Entry, Outlet
from mirrormaker.worker.repack import NOT_THE_SAME
from mirrormaker.worker.resume import read_back, read_last

T = TypeVar("T")

if TYPE_CHECKING:
    from mirrormaker.worker.stream import Stream

_BACKOFF = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between attempts at one partition; a failover takes a broker 0.1 to 2 s
_HOUR_MS = 3_600_000  # before identities expire, to be on the safe side
_TAKES_LONG = 4.0  # seconds for reading the target back, until it is spoken of
_SCANS = 4  # target logs read back side by side for one source partition


class Cursor:
    """Where one source partition stands: fetched, ready, sent, acknowledged."""

    def __init__(self, stream: Stream, position: Position, *, clean: bool) -> None:
        self.stream = stream
        self.position = position  # as taken; `current` is how far it has come
        self.topic, self.partition = position.key
        self.tenancy = 0
        self.source_id, self.target_id = bytes.fromhex(position.topic_id), bytes.fromhex(position.target_topic_id)
        self.handler = stream.handler
        self.spreads = position.by_key or self.handler is not None  # over several target partitions
        self.progress = Progress(position)  # acknowledged
        self.expected, self.expected_epoch = position.offset, position.leader_epoch  # the next to come out of a fetch
        self.fetch_from = self.expected, self.expected_epoch  # the next to ask for: ahead by what is under way
        self.outlets = [Outlet(self, position.identity, cut) for cut in self._wanted_cuts()]
        self.flowing = False
        self.lap = 0  # fetches of an earlier lap are not ours any more
        self.turn = 0  # the same for what was taken out of them, which survives a new source leader
        self.high_watermark = -1
        self.needs_bytes = 0  # for a message that came cut short
        self.records = self.bytes = 0
        self.counters = Counters()
        self.state, self.note = "waiting", ""
        # The target refused a batch: up to here so few go at a time, to find who is to blame.
        self.few, self.few_until = 0, -1
        self.given_up: dict[Place, int] = {}  # what a record that is given up has sent elsewhere
        self.takes_zstd = True
        self.hold_until = 0.0 if clean else time.monotonic() + ZOMBIE_HORIZON
        self.drained = asyncio.Event()
        self.done = asyncio.get_running_loop().create_future()  # of None if released, or of why it stopped
        self._intake = Intake(self)
        self._clean = clean
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()
        self._waits_since: float | None = None
        self._refused: Undeliverable | None = None

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
        """Is nothing on its way to the target, or there already, that the closing position does not know of?"""
        known = all(outlet.is_known for outlet in self.outlets)
        return self._clean or (known and time.monotonic() >= self.hold_until)

    @property
    def closing(self) -> Position:
        """The last word on this partition: also of what is there behind the offset."""
        cuts = [outlet.closing_cut(self._cut(outlet)) for outlet in self.outlets]
        cuts = [cut._replace(ahead=cut.ahead - self.given_up.get(cut.place, 0)) for cut in cuts]
        return self.position.advanced(self.progress.offset, self.progress.epoch, cuts)

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

    # -- the hot path

    def accept(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        self._intake.accept(fetched, aborted, frame)

    def old_before(self) -> float:
        """Records from before that (milliseconds) are so old by now that a broker may forget who wrote them."""
        return time.time() * 1000 - (self.stream.work.identity_expiration_ms - _HOUR_MS)

    def doubt_after(self, seconds: float) -> None:
        """A target partition that was quiet for so long may be led by a broker that has forgotten us."""
        before = time.monotonic() - seconds
        for outlet in self.outlets:
            if outlet.last_ack < before and not outlet.sent:
                outlet.channel.known = False

    def look_for_an_end(self, patience: float) -> None:
        """The target holds records that the source does not have any more: waiting for them would be for ever."""
        if not self.flowing or self.is_settled or self.high_watermark < 0 or self.expected < self.high_watermark:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since > patience:
            self.trouble(Renumber(SAME_PLACE, NOT_THE_SAME))

    def offer(self) -> None:
        for outlet in self.outlets:
            if outlet.ready and outlet.sender is not None:
                outlet.sender.offer(outlet)

    def delivered(self, entry: Entry, cut: Cut) -> None:
        self.progress.acknowledged(entry.unit, cut)
        self.records += entry.count
        self.bytes += entry.size
        self.counters.delivered(entry)

    def hold(self) -> None:
        """Requests of unknown fate are under way: old records must wait until they are through."""
        self.hold_until = time.monotonic() + ZOMBIE_HORIZON

    def trouble(self, error: BaseException) -> None:
        """Leave the hot path; the first reason counts."""
        self.flowing = False
        self.lap += 1
        self.turn += 1
        if isinstance(error, Undeliverable) and (self._refused is None or error.offset < self._refused.offset):
            self._refused = error  # of several, the first one at the source must be given up first
        if not self._trouble.done():
            self._trouble.set_exception(error)
            self._trouble.exception()

    def go_back(self) -> None:
        """Ask again for all that has not been acknowledged; what an earlier fetch brings no longer counts."""
        self.lap += 1
        self.turn += 1
        self._refused = None
        self.progress.units.clear()
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
                if isinstance(error, Undeliverable):
                    error = self._refused or error
                if await self._can_end_with(error):
                    self.refuse(error)
                    return
                await self._pause(_BACKOFF[-1])
            except (NumbersBroken, CorruptBatch) as error:
                self.refuse(self.stops(self.offset, f"reading the target back: {error}", final=True))
                return
            except Split:
                await self._drain()
            except Hold:
                await self._drain()
                await self._wait_it_out()
            except OUTAGE as error:
                await self._drain()
                if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
                    topic = error.detail or self.topic
                    self.refuse(self.stops(self.offset, denied(self.stream.target.endpoint, "Read", "topic", topic)))
                    return
                failures = 0 if self.offset > started else failures + 1
                self.counters.retries += 1
                self.state, self.note = "waiting", describe(error)
                await self._pause(_BACKOFF[min(failures, len(_BACKOFF) - 1)])
                await self.stream.refresh_target()
            except Exception as error:  # a mistake of ours must not end in silence
                traceback.print_exc()
                await self._drain()
                self.refuse(self.stops(self.offset, f"unexpected {type(error).__name__}: {error}"))
                return

    async def _can_end_with(self, error: Exception) -> bool:
        """Where some records are given up, gone, or sent to more places: is it certain what is there of the others?"""
        if isinstance(error, Renumber):
            if not error.topics and error.where not in (OUT_OF_RANGE, TRUNCATED, FORGOTTEN):
                return True
        elif not isinstance(error, Undeliverable):
            return True
        units = self.progress.units
        first = units[0] if units else None
        try:
            if time.monotonic() < self.hold_until:  # under the old numbers something may still be on its way
                await self._wait_it_out()
            await self._resume()
        except (DataError, Released, Renumber, *OUTAGE):
            return False
        if not isinstance(error, Undeliverable):
            return True
        if error.unit is not None and first is error.unit and first.left == 1:
            self.given_up = {place: count for place, count in first.counts.items() if place != error.place}
            return True
        return error.unit is None and first is None

    async def _wait_it_out(self) -> None:
        """Until another sender's requests are there or will never be; then the logs must be read again."""
        self.state, self.note = "waiting", "until another sender's requests must be through"
        await self._pause(max(0.0, self.hold_until - time.monotonic()))
        for outlet in self.outlets:
            outlet.channel.trouble()

    async def _resume(self) -> None:
        """Find out what each target partition holds behind the position."""
        clean, self._clean = self._clean, False
        unknown: list[Outlet] = []
        for outlet in self.outlets:
            cut = self._cut(outlet)
            if not outlet.stands_at(cut):
                outlet.restart(self.position.identity, cut)
                if clean or not self.position.identity.is_numbered:
                    outlet.channel.resume([])
                else:
                    unknown.append(outlet)
            outlet.skip, outlet.skip_to = cut.ahead, None
        ahead = [outlet for outlet in self.outlets if outlet.skip]
        if (unknown or ahead) and self.handler is not None and not self.handler.is_deterministic:
            raise Renumber(SAME_PLACE, "its message handler is not deterministic, so some records may be there twice")
        if unknown or ahead:
            self.state = "resuming"
            late = asyncio.get_running_loop().call_later(_TAKES_LONG, self._say_that_it_takes_long)
            try:
                await self._unless_released(self._read_back(unknown, ahead))
            finally:
                late.cancel()
            self.counters.resumes += 1

    def _say_that_it_takes_long(self) -> None:
        self.note = "reading the target back takes long: has it enough replicas?"

    async def _read_back(self, unknown: list[Outlet], ahead: list[Outlet]) -> None:
        slots = asyncio.Semaphore(_SCANS)
        target = self.stream.target

        async def one(outlet: Outlet) -> None:
            async with slots:
                found = None
                if outlet in unknown:
                    present, found = await read_back(target, outlet.topic, outlet.channel, outlet.unconfirmed())
                    outlet.again = None
                    outlet.skip += present
                if found is None and outlet in ahead:
                    found = await read_last(target, outlet.topic, self._cut(outlet))
                outlet.skip_to = found

        tasks = [asyncio.ensure_future(one(outlet)) for outlet in {*unknown, *ahead}]
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

    def refuse(self, why: Exception) -> None:
        """Come to an end without having been asked to."""
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
        if isinstance(why, Released | PartitionError | Renumber):
            # All that comes before a bad record still goes out; otherwise, what has been begun.
            units = self.progress.units
            kept = self.progress.begun() if isinstance(why, Released) else set(units)
            if isinstance(why, Undeliverable) and why.unit is not None:
                kept = set(takewhile(lambda unit: unit is not why.unit, units))
            for outlet in self.outlets:
                outlet.clear(kept)
            while any(outlet.ready and not outlet.channel.in_trouble for outlet in self.outlets):
                await asyncio.sleep(0.01)
        for outlet in self.outlets:
            outlet.clear()
        self.stream.forget(self)
        while any(outlet.sent for outlet in self.outlets):
            self.drained.clear()
            await self.drained.wait()

    def undeliverable(self, offset: int, cause: str, unit: Unit | None = None) -> Undeliverable:
        return Undeliverable(str(self), offset, cause, unit)

    def stops(self, offset: int, reason: str, *, final: bool = False) -> PartitionError:
        return PartitionError(f"{self} stops at source offset {offset}: {reason}", final=final)
