"""From what was fetched to what is sent: the choice of a lane for every batch, in order.

Most batches go on as they are. The rest is unpacked and packed anew: see `_unpacks` and `goes_as_is` for which, and `packing` for
how. Small batches that come many at a time are packed into few; when they come one by one, at the live end, they go at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from mirrormaker.errors import DataError
from mirrormaker.model.progress import Unit
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, Batch, Batches, joined, size_of
from mirrormaker.wire.records.columns import unpack_some
from mirrormaker.wire.records.transactions import flag_data
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.buffer import Frame
from mirrormaker.worker.lanes import goes_as_is
from mirrormaker.worker.outlet import Entry, Outlet
from mirrormaker.worker.repack import Repack

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor

Fetched = Sequence[Batches | memoryview]

_MANY = 8  # batches in one answer that are worth the fixed cost of unpacking, if they are small
_SMALL, _SMALL_COMPRESSED = 32 << 10, 2 << 10  # bytes of a batch, on average
_PIECE = 4 << 20  # bytes of unpacked records that are handled at a time: the loop must not stand still for long


class Intake:
    """Takes what was fetched for one cursor; leaves entries in its outlets and units in its progress."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._repack = Repack(cursor)
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
        self._repack.look_at_the_clock()
        try:
            for run in fetched:
                if isinstance(run, memoryview):
                    self._take_old_format(run)
                elif self._unpacks(run):
                    self._take_many(run, aborted)
                else:
                    self._forward(run, aborted, frame)
        except DataError as error:
            cursor.trouble(cursor.stops(cursor.expected, str(error)))
        except Exception as error:  # whatever it is, what was fetched must be fetched again
            cursor.trouble(error)
        cursor.offer()

    # -- linger.ms: small batches wait for others, so that they go together

    def _wait_for_more(self, fetched: Fetched, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        work = self.cursor.stream.work
        frame.keep(0)
        self._held.append((self.cursor.lap, fetched, aborted, frame))
        size = sum(size_of(run) for held in self._held for run in held[1])
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
                frame = Frame(self.cursor.stream.buffer, sum(map(size_of, found)))
                self._process(found, [pair for _, _, aborted, _ in mine for pair in aborted], frame)
                frame.drop(0)
                self._gathered = False
        for _, _, _, frame in held:
            frame.drop(0)

    # -- the batches lane

    def _forward(self, run: Batches, aborted: Sequence[tuple[int, int]], frame: Frame) -> None:
        cursor, (outlet,) = self.cursor, self.cursor.outlets
        wanted = cursor.stream.work.codec
        for batch, is_data in flag_data(list(run), aborted):
            if batch.last_offset < cursor.expected:
                continue  # the broker may start with a batch that lies before the wanted offset
            batch.check()
            if not is_data:
                self._repack.pass_over(batch.last_offset + 1, batch.leader_epoch)
            elif batch.base_offset < cursor.expected or not goes_as_is(
                batch, outlet.max_bytes, wanted, cursor.takes_zstd
            ):
                self._unpack(Batches.of(batch))
            else:
                self._send_as_is(batch, outlet, frame)

    def _send_as_is(self, batch: Batch, outlet: Outlet, frame: Frame) -> None:
        cursor, end = self.cursor, batch.last_offset + 1
        unit = Unit(end, batch.leader_epoch, 1)
        old = self._repack.is_old(batch.max_timestamp)
        unit.single = batch.count == 1
        outlet.ready.append(Entry(batch, batch.base_offset, batch.last_offset, unit, frame, old))
        cursor.progress.add(unit)
        cursor.expected, cursor.expected_epoch = end, batch.leader_epoch

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

    def _take_many(self, run: Batches, aborted: Sequence[tuple[int, int]]) -> None:
        headers = run.headers
        kinds = headers["attributes"] & (CONTROL | TRANSACTIONAL)
        if kinds.any() or not headers["count"].all():
            flags = [is_data for _, is_data in flag_data(list(run), aborted)]
        else:
            flags = [True] * len(run)
        codecs = (headers["attributes"] & CODEC_MASK).tolist()
        at = 0
        for (is_data, _), group in groupby(zip(flags, codecs, strict=True)):
            stop = at + sum(1 for _ in group)
            self._take_alike(run.part(at, stop), is_data)
            at = stop

    def _take_alike(self, part: Batches, is_data: bool) -> None:
        """Batches that are all data, of one codec, or all something else."""
        ends = _ends(part)
        part = part.part(int(np.searchsorted(ends, self.cursor.expected, side="right")), len(part))
        if not len(part):
            return
        part.check()
        if is_data:
            self._unpack(part)
        else:
            self._repack.pass_over(int(ends[-1]), int(part.headers["leader_epoch"][-1]))

    def _unpack(self, part: Batches) -> None:
        work = self.cursor.stream.work
        while len(part):
            records, used = unpack_some(part, work.buffer_bytes, _PIECE)
            done = part.part(0, used)
            codec = int(done.headers["attributes"][0]) & CODEC_MASK
            self._repack.take(records, int(_ends(done)[-1]), int(done.headers["leader_epoch"][-1]), codec, done.size)
            part = part.part(used, len(part))

    def _take_old_format(self, data: memoryview) -> None:
        work, codec = self.cursor.stream.work, legacy.codec_of_first(data)
        for records in legacy.unpack(data, work.buffer_bytes):
            if len(records):
                self._repack.take(records, int(records.offsets[-1]) + 1, -1, codec, len(data))


def _ends(part: Batches) -> Ints:
    """The offset behind each batch."""
    headers = part.headers
    ends: Ints = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"] + 1
    return ends
