"""Unpacked records as columns: thousands of records are decoded and encoded at once.

A record is a length, attributes, a timestamp delta and an offset delta, and then its *tail*: key, value and headers.

    length varint | attributes 1 | timestamp delta varlong | offset delta varint | key length varint | key |
    value length varint | value | number of headers varint | headers

Copying a record into another batch changes only the fields before the tail, so a tail is not decoded unless someone asks for
the key. `record_starts` finds the records; numpy decodes the fields of all of them together; and Arrow's `take` copies the
tails, whatever their lengths, at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrormaker.errors import BadCompression, BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CODEC_MASK, HEADER, LOG_APPEND_TIME, Batches
from mirrormaker.wire.records.compression import NONE, compress, decompress
from mirrormaker.wire.records.record_starts import find_next_records, find_record_starts
from mirrormaker.wire.records.slices import binary_array, in_memory_order
from mirrormaker.wire.records.varints import Data, Ints

_ATTRIBUTES = np.int64(1)  # bytes of a record's attributes, which are all 0: Kafka defines none yet
_LONGEST_DELTA = 10  # bytes of a timestamp's delta
_MAX_DATA = 2**31 - 1  # Arrow's offsets are 32 bits wide
MOST_RECORDS = 1 << 16  # of a piece
_LARGE = 2  # a batch of so many times the bytes of a piece becomes several pieces


class Records:
    """Unpacked records as columns. Record i has its tail at data[starts[i]:ends[i]]; `data` is shared, not copied."""

    __slots__ = ("data", "ends", "offsets", "starts", "timestamps")

    def __init__(self, data: Data, starts: Ints, ends: Ints, offsets: Ints, timestamps: Ints) -> None:
        self.data, self.starts, self.ends, self.offsets, self.timestamps = data, starts, ends, offsets, timestamps

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | npt.NDArray[Any]) -> Records:
        return Records(self.data, self.starts[which], self.ends[which], self.offsets[which], self.timestamps[which])

    def tail(self, index: int) -> bytes:
        """Return key, value and headers of one record, encoded."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def keys(self) -> tuple[Ints, Ints]:
        """Return where each key starts in `data`, and its length: -1 if the record has no key."""
        try:
            length, start = varints.read(self.data, self.starts)
        except BadVarint as error:
            raise CorruptBatch(f"a record's key is damaged: {error}") from error
        if len(length) and (int(length.min()) < -1 or bool((np.maximum(length, 0) > self.ends - start).any())):
            raise CorruptBatch("a record's key is longer than the record")
        return start, length


class Piece(NamedTuple):
    """Unpacked records of some batches, or a part of the records of one batch."""

    records: Records
    batches: Batches
    counts: Ints  # how many of the records each batch has
    end: int  # the offset after the piece
    size: int  # its share of the batches' bytes


def unpack(batches: Batches, limit: int = _MAX_DATA) -> Records:
    """Return the records of all batches, in order. They may take at most `limit` bytes when decompressed."""
    with _damage_named(batches):
        data, starts, ends = _payloads(batches, limit, limit)
        if len(starts) < len(batches):
            raise CorruptBatch(
                f"the batches from offset {batches.first_offset} on decompress to more than {limit} bytes"
            )
        counts = batches.headers["count"].astype(np.int64)
        return _decode(batches, data, find_record_starts(data, starts, ends, counts), counts)


def unpack_in_pieces(batches: Batches, limit: int, enough: int) -> Iterator[Piece]:
    """Yield the records of all batches, in order, in pieces of `enough` bytes or a little more.

    No batch may take more than `limit` bytes when decompressed. A piece has at most MOST_RECORDS records: a batch of more
    records, or of many times `enough` bytes, becomes several pieces. Damage behind the first piece of such a batch shows
    only when its turn comes.
    """
    while len(batches):
        with _damage_named(batches):
            until = np.cumsum(batches.headers["count"], dtype=np.int64)
            few = max(1, int(np.searchsorted(until, MOST_RECORDS, side="right")))
            data, starts, ends = _payloads(batches.part(0, few), limit, enough)
            some = batches.part(0, len(starts))
            count, size = int(until[len(some) - 1]), int(ends[-1] - starts[0])
            if len(some) == 1 and (count > MOST_RECORDS or (count > 1 and size > _LARGE * enough)):
                yield from _pieces_of_one(some, data, int(starts[0]), int(ends[0]), enough)
            else:
                counts = some.headers["count"].astype(np.int64)
                records = _decode(some, data, find_record_starts(data, starts, ends, counts), counts)
                yield Piece(records, some, counts, _end(some), some.size)
        batches = batches.part(len(some), len(batches))


