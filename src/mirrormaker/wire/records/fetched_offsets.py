"""The offsets of fetched batches. A batch's base offset lies outside of its CRC, so a damaged one shows here or nowhere."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batches, Run

_MANY = 8  # so many batches are worth the fixed cost of numpy
_BATCH = struct.Struct(">q15xi")  # base offset, and the last offset's distance from it
_MESSAGE = struct.Struct(">qi")  # offset and size of a message of format 0 or 1


def end_of(fetched: Sequence[Run], asked: int) -> tuple[int, int]:
    """Return the offset after the batches, and the leader epoch of the last one.

    Raise CorruptBatch unless every batch begins after the one before it, and the first one ends at or after the offset
    that was asked for. It may begin earlier: brokers send whole batches. Compaction leaves gaps, so these say nothing.
    """
    end, epoch = asked, -1
    for number, run in enumerate(fetched):
        if isinstance(run, memoryview):
            end, epoch = _check(_message_offsets(run), end, number == 0), -1
            continue
        if len(run) < _MANY:
            end = _check(_batch_offsets(run), end, number == 0)
        else:
            end = _check_many(run, end, number == 0)
        epoch = run[len(run) - 1].leader_epoch
    return end, epoch


def visible(fetched: Sequence[Run], asked: int, high_watermark: int) -> tuple[list[Run], int]:
    """Return the batches that end at or below the high watermark, and the offset after them.

    A broker reads its high watermark a moment before the records, so the last ones may end beyond it: another fetch brings
    them again. Raise CorruptBatch if `end_of` does, or if not even the first batch ends below the high watermark.
    """
    end, _ = end_of(fetched, asked)
    if not (fetched and 0 <= high_watermark < end):
        return list(fetched), end
    kept: list[Run] = []
    for run in fetched:
        below: Run
        if isinstance(run, Batches):
            headers = run.headers
            last = headers["base_offset"].astype(np.int64) + headers["last_offset_delta"]
            below = run.part(0, int(np.searchsorted(last, high_watermark)))
        else:
            below = run[: _messages_below(run, high_watermark)]
        if len(below):
            kept.append(below)
        if len(below) < len(run):
            break
    if not kept:
        raise CorruptBatch(f"batches for offset {asked} end at {end - 1}, but the high watermark is {high_watermark}")
    return kept, end_of(kept, asked)[0]


def _check(offsets: Iterable[tuple[int, int]], end: int, may_begin_before: bool) -> int:
    """Return the offset after batches whose first and last offsets are given, if they follow each other from `end` on."""
    for first, last in offsets:
        if last < first or last < end or not (may_begin_before or first >= end):
            raise CorruptBatch(f"a batch from offset {first} to {last} comes where offset {end} is next")
        end, may_begin_before = last + 1, False
    return end


def _check_many(run: Batches, end: int, may_begin_before: bool) -> int:
    """Do the same as `_check` for a whole run at once."""
    headers = run.headers
    first = headers["base_offset"].astype(np.int64)
    last = first + headers["last_offset_delta"]
    # A sum beyond 63 bits is negative.
    if (first[1:] <= last[:-1]).any() or (last < first).any():
        raise CorruptBatch(f"batches from offset {first[0]} to {last[-1]} are not in order")
    _check([(int(first[0]), int(last[0]))], end, may_begin_before)
    return int(last[-1]) + 1


def _batch_offsets(run: Batches) -> Iterator[tuple[int, int]]:
    for at in run.bounds[:-1]:
        first, delta = _BATCH.unpack_from(run.data, at)
        yield first, first + delta


def _messages_below(data: memoryview, high_watermark: int) -> int:
    """Return how many bytes the messages below the high watermark have. They are in order."""
    at = 0
    while at < len(data):
        offset, size = _MESSAGE.unpack_from(data, at)
        if offset >= high_watermark:
            break
        at += _MESSAGE.size + size
    return at


def _message_offsets(data: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the offset of each message; a compressed message has that of its last record."""
    at = 0
    while at < len(data):
        offset, size = _MESSAGE.unpack_from(data, at)
        yield offset, offset
        at += _MESSAGE.size + size
