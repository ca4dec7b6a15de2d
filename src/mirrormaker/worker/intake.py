"""The way in: from fetched batches to batches that are ready to be sent, with a lane chosen for every batch, in order.

Most batches are forwarded unchanged. The others are unpacked and packed into new batches: `_unpacks` and
`lanes.can_forward` decide which, and `repack` does it. Many small batches in one fetch are packed into few. At the live
end they come one by one, and are forwarded at once.

The work of a fetch is cut into steps, however its records are arranged: a batch of a few kilobytes may hold millions of
records. Between two steps the rest of the event loop has its turn, or the stream would lose its lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from typing import TYPE_CHECKING

import numpy as np

from mirrormaker.errors import BadChecksum, DataError
from mirrormaker.model.progress import Unit
from mirrormaker.wire.records import legacy
from mirrormaker.wire.records.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, Batch, Batches, joined, size_of
from mirrormaker.wire.records.columns import unpack_in_pieces
from mirrormaker.wire.records.transactions import Aborted, flag_data, flag_transactions
from mirrormaker.wire.records.varints import Ints
from mirrormaker.worker.buffer import Buffer, Frame
from mirrormaker.worker.interrupts import LookAgain
from mirrormaker.worker.lanes import can_forward
from mirrormaker.worker.outlet import Entry, Outlet
from mirrormaker.worker.repack import Repack
from mirrormaker.worker.stream_task import StreamTask

if TYPE_CHECKING:
    from mirrormaker.worker.cursor import Cursor

# What a fetch brought for one partition: runs of batches, or messages of format 0 or 1 as bytes.
Fetched = Sequence[Batches | memoryview]

# So many batches in one answer are worth the fixed cost of unpacking, if they are smaller on average than these bytes.
_MANY = 8
_SMALL, _SMALL_COMPRESSED = 32 << 10, 2 << 10
# Bytes of unpacked records, and batches, that are handled in one step. `columns.MOST_RECORDS` limits the records.
_PIECE, _MOST_BATCHES = 4 << 20, 1 << 14
_CORRUPT_ANSWERS = 3  # so many in a row at the same offset stop a partition
_MAX_TURN = 0.05  # seconds of steps until the rest of the event loop has its turn


def is_corrupt_for_good(cursor: Cursor, offset: int) -> bool:
    """Count a corrupt answer at a source offset; return True if fetching it again has not helped."""
    at, count = cursor.corrupt
    cursor.corrupt = offset, count + 1 if at == offset else 1
    return cursor.corrupt[1] >= _CORRUPT_ANSWERS


def fetch_again(cursor: Cursor) -> None:
    """Fetch everything again that the cursor has not accepted; answers to earlier fetches no longer count."""
    cursor.fetch_round += 1
    cursor.fetch_from = cursor.expected, cursor.expected_epoch


class Intake:
    """Takes what was fetched for one cursor; leaves entries in its outlets and units in its progress."""

    def __init__(self, cursor: Cursor, task: StreamTask, buffer: Buffer) -> None:
        """`task` has the stream's settings; `buffer` counts the memory of new batches."""
        self.cursor = cursor
        self._task, self._buffer = task, buffer
        self._repack = Repack(cursor, task, buffer)
        # Fetches that wait for linger.ms: (fetch round, batches, aborted transactions, memory).
        self._lingering: list[tuple[int, Fetched, Aborted, Frame]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._after_linger: asyncio.Task[None] | None = None
        self._in_order = asyncio.Lock()
        # True while several fetches that waited are processed as one.
        self._merged = False

    async def accept(self, fetched: Fetched, aborted: Aborted, frame: Frame) -> None:
        """Take the batches of a fetch; `aborted` are the aborted transactions that the broker listed.

        If the cursor leaves the hot path meanwhile, or fetches from another leader, then the rest no longer counts.
        """
        if self._task.linger:
            await self._wait_for_more(fetched, aborted, frame)
        else:
            await self._process(fetched, aborted, frame)

    async def _process(self, fetched: Fetched, aborted: Aborted, frame: Frame) -> None:
        cursor, fetch_round, first = self.cursor, self.cursor.fetch_round, self.cursor.expected
        self._repack.update_expiry_cutoff()
        turn_ends = time.monotonic() + _MAX_TURN
        try:
            for has_packed in self._steps(fetched, aborted, frame):
                if has_packed and self._buffer.is_overfull and cursor.expected > first:
                    # Kilobytes may become gigabytes: the rest is fetched again as soon as there is room for it.
                    fetch_again(cursor)
                    cursor.stream.fetch(cursor)
                    break
                if time.monotonic() > turn_ends:
                    cursor.offer()
                    await asyncio.sleep(0)
                    if not cursor.flowing or cursor.fetch_round != fetch_round:
                        return
                    turn_ends = time.monotonic() + _MAX_TURN
        except BadChecksum as error:
            self._refuse(error)
        except DataError as error:
            cursor.interrupt(cursor.stop_error(cursor.expected, str(error)))
        except Exception as error:  # whatever it is, this fetch is lost and must be repeated
            cursor.interrupt(error)
        cursor.offer()

    def _refuse(self, error: BadChecksum) -> None:
        """Fetch a batch with a wrong CRC again: it may have been damaged on its way. Stop the partition if that does not help."""
        cursor = self.cursor
        is_lasting = is_corrupt_for_good(cursor, cursor.expected)
        cursor.interrupt(cursor.stop_error(cursor.expected, str(error)) if is_lasting else LookAgain(str(error)))

    def _steps(self, fetched: Fetched, aborted: Aborted, frame: Frame) -> Iterator[bool]:
        """Process a fetch, and yield after each step: True if it packed records into new batches.

        After each step the cursor expects exactly the records that are left.
        """
        for run in fetched:
            if isinstance(run, memoryview):
                yield from self._take_old_format(run)
            elif self._unpacks(run):
                yield from self._take_run(run, aborted)
            else:
                yield from self._forward(run, aborted, frame)

    # -- linger.ms: small batches wait for others, so that they are packed together

    async def _wait_for_more(self, fetched: Fetched, aborted: Aborted, frame: Frame) -> None:
        frame.keep(0)
        self._lingering.append((self.cursor.fetch_round, fetched, aborted, frame))
        size = sum(size_of(run) for part in self._lingering for run in part[1])
        if size >= self._task.batch_bytes:
            await self._process_lingering()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._task.linger, self._linger_is_over)

    def _linger_is_over(self) -> None:
        self._timer = None
        self._after_linger = asyncio.create_task(self._process_lingering())

    async def _process_lingering(self) -> None:
        """Process all that has waited as if one fetch had brought it."""
        # Fetches that come while others are processed wait for their turn.
        async with self._in_order:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            lingering, self._lingering = self._lingering, []
            try:
                await self._process_together([part for part in lingering if part[0] == self.cursor.fetch_round])
            except Exception as error:  # as in `_process`
                self.cursor.interrupt(error)
            finally:
                for _, _, _, frame in lingering:
                    frame.drop(0)

    async def _process_together(self, fetches: Sequence[tuple[int, Fetched, Aborted, Frame]]) -> None:
        if not fetches or not self.cursor.flowing:
            return
        if len(fetches) == 1:
            await self._process(*fetches[0][1:])
            return
        runs = joined([run for _, fetched, _, _ in fetches for run in fetched])
        aborted = np.concatenate([np.asarray(aborted, np.int64).reshape(-1, 2) for _, _, aborted, _ in fetches])
        frame = Frame(self._buffer, sum(map(size_of, runs)))
        self._merged = True
        try:
            await self._process(runs, aborted, frame)
        finally:
            self._merged = False
            frame.drop(0)

    # -- the batches lane

    def _forward(self, run: Batches, aborted: Aborted, frame: Frame) -> Iterator[bool]:
        cursor, (outlet,) = self.cursor, self.cursor.outlets
        wanted = self._task.codec
        for batch, is_data in flag_data(list(run), aborted):
            if batch.last_offset < cursor.expected:
                continue  # a broker may begin with a batch from before the wanted offset
            batch.check()
            if not is_data:
                self._repack.pass_over(batch.last_offset + 1, batch.leader_epoch)
            elif batch.base_offset < cursor.expected or not can_forward(
                batch, outlet.max_bytes, wanted, cursor.takes_zstd
            ):
                yield from self._unpack(Batches.of(batch))
            else:
                self._send_unchanged(batch, outlet, frame)
            yield False

    def _send_unchanged(self, batch: Batch, outlet: Outlet, frame: Frame) -> None:
        cursor, end = self.cursor, batch.last_offset + 1
        unit = Unit(end, batch.leader_epoch, 1)
        old = self._repack.is_old(batch)
        unit.single = batch.count == 1
        outlet.ready.append(Entry(batch, batch.base_offset, batch.last_offset, unit, frame, old))
        cursor.progress.add(unit)
        cursor.expected, cursor.expected_epoch = end, batch.leader_epoch

    # -- the records lane

    def _unpacks(self, run: Batches) -> bool:
        """Return True if all of these batches go through the records lane."""
        cursor, count = self.cursor, len(run)
        if cursor.fans_out or cursor.is_skipping or cursor.split_until > cursor.expected:
            return True
        if count < (2 if self._merged else _MANY):
            return False
        attributes = run[0].attributes
        wanted = self._task.codec
        if wanted is not None and attributes & CODEC_MASK != wanted:
            return True
        return run.size // count < min(
            _SMALL_COMPRESSED if attributes & CODEC_MASK else _SMALL, self._task.batch_bytes // 2
        )

    def _take_run(self, run: Batches, aborted: Aborted) -> Iterator[bool]:
        headers = run.headers
        codecs = (headers["attributes"] & CODEC_MASK).tolist()
        flags: Iterator[bool] = repeat(True)
        if (headers["attributes"] & (CONTROL | TRANSACTIONAL)).any() or not headers["count"].all():
            flags = (is_data for _, is_data in flag_transactions(run, aborted))
        at = 0
        while at < len(run):
            # `zip` must not take a flag for which there is no codec: the codecs come first.
            kinds = zip(codecs[at : at + _MOST_BATCHES], flags, strict=False)
            for (_, is_data), group in groupby(kinds):
                stop = at + sum(1 for _ in group)
                yield from self._take_group(run.part(at, stop), is_data)
                at = stop

    def _take_group(self, part: Batches, is_data: bool) -> Iterator[bool]:
        """Take batches of one codec which are all data, or all not."""
        ends = _ends(part)
        part = part.part(int(np.searchsorted(ends, self.cursor.expected, side="right")), len(part))
        if not len(part):
            return
        part.check()
        if is_data:
            yield from self._unpack(part)
        else:
            self._repack.pass_over(int(ends[-1]), int(part.headers["leader_epoch"][-1]))
            yield False

    def _unpack(self, part: Batches) -> Iterator[bool]:
        for piece in unpack_in_pieces(part, self._task.buffer_bytes, _PIECE):
            last = piece.batches[len(piece.batches) - 1]
            self._repack.take(piece.records, piece.end, last.leader_epoch, last.attributes & CODEC_MASK, piece.size)
            yield True

    def _take_old_format(self, data: memoryview) -> Iterator[bool]:
        codec = legacy.codec_of_first(data)
        for records, size in legacy.unpack(data, self._task.buffer_bytes):
            if len(records):
                self._repack.take(records, int(records.offsets[-1]) + 1, -1, codec, size)
            yield True


def _ends(part: Batches) -> Ints:
    """Return the offset after each batch."""
    headers = part.headers
    ends: Ints = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"] + 1
    return ends
