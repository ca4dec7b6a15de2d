"""Packing for the records lane: each record's target partition, and new batches for each of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirrormaker.wire.records.batch import HEADER, Batch
from mirrormaker.wire.records.columns import Records, pack, sizes
from mirrormaker.wire.records.compression import NONE
from mirrormaker.wire.records.varints import Ints

# Compression makes data that does not shrink larger by at most an eighth, and these bytes.
_SLACK = 1024


class Packed(NamedTuple):
    """A new batch, the index of its share, and the source offsets of its records."""

    share: int
    batch: Batch
    offsets: Ints


def shares(targets: Ints, count: int) -> list[Ints]:
    """Return for each of `count` targets the indexes of its records, in order."""
    order = np.argsort(targets, kind="stable")
    return np.split(order, np.cumsum(np.bincount(targets, minlength=count))[:-1])


def pack_shares(records: Records, parts: list[Ints], limits: list[int], codec: int) -> list[Packed]:
    """Pack each share into batches of at most its limit; a larger record gets a batch of its own.

    All shares are packed in one call of `pack`, which is faster than one call for each.
    """
    order = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not len(order):
        return []
    size, offsets = sizes(records), records.offsets
    is_all = len(parts) == 1 and len(order) == len(records)
    if not is_all:
        size, offsets = size[order], offsets[order]
    bounds, owner = [0], []
    at = 0
    for share, part in enumerate(parts):
        ends = _batch_ends(size[at : at + len(part)], limits[share], codec)
        bounds += [at + end for end in ends]
        owner += [share] * len(ends)
        at += len(part)
    packed = pack(records, bounds, codec, None if is_all else order)
    return [
        Packed(share, Batch(data), offsets[start:stop])
        for share, data, start, stop in zip(owner, packed, bounds[:-1], bounds[1:], strict=True)
    ]


def _batch_ends(size: Ints, limit: int, codec: int) -> list[int]:
    """Return the index after the last record of each batch."""
    if not len(size):
        return []
    limit -= HEADER.size
    if codec != NONE:
        limit -= limit // 8 + _SLACK
    until = np.cumsum(size)
    if until[-1] <= limit:
        return [len(size)]
    ends, at = [], 0
    while at < len(size):
        before = int(until[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(until, before + limit, side="right")))
        ends.append(stop)
        at = stop
    return ends


def first_too_large(records: Records, limit: int, codec: int) -> int | None:
    """Return the index of the first record that does not even fit into a batch of this size alone."""
    for index in np.flatnonzero(sizes(records) > limit - HEADER.size).tolist():
        (alone,) = pack(records[index : index + 1], [0, 1], codec)
        if len(alone) > limit:
            return int(index)
    return None
