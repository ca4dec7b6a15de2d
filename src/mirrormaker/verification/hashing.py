"""A 64-bit checksum of each record, for many records at once.

Eight bytes of every record in each round, mixed as in fasthash64: 0.2 µs for a record of 100 bytes. Long records are few, and go
through BLAKE2b one by one.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from mirrormaker.wire.records import varints
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.varints import Data, Ints

Hashes = npt.NDArray[np.uint64]

_M, _MIX, _TIME = np.uint64(0x880355F21E6D1965), np.uint64(0x2127599BF4325C37), np.uint64(0x9E3779B97F4A7C15)
_TOGETHER = 512  # bytes: from there on BLAKE2b is quicker
_ROWS = 16_384  # records at a time: what a round needs stays in the processor's cache
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(8)], np.uint64)


def contents(records: Records, with_timestamps: bool, with_headers: bool = True) -> Hashes:
    """Of key and value as they lie in the batch; and of headers and the timestamp, where both sides keep them."""
    ends = records.ends if with_headers else _without_headers(records)
    hashed = spans(records.data, records.starts, ends - records.starts)
    if with_timestamps:
        hashed = _mixed(hashed ^ _mixed(records.timestamps.view(np.uint64) * _TIME)) * _M
    return hashed


def _without_headers(records: Records) -> Ints:
    """Where each value ends."""
    start, size = records.keys()
    size, start = varints.read(records.data, start + np.maximum(size, 0))
    return start + np.maximum(size, 0)


def spans(data: Data, starts: Ints, sizes: Ints) -> Hashes:
    """Of data[start : start + size] for each."""
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words: Hashes = np.lib.stride_tricks.as_strided(padded[:8].view(np.uint64), (len(data) + 1,), (1,))
    hashed = np.empty(len(starts), np.uint64)
    for at in range(0, len(starts), _ROWS):
        part = slice(at, at + _ROWS)
        hashed[part] = _short(words, starts[part], np.where(sizes[part] > _TOGETHER, 0, sizes[part]))
    for index in np.flatnonzero(sizes > _TOGETHER).tolist():
        start = int(starts[index])
        digest = blake2b(data.data[start : start + int(sizes[index])], digest_size=8).digest()
        hashed[index] = int.from_bytes(digest, "little")
    return hashed


def _short(words: Hashes, starts: Ints, sizes: Ints) -> Hashes:
    hashed: Hashes = sizes.astype(np.uint64) * _M
    whole = sizes >> 3
    rounds = int(whole.max(initial=0))
    even = rounds * len(whole) == int(whole.sum())  # all of one length, nearly: no need to choose
    for number in range(rounds):
        if even:
            hashed = (hashed ^ _mixed(words[starts + 8 * number])) * _M
        else:
            live = np.flatnonzero(whole > number)
            hashed[live] = (hashed[live] ^ _mixed(words[starts[live] + 8 * number])) * _M
    rest = sizes & 7
    tail = words[starts + 8 * whole] & _MASKS[rest]
    hashed = np.where(rest > 0, (hashed ^ _mixed(tail)) * _M, hashed)
    return _mixed(hashed)


def _mixed(word: Hashes) -> Hashes:
    word = (word ^ word >> np.uint64(23)) * _MIX
    mixed: Hashes = word ^ word >> np.uint64(47)
    return mixed