def _pieces_of_one(batch: Batches, data: Data, start: int, end: int, enough: int) -> Iterator[Piece]:
    """Yield the records of one large batch, which lie at data[start:end]."""
    left, at, before = int(batch.headers["count"][0]), start, batch.first_offset - 1
    while left:
        began = at
        found, at = find_next_records(data, at, end, left, MOST_RECORDS, enough)
        left -= len(found)
        counts = np.array([len(found)], np.int64)
        records = _decode(batch, data, found, counts)
        if records.offsets[0] <= before:
            raise CorruptBatch(f"the offsets of the records from offset {before} on do not increase")
        before = int(records.offsets[-1])
        size = batch.size * (at - began) // (end - start)
        yield Piece(records, batch, counts, before + 1 if left else _end(batch), size)


def _end(batches: Batches) -> int:
    """Return the offset after the last batch."""
    last = batches.headers[-1]
    return int(last["base_offset"]) + int(last["last_offset_delta"]) + 1


@contextmanager
def _damage_named(batches: Batches) -> Iterator[None]:
    """Raise CorruptBatch with the offset of the first batch if a record or its compression is damaged."""
    try:
        yield
    except BadCompression as error:
        raise CorruptBatch(f"a batch at or after offset {batches.first_offset}: {error}") from error
    except BadVarint as error:
        raise CorruptBatch(
            f"a record in the batches from offset {batches.first_offset} on is damaged: {error}"
        ) from error


def _decode(batches: Batches, data: Data, at: Ints, counts: Ints) -> Records:
    """Decode the records that begin at these places: counts[0] of the first batch, counts[1] of the next, ..."""
    headers = batches.headers
    length, here = varints.read(data, at)
    tails_end = here + length
    time_delta, here = varints.read(data, here + _ATTRIBUTES)
    offset_delta, tails = varints.read(data, here)
    if len(tails) and bool((tails >= tails_end).any()):
        raise BadVarint("it is shorter than its own fields")
    batch = np.repeat(np.arange(len(counts)), counts)
    timestamps = headers["first_timestamp"].astype(np.int64)[batch] + time_delta
    append_time = (headers["attributes"] & LOG_APPEND_TIME) != 0
    if append_time.any():
        timestamps = np.where(append_time[batch], headers["max_timestamp"].astype(np.int64)[batch], timestamps)
    offsets = headers["base_offset"].astype(np.int64)[batch] + offset_delta
    if len(offsets):
        if bool((offset_delta < 0).any()) or bool((np.diff(offsets) <= 0).any()):
            raise CorruptBatch(f"the offsets of the records from offset {batches.first_offset} on do not increase")
        if int(offsets[-1]) >= _end(batches):
            raise CorruptBatch(f"the record at offset {offsets[-1]} lies behind the end of its batch")
    return Records(data, tails, tails_end, offsets, timestamps)


def _payloads(batches: Batches, limit: int, enough: int) -> tuple[Data, Ints, Ints]:
    """Return bytes, and where each batch's records lie in them: in the batches themselves, or decompressed."""
    bounds = np.array(batches.bounds, np.int64)
    starts, ends = bounds[:-1] + HEADER.size, bounds[1:]
    codecs = batches.headers["attributes"] & CODEC_MASK
    if not codecs.any():
        used = max(1, int(np.searchsorted(ends, bounds[0] + enough, side="right")))
        return batches.array, starts[:used], ends[:used]
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
    """Return an upper bound of the bytes that each record takes in a batch with any of the others.

    It is a close one: a fetch of 1 MB must fit into two batches of 512 KB, and not leave a third one with the rest.
    """
    tails = records.ends - records.starts
    if not len(tails):
        return tails
    span = int(records.timestamps.max()) - int(records.timestamps.min())
    deltas = min(varints.size_of(span), _LONGEST_DELTA) + varints.size_of(len(tails))
    prefix = int(_ATTRIBUTES) + deltas
    return tails + (prefix + varints.size_of(int(tails.max()) + prefix))


