"""Find where each record of a batch begins.

A record begins where the record before it ends, and only that record's length, a varint, says where: the records form a chain.
There are four ways to follow it, and an estimate of their cost decides which one is taken:

- Guess that all records of a batch have the same length.
- Follow the chains of many batches side by side, one record of each batch per round.
- Guess from zero bytes: a record's attributes are always 0.
- Go from one record to the next.

A guess counts only if the lengths of all records confirm it.

A batch of very many records is taken piece by piece (`find_next_records`): time and memory for a piece are bounded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadVarint
from mirrormaker.wire.protocol.codec import MAX_VARINT_32
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.varints import Data, Ints

_SMALLEST = 7  # bytes of a record without key, value and headers

# What each way costs, roughly, in nanoseconds.
_STEP = 400  # from one record to the next: for each record
_SCAN_BYTE, _SCAN_BATCH = 1, 60_000  # by zero bytes: for each byte, and for each batch
_ROUND_RECORD, _ROUND = 40, 15_000  # side by side: for each record, and for each round
# Each zero byte costs time and memory, and a payload may be full of them: with more zeros than this, they are not looked at.
_MAX_ZEROS_PER_RECORD, _MAX_ZEROS_PER_BYTE = 8, 0.25


def find_record_starts(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """Return where each record begins. Batch i has its counts[i] records at data[starts[i]:ends[i]]."""
    if bool((counts * _SMALLEST > ends - starts).any()):
        raise BadVarint("a batch is too short for its number of records")
    stride = (ends - starts) // np.maximum(counts, 1)
    even = stride * counts == ends - starts
    if not even.any():
        return _find_in_uneven(data, starts, ends, counts)
    batch = np.repeat(np.arange(len(counts)), counts)
    found: Ints = starts[batch] + (np.arange(len(batch)) - (np.cumsum(counts) - counts)[batch]) * stride[batch]
    even &= np.bincount(batch[~_have_length(data, found, stride[batch])], minlength=len(counts)) == 0
    if not even.all():
        found[~even[batch]] = _find_in_uneven(data, starts[~even], ends[~even], counts[~even])
    return found


def _have_length(data: Data, at: Ints, stride: Ints) -> npt.NDArray[np.bool_]:
    """Return for each place whether a record that begins there has exactly `stride` bytes."""
    try:
        length, after = varints.read(data, at)
    except BadVarint:
        return np.zeros(len(at), np.bool_)
    right: npt.NDArray[np.bool_] = (after + length == at + stride) & (after - at <= MAX_VARINT_32)
    return right


def _find_in_uneven(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """Take all batches side by side or one after the other, whichever costs less."""
    sizes = ends - starts
    rounds, batches, records = int(counts.max(initial=0)), len(counts), int(counts.sum())
    one_by_one = records * min(_STEP, _SCAN_BYTE * int(sizes.sum()) // max(1, records)) + batches * _SCAN_BATCH
    if rounds * _ROUND + records * _ROUND_RECORD <= one_by_one:
        return _find_side_by_side(data, starts, ends, counts)
    found = [
        _find_in_one(data, start, end, count)
        for start, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)
    ]
    return np.concatenate(found) if len(found) != 1 else found[0]


def _find_side_by_side(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """Find the n-th record of every batch that has one, for n = 0, 1, ...: for many batches of few records each."""
    at = starts.copy()
    first = np.cumsum(counts) - counts
    found = np.empty(int(counts.sum()), np.int64)
    live = np.flatnonzero(counts)
    number = 0
    while live.size:
        here = at[live]
        found[first[live] + number] = here
        length, after = varints.read(data, here)
        if bool((length < 0).any()) or bool((after - here > MAX_VARINT_32).any()):
            raise BadVarint("a record's length is negative or too large")
        at[live] = after + length
        if bool((at[live] > ends[live]).any()):
            raise BadVarint("a record is longer than its batch")
        number += 1
        live = live[counts[live] > number]
    if not np.array_equal(at, ends):
        raise BadVarint("a batch is longer than its records")
    return found


def _find_in_one(data: Data, start: int, end: int, count: int) -> Ints:
    if (end - start) * _SCAN_BYTE + _SCAN_BATCH < count * _STEP:
        found = _find_by_zeros(data, start, end, count)
        if found is not None:
            return found
    return _find_step_by_step(data, start, end, count)


def _find_by_zeros(data: Data, start: int, end: int, count: int) -> Ints | None:
    """Guess where records begin, and confirm the guess; return None if it fails. For large batches of small records.

    A record's attributes are a zero byte right after its length. So each zero byte may belong to a record, and the number
    before it then says where the next record begins. A candidate is wrong if it leads to no other candidate, or if no other
    candidate leads to it. If the remaining candidates are one unbroken chain from start to end of exactly `count` records,
    they are the records.
    """
    is_zero = data[start + 1 : end] == 0
    if np.count_nonzero(is_zero) > min(_MAX_ZEROS_PER_RECORD * count, _MAX_ZEROS_PER_BYTE * (end - start)):
        return None
    zeros = np.flatnonzero(is_zero) + (start + 1)
    length, width = data[zeros - 1].astype(np.int64), np.ones(len(zeros), np.int64)
    zeros, length, width = (column[length < 0x80] for column in (zeros, length, width))
    # Read the number backwards from its last byte: the bytes before it belong to it as long as they have the high bit.
    longer = np.ones(len(zeros), np.bool_)
    for back in range(2, MAX_VARINT_32 + 1):
        place = zeros - back
        before = data[np.maximum(place, start)]
        longer &= (before > 0x7F) & (place >= start)
        if not longer.any():
            break
        length = np.where(longer, length << 7 | before & 0x7F, length)
        width += longer
    begin, next_begin = zeros - width, zeros + (length >> 1)
    keep = (length & 1 == 0) & (next_begin <= end)
    for _ in range(4):
        begin, next_begin = begin[keep], next_begin[keep]
        if len(begin) < count:
            return None
        if len(begin) == count:
            chained = begin[0] == start and next_begin[-1] == end and np.array_equal(begin[1:], next_begin[:-1])
            return begin if chained else None
        is_begin, is_next = np.zeros(end - start + 1, np.bool_), np.zeros(end - start + 1, np.bool_)
        is_begin[begin - start], is_next[next_begin - start] = True, True
        is_begin[-1], is_next[0] = True, True
        keep = is_begin[next_begin - start] & is_next[begin - start]
    return None


def _find_step_by_step(data: Data, at: int, end: int, count: int) -> Ints:
    """Go from one record to the next."""
    found, at = _walk(data, at, end, count)
    if at != end or len(found) != count:
        raise BadVarint("a batch is longer or shorter than its records")
    return found


def find_next_records(data: Data, at: int, end: int, left: int, most: int, enough: int) -> tuple[Ints, int]:
    """Return where the next records of a batch begin, and where the record after them begins.

    The batch has `left` more records, up to `end`. These are `most` of them, or fewer if they have `enough` bytes.
    """
    if left * _SMALLEST > end - at:
        raise BadVarint("a batch is too short for its number of records")
    # Guess that all of them have the length of the first one.
    stride = _walk(data, at, end, 1)[1] - at
    count = min(most, left, max(1, enough // stride), max(1, (end - at) // stride))
    found: Ints = at + np.arange(count) * stride
    if bool(_have_length(data, found, np.full(count, stride)).all()):
        at += count * stride
    else:
        found, at = _walk(data, at, min(end, at + enough), min(most, left))
    if at > end or (at == end) != (len(found) == left):
        raise BadVarint("a batch is longer or shorter than its records")
    return found, at


def _walk(data: Data, at: int, until: int, count: int) -> tuple[Ints, int]:
    """Go from one record to the next: `count` times, or until a place is reached. Return where they begin and end."""
    found = np.empty(count, np.int64)
    raw = data.data
    number = 0
    try:
        while number < count and at < until:
            found[number] = at
            number += 1
            # This is `varints.read_one` written out: a call for each record would make the loop much slower.
            size = raw[at]
            at += 1
            if size > 0x7F:
                size &= 0x7F
                shift = 7
                while True:
                    byte = raw[at]
                    at += 1
                    size |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
                    if shift > 28:
                        raise BadVarint("a record's length is too large")
            if size & 1:
                raise BadVarint("a record's length is negative")
            at += size >> 1
    except IndexError as error:
        raise BadVarint("a record is longer than its batch") from error
    return found[:number], at
