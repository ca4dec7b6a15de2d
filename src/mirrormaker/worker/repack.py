"""The records lane of one cursor: from unpacked records to new batches in its outlets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirrormaker.errors import DataError, Undeliverable
from mirrormaker.model.progress import Unit
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.compression import NONE
from mirrormaker.wire.records.murmur2 import by_key
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.buffer import Buffer, Frame
from mirrormaker.worker.handler import Handled
from mirrormaker.worker.interrupts import AwaitZombies, Renumber, RestartAt
from mirrormaker.worker.lanes import codec_to_send
from mirrormaker.worker.outlet import Entry, Outlet, RecordDigest
from mirrormaker.worker.packing import Packed, first_too_large, pack_shares, shares
from mirrormaker.worker.stream_task import StreamTask

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor


FAILS_ONLY_NOW = "a record that was delivered before cannot be delivered now, so some records are sent again"
NOT_THE_SAME = "the source is not what was mirrored (compacted or truncated since), so some records are sent again"

_MOST_UNITS = 64  # that records become at once while a bad record is searched: each takes time of its own


class _Routed(NamedTuple):
    """Records for one topic, its outlets, and for each record the index of its outlet."""

    records: Records
    targets: Ints
    outlets: list[Outlet]

    def before(self, offset: int) -> _Routed:
        """Return the records that come from before a source offset."""
        count = int(np.searchsorted(self.records.offsets, offset))
        return _Routed(self.records[:count], self.targets[:count], self.outlets)


class Repack:
    """Takes records in the order of the source; leaves entries in the cursor's outlets and units in its progress."""

    def __init__(self, cursor: Cursor, task: StreamTask, buffer: Buffer) -> None:
        """`task` has the stream's settings; `buffer` counts the memory of new batches."""
        self.cursor = cursor
        self._task, self._buffer = task, buffer
        # Work for the message handler: (handler round, records, end, leader epoch, codec, size in the fetch, memory).
        self._queue: list[tuple[int, Records | None, int, int, int, int, Frame]] = []
        self._worker: asyncio.Task[None] | None = None
        self._expiry_cutoff_ms = 0.0

    def update_expiry_cutoff(self) -> None:
        """Compute from which age on a broker may forget which producer wrote a record."""
        self._expiry_cutoff_ms = self.cursor.expiry_cutoff_ms()
        self.cursor.doubt_leaders(self._expiry_cutoff_ms)

    def is_old(self, batch: Batch) -> bool:
        """Return True if a broker may forget which producer wrote the batch.

        Raise AwaitZombies if its first record is that old, and a former sender's requests may have arrived since the log
        was read: one of them may hold old records of this batch alone, and they would be appended twice.
        """
        is_old = bool(batch.max_timestamp < self._expiry_cutoff_ms)
        begins_old = is_old or batch.first_timestamp < self._expiry_cutoff_ms
        if begins_old and self.cursor.zombies_until:
            raise AwaitZombies
        return is_old

    def pass_over(self, end: int, epoch: int) -> None:
        """Move past offsets up to `end` that have nothing to send."""
        cursor = self.cursor
        cursor.expected, cursor.expected_epoch = end, epoch
        if cursor.handler is not None:
            self._enqueue(None, end, epoch, NONE, 0)
        else:
            cursor.progress.pass_over(end, epoch)

    def take(self, records: Records, end: int, epoch: int, codec: int, size: int) -> None:
        """Take the records up to source offset `end`; `size` is their share of the fetched bytes."""
        cursor = self.cursor
        if end <= cursor.expected:
            return
        if len(records) and records.offsets[0] < cursor.expected:
            records = records[int(np.searchsorted(records.offsets, cursor.expected)) :]
        codec = codec_to_send(codec, self._task.codec, cursor.takes_zstd)
        if cursor.handler is not None:
            cursor.expected, cursor.expected_epoch = end, epoch
            self._enqueue(records, end, epoch, codec, size)
        else:
            self._emit([Handled("", records, None)], end, epoch, codec, size)

    def _emit(self, handled: Sequence[Handled], end: int, epoch: int, codec: int, size: int) -> None:
        """Turn a range of source offsets into units; into small ones where a bad record is being searched."""
        cursor = self.cursor
        until = min(end, cursor.split_until)
        suspects = sorted({n for part in handled for n in part.records.offsets[part.records.offsets < until].tolist()})
        # A unit may come from fewer records than the refused batch has, if a message handler makes many out of one.
        step = max(1, len(suspects) // _MOST_UNITS, min(cursor.split_size, len(suspects) // 2))
        bounds = [*suspects[::step], until] if suspects else []
        for start, stop in pairwise(bounds):
            self._emit_unit([part.between(start, stop) for part in handled], stop, epoch, codec, size)
        if not suspects:
            self._emit_unit(handled, end, epoch, codec, size)
        elif until < end:
            self._emit_unit([part.between(until, end) for part in handled], end, epoch, codec, size)

    def _emit_unit(self, handled: Sequence[Handled], end: int, epoch: int, codec: int, size: int) -> None:
        """Pack the records of one unit, and put the batches into the outlets.

        If a record cannot be delivered, the records before it are put there, and then the error is raised.
        """
        cursor = self.cursor
        routed = [self._route(part) for part in handled]
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
            for outlet, part in zip(outlets, parts, strict=True):
                unit.counts[outlet.place] = unit.counts.get(outlet.place, 0) + len(part)
            parts = [self._without_skipped(o, p, records, unit) for o, p in zip(outlets, parts, strict=True)]
            limits = [min(self._task.batch_bytes, outlet.max_bytes) for outlet in outlets]
            for packed in pack_shares(records, parts, limits, codec):
                ready.append((outlets[packed.share], packed, self.is_old(packed.batch)))
        if failure is not None and cursor.is_skipping:
            raise Renumber(RestartAt.SAME_PLACE, FAILS_ONLY_NOW)
        total = sum(len(packed.batch.data) for _, packed, _ in ready)
        frame = Frame(self._buffer, total)
        for outlet, packed, old in ready:
            first, last = packed.offsets[[0, -1]].tolist()
            entry = Entry(packed.batch, first, last, unit, frame, old, packed.offsets)
            outlet.ready.append(entry)
        frame.drop(0)
        unit.pending = len(ready)
        if cursor.progress.is_doubted:
            cursor.progress.doubt(cursor.is_skipping)
        cursor.progress.add(unit)
        cursor.stream.note_growth(size, total)
        if failure is not None:
            raise failure
        if cursor.handler is None:
            cursor.expected, cursor.expected_epoch = end, epoch

    def _route(self, handled: Handled) -> _Routed:
        """Choose an outlet for each record."""
        cursor = self.cursor
        topic, records, chosen = handled
        outlets = cursor.outlets_of(topic)
        if not outlets:
            raise Renumber(RestartAt.SAME_PLACE, f"its message handler sends to {topic}", (topic,))
        if not cursor.fans_out:
            targets: Ints = np.zeros(len(records), np.int64)
        elif self._task.partition_by == "same" or (not topic and not cursor.position.by_key):
            targets = np.full(len(records), cursor.partition, np.int64)
        else:
            targets = by_key(records, cursor.partition, len(outlets))
        if chosen is not None:
            targets = np.where(chosen >= 0, chosen, targets)
        return _Routed(records, targets, outlets)

    def _first_failure(self, routed: Sequence[_Routed], codec: int) -> Undeliverable | None:
        """Return an error for the first record that the target would never take; None if there is no such record."""
        failures: list[tuple[int, str]] = []
        for records, targets, outlets in routed:
            topic = outlets[0].topic
            limit = self.cursor.stream.metadata.max_message_bytes(topic)
            large = first_too_large(records, limit, codec)
            if large is not None:
                cause = f"alone it is larger than the target topic's max.message.bytes of {limit}"
                failures.append((int(records.offsets[large]), cause))
            if len(targets) and int(targets.max()) >= len(outlets):
                index = int(np.argmax(targets >= len(outlets)))
                cause = f"it belongs to partition {int(targets[index])}, and {topic} has {len(outlets)} on the target"
                failures.append((int(records.offsets[index]), cause))
        return Undeliverable(str(self.cursor), *min(failures)) if failures else None

    def _without_skipped(self, outlet: Outlet, part: Ints, records: Records, unit: Unit) -> Ints:
        """Return an outlet's records without those that the target holds already, which a resume has counted.

        The last record that is skipped must be the last one that was found on the target: otherwise the source is no
        longer what was mirrored.
        """
        if not outlet.skip or not len(part):
            return part
        skipped, part = part[: outlet.skip], part[outlet.skip :]
        outlet.skip -= len(skipped)
        expected = outlet.last_skipped
        if not outlet.skip and expected is not None and expected != RecordDigest.of(records, int(skipped[-1])):
            raise Renumber(RestartAt.SAME_PLACE, NOT_THE_SAME)
        outlet.note_skipped(records.offsets[skipped])
        unit.cuts[outlet.place] = outlet.channel.cut._replace(ahead=outlet.skip)
        return part

    # -- message handlers: they may be slow, so they run in a thread, one call at a time and in order

    def _enqueue(self, records: Records | None, end: int, epoch: int, codec: int, size: int) -> None:
        frame = Frame(self._buffer, int((records.ends - records.starts).sum()) if records is not None else 0)
        self._queue.append((self.cursor.handler_round, records, end, epoch, codec, size, frame))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        cursor = self.cursor
        while self._queue:
            handler_round, records, end, epoch, codec, size, frame = self._queue.pop(0)
            try:
                if handler_round == cursor.handler_round:
                    await self._handle(handler_round, records, end, epoch, codec, size)
            except DataError as error:
                cursor.interrupt(cursor.stop_error(end, str(error)))
            except asyncio.CancelledError:  # a handler may raise it, or the whole stream ends
                cursor.interrupt(cursor.stop_error(end, "its message handler raised CancelledError"))
            except Exception as error:  # whatever a handler raises must be reported
                cursor.interrupt(error)
            finally:
                frame.drop(0)
            cursor.offer()

    async def _handle(
        self, handler_round: int, records: Records | None, end: int, epoch: int, codec: int, size: int
    ) -> None:
        cursor = self.cursor
        if records is None:
            cursor.progress.pass_over(end, epoch)
            return
        assert cursor.handler is not None
        handled, failed = await cursor.stream.run_handler(cursor.handler, cursor.topic, cursor.partition, records)
        if handler_round != cursor.handler_round:
            return
        if failed is not None:
            end = failed.offset
        self._emit(handled, end, epoch, codec, size)
        if failed is not None:
            if cursor.is_skipping:
                raise Renumber(RestartAt.SAME_PLACE, FAILS_ONLY_NOW)
            raise Undeliverable(str(cursor), failed.offset, failed.cause)
