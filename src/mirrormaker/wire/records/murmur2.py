"""Choose partitions for many records at once: by key as Java's default partitioner does, and by offset without a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.varints import Data, Ints

Hashes = npt.NDArray[np.uint32]

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_LONG = 256  # bytes: longer keys are rare, and are hashed one by one


def partitions(data: Data, starts: Ints, lengths: Ints, count: int) -> Ints:
    """Return toPositive(murmur2(key)) % count of each key data[start : start + length]."""
    positive = murmur2(data, starts, lengths) & np.uint32(0x7FFFFFFF)
    chosen: Ints = positive.astype(np.int64) % count
    return chosen


def murmur2(data: Data, starts: Ints, lengths: Ints) -> Hashes:
    """Return the hash of each key data[start : start + length]."""
    if not len(starts):
        return np.empty(0, np.uint32)
    hashed: Hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    long = lengths > _LONG
    # Each round takes the next four bytes of all keys that have as many left.
    words = np.where(long, 0, lengths >> 2)
    live = np.flatnonzero(words)
    at = starts[live]
    number = 0
    while live.size:
        word = (
            data[at].astype(np.uint32)
            | data[at + 1].astype(np.uint32) << np.uint32(8)
            | data[at + 2].astype(np.uint32) << np.uint32(16)
            | data[at + 3].astype(np.uint32) << np.uint32(24)
        ) * np.uint32(_M)
        word = (word ^ word >> np.uint32(_R)) * np.uint32(_M)
        hashed[live] = hashed[live] * np.uint32(_M) ^ word
        number += 1
        keep = words[live] > number
        live, at = (live, at + 4) if keep.all() else (live[keep], at[keep] + 4)
    rest, tail = np.where(long, 0, lengths & 3), starts + (lengths & ~3)
    for byte in (2, 1, 0):
        live = np.flatnonzero(rest > byte)
        hashed[live] ^= data[tail[live] + byte].astype(np.uint32) << np.uint32(8 * byte)
    live = np.flatnonzero(rest)
    hashed[live] *= np.uint32(_M)
    hashed ^= hashed >> np.uint32(13)
    hashed *= np.uint32(_M)
    hashed ^= hashed >> np.uint32(15)
    for index in np.flatnonzero(long).tolist():
        hashed[index] = _murmur2_of_one(data[starts[index] : starts[index] + lengths[index]].tobytes())
    return hashed


def _murmur2_of_one(key: bytes) -> int:
    hashed, whole = (_SEED ^ len(key)) & 0xFFFFFFFF, len(key) // 4 * 4
    for word in np.frombuffer(key[:whole], "<u4").tolist():
        word = word * _M & 0xFFFFFFFF
        word = (word ^ word >> _R) * _M & 0xFFFFFFFF
        hashed = hashed * _M & 0xFFFFFFFF ^ word
    if len(key) > whole:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * _M & 0xFFFFFFFF
    return hashed ^ hashed >> 15


def partitions_without_key(source_partition: int, offsets: Ints, count: int) -> Ints:
    """Return a partition for each record without a key: evenly spread, and the same whoever sends the record.

    This is Fibonacci hashing of the source offset. Two consecutive offsets never share one of three or more partitions. Of
    five or more partitions, neither do offsets that are two apart: transactions of one record each leave such offsets,
    because every second one belongs to a marker.
    """
    mixed = (offsets.astype(np.uint64) + np.uint64(source_partition << 40)) * np.uint64(0x9E3779B97F4A7C15)
    chosen: Ints = ((mixed >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)
    return chosen


def by_key(records: Records, source_partition: int, count: int) -> Ints:
    """Return the target partition of each record: where Java's partitioner puts its key, or `spread` if it has none."""
    start, size = records.keys()
    chosen = partitions(records.data, start, np.maximum(size, 0), count)
    keyless = size < 0
    if keyless.any():
        chosen = np.where(keyless, partitions_without_key(source_partition, records.offsets, count), chosen)
    return chosen
