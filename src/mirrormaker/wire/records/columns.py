"""The records in batches, as columns: decoded and encoded by the thousand.

A record is a length, attributes, a timestamp delta and an offset delta, and then its *tail*: key, value and headers. Copying a
record into another batch changes only what comes before the tail, so tails are never opened unless someone asks for a key:

    length varint | attributes 1 | timestamp delta varlong | offset delta varint | key length varint | key | value length
    varint | value | number of headers varint | headers

Where a record starts is known only from the length of the one before it. That chain is the one thing that is walked; the rest
is numpy, and the copying is Arrow's `take`, which moves slices of any length at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.errors import BadCompression, BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CODEC_MASK, HEADER, LOG_APPEND_TIME, Batches
from mirrormaker.wire.records.compression import NONE, compress, decompress
from mirrormaker.wire.records.record_starts import walk
from mirrormaker.wire.records.varints import Data, Ints

_ATTRIBUTES = np.int64(1)  # bytes of a record's attributes: none is defined, all are 0
_MAX_DATA = 2**31 - 1  # Arrow's offsets are 32 bits wide


class Records:
    """Columns over bytes that are not copied: record i has its tail at data[starts[i]:ends[i]]."""

    __slots__ = ("data", "ends", "offsets", "starts", "timestamps")

    def __init__(self, data: Data, starts: Ints, ends: Ints, offsets: Ints, timestamps: Ints) -> None:
        self.data, self.starts, self.ends, self.offsets, self.timestamps = data, starts, ends, offsets, timestamps

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | npt.NDArray[Any]) -> Records:
        return Records(self.data, self.starts[which], self.ends[which], self.offsets[which], self.timestamps[which])

    def tail(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def keys(self) -> tuple[Ints, Ints]:
        """Where each key starts, and its length; -1 where there is none."""
        try:
            length, start = varints.read(self.data, self.starts)
        except BadVarint as error:
            raise CorruptBatch(f"a record's key is damaged: {error}") from error
        if len(length) and (int(length.min()) < -1 or bool((np.maximum(length, 0) > self.ends - start).any())):
            raise CorruptBatch("a record's key is longer than the record")
        return start, length


def unpack(batches: Batches, limit: int = _MAX_DATA) -> Records:
    """The records of all batches, in order. `limit` is what they may take unpacked."""
    found, taken = unpack_some(batches, limit, limit)
    if taken < len(batches):
        raise CorruptBatch(f"the batches from offset {batches.first_offset} on are more than {limit} bytes, unpacked")
    return found


def unpack_some(batches: Batches, limit: int, enough: int) -> tuple[Records, int]:
    """The records of the first batches, and of how many: until they are `enough` bytes, unpacked."""
    try:
        data, starts, ends = _payloads(batches, limit, enough)
        batches = batches.part(0, len(starts))
        headers = batches.headers
        counts = headers["count"].astype(np.int64)
        at = walk(data, starts, ends, counts)
        length, here = varints.read(data, at)
        tails_end = here + length
        delta, here = varints.read(data, here + _ATTRIBUTES)
        offset, tails = varints.read(data, here)
    except BadCompression as error:
        raise CorruptBatch(f"the batch at offset {batches.first_offset}: {error}") from error
    except BadVarint as error:
        raise CorruptBatch(
            f"a record in the batches from offset {batches.first_offset} on is damaged: {error}"
        ) from error
    if len(tails) and bool((tails >= tails_end).any()):
        raise CorruptBatch(
            f"a record in the batches from offset {batches.first_offset} on is shorter than its own fields"
        )
    each = np.repeat(np.arange(len(counts)), counts)
    timestamps = headers["first_timestamp"].astype(np.int64)[each] + delta
    stamped = (headers["attributes"] & LOG_APPEND_TIME) != 0
    if stamped.any():
        timestamps = np.where(stamped[each], headers["max_timestamp"].astype(np.int64)[each], timestamps)
    offsets = headers["base_offset"].astype(np.int64)[each] + offset
    if len(offsets) and (bool((offset < 0).any()) or bool((np.diff(offsets) <= 0).any())):
        raise CorruptBatch(f"the records from offset {batches.first_offset} on count backwards")
    return Records(data, tails, tails_end, offsets, timestamps), len(batches)


def _payloads(batches: Batches, limit: int, enough: int) -> tuple[Data, Ints, Ints]:
    """Where the records of each batch lie: in the batches themselves, or in what they decompress to."""
    bounds = np.array(batches.bounds, np.int64)
    starts, ends = bounds[:-1] + HEADER.size, bounds[1:]
    codecs = batches.headers["attributes"] & CODEC_MASK
    if not codecs.any():
        few = max(1, int(np.searchsorted(ends, bounds[0] + enough, side="right")))
        return batches.array, starts[:few], ends[:few]
    parts: list[Any] = []
    size = 0
    for codec, start, end in zip(codecs.tolist(), starts.tolist(), ends.tolist(), strict=True):
        part = batches.data[start:end]
        parts.append(part if codec == NONE else decompress(codec, part, min(limit, _MAX_DATA - size)))
        size += len(parts[-1])
        if size >= enough:
            break
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    joined = parts[0] if len(parts) == 1 else b"".join(parts)
    return np.frombuffer(joined, np.uint8), starts, ends


def sizes(records: Records) -> Ints:
    """At most how many bytes each record takes in a batch, its prefix included."""
    return records.ends - records.starts + 24


def pack(records: Records, bounds: Sequence[int], codec: int = NONE) -> list[memoryview]:
    """New batches of records bounds[0] to bounds[1], bounds[1] to bounds[2], ...: CreateTime, no identity, CRC not yet set."""
    edges = np.array(bounds, np.int64)
    firsts, counts = edges[:-1], np.diff(edges)
    each = np.repeat(firsts, counts)
    stamps = records.timestamps
    delta = varints.zigzag(stamps - stamps[each])
    number = varints.zigzag(np.arange(len(records), dtype=np.int64) - each)
    delta_size, number_size = varints.sizes(delta), varints.sizes(number)
    tails = records.ends - records.starts
    length = varints.zigzag(_ATTRIBUTES + delta_size + number_size + tails)
    length_size = varints.sizes(length)
    # What goes before each tail; the first of each batch has room for the batch's header before that.
    prefix = length_size + _ATTRIBUTES + delta_size + number_size
    prefix[firsts] += HEADER.size
    ends = np.cumsum(prefix)
    front = np.zeros(int(ends[-1]), np.uint8)
    at = ends - number_size
    varints.write(front, at, number, number_size)
    at -= delta_size
    varints.write(front, at, delta, delta_size)
    at -= length_size + _ATTRIBUTES
    varints.write(front, at, length, length_size)
    out = _interleave(front, ends - prefix, ends, records.data, records.starts, records.ends)
    whole = np.cumsum(prefix + tails)
    starts = whole[firsts] - (prefix + tails)[firsts]
    last = np.maximum.reduceat(stamps, firsts)
    return [
        _batch(out[a:b], codec, n, first, most)
        for a, b, n, first, most in zip(
            starts.tolist(),
            whole[edges[1:] - 1].tolist(),
            counts.tolist(),
            stamps[firsts].tolist(),
            last.tolist(),
            strict=True,
        )
    ]


def _batch(data: memoryview, codec: int, count: int, first: int, most: int) -> memoryview:
    """Fill in the header, and compress what follows it."""
    if codec != NONE:
        payload = compress(codec, data[HEADER.size :])
        packed = bytearray(HEADER.size + len(payload))
        packed[HEADER.size :] = payload
        data = memoryview(packed)
    HEADER.pack_into(data, 0, 0, len(data) - 12, -1, 2, 0, codec, count - 1, first, most, -1, -1, -1, count)
    return data


def _interleave(front: Data, a: Ints, b: Ints, data: Data, c: Ints, d: Ints) -> memoryview:
    """front[a0:b0] data[c0:d0] front[a1:b1] data[c1:d1] ... in one piece of memory."""
    count = len(a)
    low, high = int(c.min()), int(d.max())
    if high - low + len(front) > _MAX_DATA:
        raise CorruptBatch("more than 2 GB of records at once")
    joined = np.concatenate([data[low:high], front])
    # Arrow's slices lie end to end, so what is between two tails is a slice too, which nobody takes.
    edges = np.empty(3 * count + 1, np.int32)
    edges[0 : 2 * count : 2] = c - low
    edges[1 : 2 * count : 2] = d - low
    edges[2 * count : 3 * count] = a + (high - low)
    edges[3 * count] = len(joined)
    slices = pa.Array.from_buffers(pa.binary(), 3 * count, [None, pa.py_buffer(edges), pa.py_buffer(joined)])
    order = np.empty(2 * count, np.int32)
    order[0::2] = np.arange(2 * count, 3 * count)
    order[1::2] = np.arange(0, 2 * count, 2)
    return memoryview(pc.take(slices, pa.array(order), boundscheck=False).buffers()[2])
