"""The records lane of one cursor: from unpacked records to new batches in its outlets."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrormaker.errors import DataError, Undeliverable
from mirrormaker.model.progress import Unit
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.compression import NONE
from mirrormaker.wire.records.murmur2 import by_key
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.handler import Handled
from mirrormaker.worker.interrupts import SAME_PLACE, Hold, Renumber
from mirrormaker.worker.lanes import goes_with
from mirrormaker.worker.outlet import Entry, Outlet
from mirrormaker.worker.packing import Packed, first_too_large, pack_shares, shares
from mirrormaker.worker.resume import Found

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor


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


class Repack:
    """Takes records in the order of the source; leaves entries in the cursor's outlets and units in its progress."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._waiting: deque[tuple[int, Records | None, int, int, int, int, Frame]] = deque()  # for the message handler
        self._worker: asyncio.Task[None] | None = None
        self._old_before = 0.0

    def look_at_the_clock(self) -> None:
        """Which records are so old by now that a broker may forget who wrote them?"""
        self._old_before = self.cursor.old_before()
        self.cursor.doubt_after(time.time() - self._old_before / 1000)

    def is_old(self, max_timestamp: int) -> bool:
        """May a broker forget who wrote this? Then nothing goes out while another sender's requests may be under way."""
        if max_timestamp >= self._old_before:
            return False
        if time.monotonic() < self.cursor.hold_until:
            raise Hold
        return True

    def pass_over(self, end: int, epoch: int) -> None:
        """Nothing to send for these offsets."""
        cursor = self.cursor
        cursor.expected, cursor.expected_epoch = end, epoch
        if cursor.handler is not None:
            self._queue(None, end, epoch, NONE, 0)
        else:
            cursor.progress.pass_over(end, epoch)

    def take(self, records: Records, end: int, epoch: int, codec: int, size: int) -> None:
        """Records that follow each other up to `end`; `size` is what they took in the fetch."""
        cursor = self.cursor
        if end <= cursor.expected:
            return
        if len(records) and records.offsets[0] < cursor.expected:
            records = records[int(np.searchsorted(records.offsets, cursor.expected)) :]
        codec = goes_with(codec, cursor.stream.work.codec, cursor.takes_zstd)
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
                ready.append((outlets[packed.share], packed, self.is_old(packed.batch.max_timestamp)))
        if failure is not None and not cursor.is_settled:
            raise Renumber(SAME_PLACE, FAILS_ONLY_NOW)
        total = sum(len(packed.batch.data) for _, packed, _ in ready)
        frame = Frame(cursor.stream.buffer, total)
        for outlet, packed, old in ready:
            entry = Entry(packed.batch, packed.first, packed.last, unit, frame, old)
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
            except DataError as error:
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
        handled, failed = await cursor.stream.run_in_thread(cursor.handler, cursor.topic, cursor.partition, records)
        if turn != cursor.turn:
            return
        if failed is not None:
            end = failed.offset
        self._emit(handled, end, epoch, codec, size)
        if failed is not None:
            if not cursor.is_settled:
                raise Renumber(SAME_PLACE, FAILS_ONLY_NOW)
            raise cursor.undeliverable(failed.offset, failed.cause)
