"""A 64-bit checksum of each record, computed for many records at once.

Each round mixes in eight bytes of every record, as fasthash64 does: 0.2 µs for a record of 100 bytes. Long records are
few; BLAKE2b hashes them one by one.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from mirrormaker.wire.records import varints
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.varints import Data, Ints

Hashes = npt.NDArray[np.uint64]

_MULTIPLIER, _MIX, _TIMESTAMP = (
    np.uint64(0x880355F21E6D1965),
    np.uint64(0x2127599BF4325C37),
    np.uint64(0x9E3779B97F4A7C15),
)
_LONG = 512  # bytes: BLAKE2b is faster from here on
_ROWS = 16_384  # records per round, so that the data of a round stays in the processor's cache
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], np.uint64)


def hash_records(records: Records, with_timestamps: bool, with_headers: bool = True) -> Hashes:
    """Return a checksum of each record's key and value, and of its timestamp and headers if wanted."""
    ends = records.ends if with_headers else _value_ends(records)
    hashed = hash_ranges(records.data, records.starts, ends - records.starts)
    if with_timestamps:
        hashed = _mix(hashed ^ _mix(records.timestamps.view(np.uint64) * _TIMESTAMP)) * _MULTIPLIER
    return hashed


def _value_ends(records: Records) -> Ints:
    start, size = records.keys()
    size, start = varints.read(records.data, start + np.maximum(size, 0))
    return start + np.maximum(size, 0)


def hash_ranges(data: Data, starts: Ints, sizes: Ints) -> Hashes:
    """Return a checksum of data[start : start + size] for each start and size."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words: Hashes = np.lib.stride_tricks.as_strided(padded[:8].view(np.uint64), (len(data) + 1,), (1,))
    hashed = np.empty(len(starts), np.uint64)
    for at in range(0, len(starts), _ROWS):
        rows = slice(at, at + _ROWS)
        hashed[rows] = _hash_short(words, starts[rows], np.where(sizes[rows] > _LONG, 0, sizes[rows]))
    for index in np.flatnonzero(sizes > _LONG).tolist():
        start = int(starts[index])
        digest = blake2b(data.data[start : start + int(sizes[index])], digest_size=8).digest()
        hashed[index] = int.from_bytes(digest, "little")
    return hashed


def _hash_short(words: Hashes, starts: Ints, sizes: Ints) -> Hashes:
    """Hash ranges of at most `_LONG` bytes; `words[i]` are the eight bytes from byte i on."""
    hashed: Hashes = sizes.astype(np.uint64) * _MULTIPLIER
    whole_words = sizes >> 3
    rounds = int(whole_words.max(initial=0))
    same_length = rounds * len(whole_words) == int(whole_words.sum())
    for number in range(rounds):
        if same_length:
            hashed = (hashed ^ _mix(words[starts + 8 * number])) * _MULTIPLIER
        else:
            live = np.flatnonzero(whole_words > number)
            hashed[live] = (hashed[live] ^ _mix(words[starts[live] + 8 * number])) * _MULTIPLIER
    rest = sizes & 7
    tail = words[starts + 8 * whole_words] & _MASKS[rest]
    hashed = np.where(rest > 0, (hashed ^ _mix(tail)) * _MULTIPLIER, hashed)
    return _mix(hashed)


def _mix(word: Hashes) -> Hashes:
    word = (word ^ word >> np.uint64(23)) * _MIX
    mixed: Hashes = word ^ word >> np.uint64(47)
    return mixed