def pack(
    records: Records, bounds: Sequence[int], codec: int = NONE, order: npt.NDArray[np.integer[Any]] | None = None
) -> list[memoryview]:
    """Pack records bounds[0] to bounds[1], bounds[1] to bounds[2], ... into a new batch each.

    With `order` the bounds count records[order]; these are packed faster than if the caller had put them in order. The
    batches have CreateTime and no producer identity. Their CRC is not set yet: `Batch.stamp` does that.
    """
    edges = np.array(bounds, np.int64)
    firsts, counts = edges[:-1], np.diff(edges)
    first = np.repeat(firsts, counts)
    timestamps, tails = records.timestamps, records.ends - records.starts
    if order is not None:
        timestamps, tails = timestamps[order], tails[order]
    time_delta = varints.zigzag(timestamps - timestamps[first])
    offset_delta = varints.zigzag(np.arange(len(tails), dtype=np.int64) - first)
    time_size, offset_size = varints.sizes(time_delta), varints.sizes(offset_delta)
    length = varints.zigzag(_ATTRIBUTES + time_size + offset_size + tails)
    length_size = varints.sizes(length)
    # Each record's prefix goes before its tail. The first prefix of each batch also has room for the batch's header.
    prefix = length_size + _ATTRIBUTES + time_size + offset_size
    prefix[firsts] += HEADER.size
    prefix_ends = np.cumsum(prefix)
    prefixes = np.zeros(int(prefix_ends[-1]), np.uint8)
    at = prefix_ends - offset_size
    varints.write(prefixes, at, offset_delta, offset_size)
    at -= time_size
    varints.write(prefixes, at, time_delta, time_size)
    at -= length_size + _ATTRIBUTES
    varints.write(prefixes, at, length, length_size)
    out = _interleave(prefixes, prefix_ends - prefix, records, order)
    record_ends = np.cumsum(prefix + tails)
    starts = record_ends[firsts] - (prefix + tails)[firsts]
    max_timestamps = np.maximum.reduceat(timestamps, firsts)
    return [
        _finish_batch(out[start:stop], codec, count, first_timestamp, max_timestamp)
        for start, stop, count, first_timestamp, max_timestamp in zip(
            starts.tolist(),
            record_ends[edges[1:] - 1].tolist(),
            counts.tolist(),
            timestamps[firsts].tolist(),
            max_timestamps.tolist(),
            strict=True,
        )
    ]


def _finish_batch(data: memoryview, codec: int, count: int, first_timestamp: int, max_timestamp: int) -> memoryview:
    """Compress the records that follow the header, and fill in the header."""
    if codec != NONE:
        payload = compress(codec, data[HEADER.size :])
        packed = bytearray(HEADER.size + len(payload))
        packed[HEADER.size :] = payload
        data = memoryview(packed)
    HEADER.pack_into(
        data, 0, 0, len(data) - 12, -1, 2, 0, codec, count - 1, first_timestamp, max_timestamp, -1, -1, -1, count
    )
    return data


def _interleave(front: Data, fronts: Ints, records: Records, order: npt.NDArray[np.integer[Any]] | None) -> memoryview:
    """Return the first part of `front` and the tail of records[order[0]], then the next ones, in one piece of memory.

    The parts of `front` lie end to end and begin at `fronts`.
    """
    starts, ends, places = in_memory_order(records.starts, records.ends)
    if places is not None:
        order = places if order is None else places[order]
    tails, count = len(starts), len(fronts)
    low, high = int(starts[0]), int(ends[-1])
    if high - low + len(front) > _MAX_DATA:
        raise CorruptBatch("more than 2 GB of records are to be packed at once")
    joined = np.concatenate([records.data[low:high], front])
    # The slices of an Arrow array lie end to end, so the gap between two tails is a slice too; `chosen` leaves it out.
    edges = np.empty(2 * tails + count + 1, np.int32)
    edges[0 : 2 * tails : 2] = starts - low
    edges[1 : 2 * tails : 2] = ends - low
    edges[2 * tails : -1] = fronts + (high - low)
    edges[-1] = len(joined)
    chosen = np.empty(2 * count, np.int32)
    chosen[0::2] = np.arange(2 * tails, 2 * tails + count)
    chosen[1::2] = np.arange(0, 2 * tails, 2) if order is None else 2 * order
    return memoryview(pc.take(binary_array(edges, joined), pa.array(chosen), boundscheck=False).buffers()[2])
