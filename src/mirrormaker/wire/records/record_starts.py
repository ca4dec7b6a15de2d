"""Where each record of a batch begins.

Only the length of the one before it says so: a chain of varints. There are four ways along it, and which one is taken is a matter
of cost: a guess that all are of one length, many batches side by side, a guess from the zeros that records have in common, and one
step after the other. Guesses are proved before they count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadVarint
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.varints import Data, Ints

_LENGTH = 5  # bytes of a record's length, at most
_SMALLEST = 7  # bytes of a record with neither key nor value nor headers


def walk(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """Where every record begins."""
    if bool((counts * _SMALLEST > ends - starts).any()):
        raise BadVarint("more records than there is room for")
    # Often all records of a batch are of one length: that is guessed first, and proved.
    stride = (ends - starts) // np.maximum(counts, 1)
    even = stride * counts == ends - starts
    if not even.any():
        return _walk_unevenly(data, starts, ends, counts)
    each = np.repeat(np.arange(len(counts)), counts)
    found: Ints = starts[each] + (np.arange(len(each)) - (np.cumsum(counts) - counts)[each]) * stride[each]
    even &= np.bincount(each[~_leads_to_the_next(data, found, stride[each])], minlength=len(counts)) == 0
    if not even.all():
        found[~even[each]] = _walk_unevenly(data, starts[~even], ends[~even], counts[~even])
    return found


def _leads_to_the_next(data: Data, at: Ints, stride: Ints) -> npt.NDArray[np.bool_]:
    """Does a record that begins here end where the next one would begin?"""
    try:
        length, after = varints.read(data, at)
    except BadVarint:
        return np.zeros(len(at), np.bool_)
    right: npt.NDArray[np.bool_] = (after + length == at + stride) & (after - at <= _LENGTH)
    return right


def _walk_unevenly(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """All batches side by side, or one after the other, whichever is quicker."""
    sizes = ends - starts
    most, batches, records = int(counts.max(initial=0)), len(counts), int(counts.sum())
    alone = records * min(_STEP, _SCAN * int(sizes.sum()) // max(1, records)) + batches * _SCAN_FIXED
    if most * _ROUND_FIXED + records * _ROUND <= alone:
        return _walk_abreast(data, starts, ends, counts)
    found = [
        _walk_one(data, start, end, count)
        for start, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)
    ]
    return np.concatenate(found) if len(found) != 1 else found[0]


# What the ways to walk cost, in nanoseconds: they decide which one is taken.
_STEP = 400  # one record after the other, in Python
_SCAN, _SCAN_FIXED = 1, 60_000  # for each byte, and for each batch
_ROUND, _ROUND_FIXED = 40, 15_000  # for each record, and for each round
# How many zeros are looked at, for each record and for each byte: each takes time and memory, and payloads may be full of them.
_ZEROS, _ZEROS_SHARE = 8, 0.25


def _walk_abreast(data: Data, starts: Ints, ends: Ints, counts: Ints) -> Ints:
    """The n-th record of every batch that has one, for n = 0, 1, ...: for many batches of few records each."""
    at = starts.copy()
    first = np.cumsum(counts) - counts
    found = np.empty(int(counts.sum()), np.int64)
    live = np.flatnonzero(counts)
    number = 0
    while live.size:
        here = at[live]
        found[first[live] + number] = here
        length, after = varints.read(data, here)
        if bool((length < 0).any()) or bool((after - here > _LENGTH).any()):
            raise BadVarint("a record with a bad length")
        at[live] = after + length
        if bool((at[live] > ends[live]).any()):
            raise BadVarint("a record is longer than its batch")
        number += 1
        live = live[counts[live] > number]
    if not np.array_equal(at, ends):
        raise BadVarint("a batch is longer than its records")
    return found


def _walk_one(data: Data, start: int, end: int, count: int) -> Ints:
    if (end - start) * _SCAN + _SCAN_FIXED < count * _STEP:
        found = _walk_by_zeros(data, start, end, count)
        if found is not None:
            return found
    return _walk_by_steps(data, start, end, count)


def _walk_by_zeros(data: Data, start: int, end: int, count: int) -> Ints | None:
    """Guess where records begin, and prove it: for large batches of small records.

    A record's attributes are a zero byte, right after its length. Each zero that looks like one says where the next record
    must begin; those that do not lead to another guess, or that no guess leads to, are wrong. If what remains is one
    unbroken chain from start to end of as many records as there are, then it is the records. If not, nothing is known.
    """
    is_zero = data[start + 1 : end] == 0
    if np.count_nonzero(is_zero) > min(_ZEROS * count, _ZEROS_SHARE * (end - start)):
        return None
    zeros = np.flatnonzero(is_zero) + (start + 1)
    length, width = data[zeros - 1].astype(np.int64), np.ones(len(zeros), np.int64)
    zeros, length, width = (column[length < 0x80] for column in (zeros, length, width))
    longer = np.ones(len(zeros), np.bool_)
    for back in range(2, 6):  # the bytes before it, as far as they belong to the same number
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


def _walk_by_steps(data: Data, at: int, end: int, count: int) -> Ints:
    """From one record to the next."""
    found = np.empty(count, np.int64)
    raw = data.data
    try:
        for number in range(count):
            found[number] = at
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
                        raise BadVarint("a record with a bad length")
            if size & 1:
                raise BadVarint("a record of negative length")
            at += size >> 1
    except IndexError as error:
        raise BadVarint("a record is longer than its batch") from error
    if at != end:
        raise BadVarint("a batch is longer or shorter than its records")
    return found
