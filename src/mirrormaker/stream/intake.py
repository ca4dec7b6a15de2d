"""From what was fetched to what is sent: the choice of a lane for every batch, in order.

Most batches go on as they are. The rest is unpacked and packed anew: see `_unpacks` and `goes_as_is` for which, and `packing` for
how. Small batches that come many at a time are packed into few; when they come one by one, at the live end, they go at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrormaker.stream.buffer import Frame
from mirrormaker.stream.handler import Handled
from mirrormaker.stream.lanes import committed, goes_as_is
from mirrormaker.stream.outlet import Entry, Outlet
from mirrormaker.stream.packing import Packed, by_key, first_too_large, pack_shares, shares
from mirrormaker.stream.progress import Unit
from mirrormaker.stream.resume import Found
from mirrormaker.stream.trouble import SAME_PLACE, Hold, Renumber, Undeliverable
from mirrormaker.wire import messages
from mirrormaker.wire.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, Batch, Batches, CorruptBatch, joined
from mirrormaker.wire.compression import NONE
from mirrormaker.wire.records import Records, unpack_some
from mirrormaker.wire.varints import BadVarint, Ints

if TYPE_CHECKING:
    from mirrormaker.stream.cursor import Cursor

Fetched = Sequence[Batches | memoryview]

_HOUR_MS = 3_600_000  # a margin: brokers look for expired identities only now and then
_MANY = 8  # batches in one answer that are worth the fixed cost of unpacking, if they are small
_SMALL, _SMALL_COMPRESSED = 32 << 10, 2 << 10  # bytes of a batch, on average
_PIECE = 4 << 20  # bytes of unpacked records that are handled at a time: the loop must not stand still for long


FAILS_ONLY_NOW = "a record cannot be delivered that was delivered before, so some records are sent again"
NOT_THE_SAME = "the source is not what was mirrored (compacted or truncated since), so some records are sent again"


class _Routed(NamedTuple):
    """Records, and which of the outlets each one goes to."""

    records: Records
    targets: Ints
    outlets: list[Outlet]

    def before(self, offset: int) -> _Routed:
        few = int(np.searchsorted(self.records.offsets, offset))
        return _Routed(self.records[:few], self.targets[:few], self.outlets)


class Intake:
    """Takes what was fetched for one cursor; leaves entries in its outlets and units in its progress."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._waiting: deque[tuple[int, Records | None, int, int, int, int, Frame]] = deque()  # for the message handler
        self._worker: asyncio.Task[None] | None = None
        self._old_before = 0.0
        self._held: list[tuple[int, Fetched, Sequence[tuple[int, int]], Frame]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._gathered = False

    def accept(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        if self.cursor.stream.work.linger:
            self._wait_for_more(fetched, aborted, frame)
        else:
            self._process(fetched, aborted, frame)

    def _process(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        cursor = self.cursor
        expiration = cursor.stream.work.identity_expiration_ms - _HOUR_MS
        self._old_before = time.time() * 1000 - expiration
        cursor.doubt_after(expiration / 1000)
        try:
            for run in fetched:
                if isinstance(run, memoryview):
                    self._take_old_format(run, frame)
                elif self._unpacks(run):
                    self._take_many(run, aborted, frame)
                else:
                    self._forward(run, aborted, frame)
        except (CorruptBatch, BadVarint) as error:
            cursor.trouble(cursor.stops(cursor.expected, str(error)))
        except Exception as error:  # whatever it is, what was fetched must be fetched again
            cursor.trouble(error)
        cursor.offer()

    # -- linger.ms: small batches wait for others, so that they go together

    def _wait_for_more(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        work = self.cursor.stream.work
        frame.keep(0)
        self._held.append((self.cursor.lap, fetched, aborted, frame))
        size = sum(run.size if isinstance(run, Batches) else len(run) for held in self._held for run in held[1])
        if size >= work.batch_bytes:
            self._go_on()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(work.linger, self._go_on)

    def _go_on(self) -> None:
        """Treat all that was held as if one fetch had brought it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        mine = [part for part in held if part[0] == self.cursor.lap]
        if mine and self.cursor.flowing:
            if len(mine) == 1:
                self._process(*mine[0][1:])
            else:
                self._gathered = True
                found = joined([run for _, fetched, _, _ in mine for run in fetched])
                size = sum(run.size if isinstance(run, Batches) else len(run) for run in found)
                frame = Frame(self.cursor.stream.buffer, size)
                self._process(found, [pair for _, _, aborted, _ in mine for pair in aborted], frame)
                frame.drop(0)
                self._gathered = False
        for _, _, _, frame in held:
            frame.drop(0)

    # -- the batches lane

    def _forward(self, run: Batches, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        cursor, (outlet,) = self.cursor, self.cursor.outlets
        wanted = cursor.stream.work.codec
        for batch, is_data in committed(list(run), aborted):
            if batch.last_offset < cursor.expected:
                continue  # the broker may start with a batch that lies before the wanted offset
            batch.check()
            if not is_data:
                self._pass_over(batch.last_offset + 1, batch.leader_epoch, frame)
            elif batch.base_offset < cursor.expected or not goes_as_is(
                batch, outlet.max_bytes, wanted, cursor.takes_zstd
            ):
                self._unpack(Batches.of(batch), frame)
            else:
                self._send_as_is(batch, outlet, frame)

    def _send_as_is(self, batch: Batch, outlet: Outlet, frame: Frame) -> None:
        cursor, end = self.cursor, batch.last_offset + 1
        unit = Unit(end, batch.leader_epoch, 1)
        old = self._is_old(batch.max_timestamp)
        unit.single = batch.count == 1
        outlet.ready.append(Entry(batch, batch.base_offset, batch.last_offset, unit, frame, old))
        cursor.progress.add(unit)
        cursor.expected, cursor.expected_epoch = end, batch.leader_epoch

    def _is_old(self, max_timestamp: int) -> bool:
        """May a broker forget who wrote this? Then nothing goes out while another sender's requests may be under way."""
        if max_timestamp >= self._old_before:
            return False
        if time.monotonic() < self.cursor.hold_until:
            raise Hold
        return True

    def _pass_over(self, end: int, epoch: int, frame: Frame) -> None:
        cursor = self.cursor
        cursor.expected, cursor.expected_epoch = end, epoch
        if cursor.handler is not None:
            self._queue(None, end, epoch, NONE, 0)
        else:
            cursor.progress.pass_over(end, epoch)

    # -- the records lane

    def _unpacks(self, run: Batches) -> bool:
        """Is all of this to be unpacked?"""
        cursor, count = self.cursor, len(run)
        if cursor.spreads or not cursor.is_settled or cursor.few_until > cursor.expected:
            return True
        if count < (2 if self._gathered else _MANY):
            return False
        attributes = run[0].attributes
        wanted = cursor.stream.work.codec
        if wanted is not None and attributes & CODEC_MASK != wanted:
            return True
        return run.size // count < min(
            _SMALL_COMPRESSED if attributes & CODEC_MASK else _SMALL, cursor.stream.work.batch_bytes // 2
        )

    def _take_many(self, run: Batches, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        headers = run.headers
        kinds = headers["attributes"] & (CONTROL | TRANSACTIONAL)
        if kinds.any() or not headers["count"].all():
            flags = [is_data for _, is_data in committed(list(run), aborted)]
        else:
            flags = [True] * len(run)
        codecs = (headers["attributes"] & CODEC_MASK).tolist()
        at = 0
        for (is_data, _), group in groupby(zip(flags, codecs, strict=True)):
            stop = at + sum(1 for _ in group)
            self._take_alike(run.part(at, stop), is_data, frame)
            at = stop

    def _take_alike(self, part: Batches, is_data: bool, frame: Frame) -> None:
        """Batches that are all data, of one codec, or all something else."""
        ends = _ends(part)
        part = part.part(int(np.searchsorted(ends, self.cursor.expected, side="right")), len(part))
        if not len(part):
            return
        part.check()
        if is_data:
            self._unpack(part, frame)
        else:
            self._pass_over(int(ends[-1]), int(part.headers["leader_epoch"][-1]), frame)

    def _unpack(self, part: Batches, frame: Frame) -> None:
        work = self.cursor.stream.work
        while len(part):
            records, used = unpack_some(part, work.buffer_bytes, _PIECE)
            done = part.part(0, used)
            codec = int(done.headers["attributes"][0]) & CODEC_MASK
            self._take(records, int(_ends(done)[-1]), int(done.headers["leader_epoch"][-1]), codec, done.size, frame)
            part = part.part(used, len(part))

    def _take_old_format(self, data: memoryview, frame: Frame) -> None:
        work, codec = self.cursor.stream.work, messages.codec_of_first(data)
        for records in messages.unpack(data, work.buffer_bytes):
            if len(records):
                self._take(records, int(records.offsets[-1]) + 1, -1, codec, len(data), frame)

    def _take(self, records: Records, end: int, epoch: int, codec: int, size: int, frame: Frame) -> None:
        """Records that follow each other up to `end`; `size` is what they took in the fetch."""
        cursor = self.cursor
        if end <= cursor.expected:
            return
        if len(records) and records.offsets[0] < cursor.expected:
            records = records[int(np.searchsorted(records.offsets, cursor.expected)) :]
        codec = cursor.codec_of(codec)
        if cursor.handler is not None:
            cursor.expected, cursor.expected_epoch = end, epoch
            self._queue(records, end, epoch, codec, size)
        else:
            self._emit([Handled("", records, None)], end, epoch, codec, size)

    def _emit(self, handled: Sequence[Handled], end: int, epoch: int, codec: int, size: int) -> None:
        """Pack what becomes of a range of source offsets, and put it in line; few at a time where a bad record is sought."""
        cursor = self.cursor
        until = min(end, cursor.few_until)
        suspects = sorted({n for part in handled for n in part.records.offsets[part.records.offsets < until].tolist()})
        bounds = [*suspects[:: max(1, cursor.few)], until] if suspects else []
        for start, stop in pairwise(bounds):
            self._emit_unit([part.of(start, stop) for part in handled], stop, epoch, codec, size)
        if not suspects:
            self._emit_unit(handled, end, epoch, codec, size)
        elif until < end:
            self._emit_unit([part.of(until, end) for part in handled], end, epoch, codec, size)

    def _emit_unit(self, handled: Sequence[Handled], end: int, epoch: int, codec: int, size: int) -> None:
        cursor, work = self.cursor, self.cursor.stream.work
        routed = [self._routed(part) for part in handled]
        failure = self._first_failure(routed, codec)
        if failure is not None:
            end = failure.offset
            routed = [part.before(end) for part in routed]
        unit = Unit(end, epoch)
        offsets = {int(edge) for part in routed if len(part.records) for edge in part.records.offsets[[0, -1]]}
        unit.single = len(offsets) == 1
        ready: list[tuple[Outlet, Packed, bool]] = []
        for records, targets, outlets in routed:
            parts = shares(targets, len(outlets)) if len(outlets) > 1 else [np.arange(len(records))]
            parts = [self._without_what_is_there(o, p, records, unit) for o, p in zip(outlets, parts, strict=True)]
            limits = [min(work.batch_bytes, outlet.max_bytes) for outlet in outlets]
            for packed in pack_shares(records, parts, limits, codec):
                ready.append((outlets[packed.share], packed, self._is_old(packed.max_timestamp)))
        if failure is not None and not cursor.is_settled:
            raise Renumber(SAME_PLACE, FAILS_ONLY_NOW)
        total = sum(len(packed.data) for _, packed, _ in ready)
        frame = Frame(cursor.stream.buffer, total)
        for outlet, packed, old in ready:
            entry = Entry(Batch(packed.data), packed.first, packed.last, unit, frame, old)
            outlet.ready.append(entry)
            unit.counts[outlet.place] = unit.counts.get(outlet.place, 0) + entry.count
        frame.drop(0)
        unit.left = len(ready)
        cursor.progress.add(unit)
        cursor.stream.note_growth(size, total)
        if failure is not None:
            raise failure
        if cursor.handler is None:
            cursor.expected, cursor.expected_epoch = end, epoch

    def _routed(self, handled: Handled) -> _Routed:
        """Which records go where."""
        cursor = self.cursor
        topic, records, wanted = handled
        outlets = cursor.outlets_of(topic)
        if not outlets:
            raise Renumber(SAME_PLACE, f"its message handler sends to {topic}", (topic,))
        if not cursor.spreads:
            targets: Ints = np.zeros(len(records), np.int64)
        elif cursor.stream.work.partition_by == "same" or (not topic and not cursor.position.by_key):
            targets = np.full(len(records), cursor.partition, np.int64)
        else:
            targets = by_key(records, cursor.partition, len(outlets))
        if wanted is not None:
            targets = np.where(wanted >= 0, wanted, targets)
        return _Routed(records, targets, outlets)

    def _first_failure(self, routed: Sequence[_Routed], codec: int) -> Undeliverable | None:
        """The first record that the target would never take."""
        found: list[tuple[int, str]] = []
        for records, targets, outlets in routed:
            topic = outlets[0].topic
            limit = self.cursor.stream.max_message_bytes(topic)
            large = first_too_large(records, limit, codec)
            if large is not None:
                cause = f"alone it is larger than the target topic's max.message.bytes of {limit}"
                found.append((int(records.offsets[large]), cause))
            if len(targets) and int(targets.max()) >= len(outlets):
                index = int(np.argmax(targets >= len(outlets)))
                cause = f"it belongs to partition {int(targets[index])}, and {topic} has {len(outlets)} on the target"
                found.append((int(records.offsets[index]), cause))
        return self.cursor.undeliverable(*min(found)) if found else None

    def _without_what_is_there(self, outlet: Outlet, part: Ints, records: Records, unit: Unit) -> Ints:
        """After a resume the first records of each share are on the target already."""
        if not outlet.skip or not len(part):
            return part
        there, part = part[: outlet.skip], part[outlet.skip :]
        outlet.skip -= len(there)
        if not outlet.skip and outlet.skip_to is not None and outlet.skip_to != Found.of(records, int(there[-1])):
            raise Renumber(SAME_PLACE, NOT_THE_SAME)
        unit.cuts[outlet.place] = outlet.channel.cut._replace(ahead=outlet.skip)
        return part

    # -- message handlers: they may be slow, so they have a thread, and what they give back keeps its order

    def _queue(self, records: Records | None, end: int, epoch: int, codec: int, size: int) -> None:
        frame = Frame(self.cursor.stream.buffer, len(records.data) if records is not None else 0)
        self._waiting.append((self.cursor.turn, records, end, epoch, codec, size, frame))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        cursor = self.cursor
        while self._waiting:
            turn, records, end, epoch, codec, size, frame = self._waiting.popleft()
            try:
                if turn == cursor.turn:
                    await self._handle(turn, records, end, epoch, codec, size)
            except (CorruptBatch, BadVarint) as error:
                cursor.trouble(cursor.stops(end, str(error)))
            except Exception as error:  # whatever a handler does, it must not end in silence
                cursor.trouble(error)
            finally:
                frame.drop(0)
            cursor.offer()

    async def _handle(self, turn: int, records: Records | None, end: int, epoch: int, codec: int, size: int) -> None:
        cursor = self.cursor
        if records is None:
            cursor.progress.pass_over(end, epoch)
            return
        assert cursor.handler is not None
        handled, failed = await cursor.stream.aside(cursor.handler, cursor.topic, cursor.partition, records)
        if turn != cursor.turn:
            return
        if failed is not None:
            end = failed.offset
        self._emit(handled, end, epoch, codec, size)
        if failed is not None:
            if not cursor.is_settled:
                raise Renumber(SAME_PLACE, FAILS_ONLY_NOW)
            raise cursor.undeliverable(failed.offset, failed.cause)


def _ends(part: Batches) -> Ints:
    """The offset behind each batch."""
    headers = part.headers
    ends: Ints = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"] + 1
    return ends
