"""The records lane: records taken out of their batches, sent each to its partition, and packed into new batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirrormaker.wire.records.batch import HEADER, Batch
from mirrormaker.wire.records.columns import Records, pack, sizes
from mirrormaker.wire.records.compression import NONE
from mirrormaker.wire.records.varints import Ints

_SLACK = 1024  # what compression may add to data that does not get smaller: an eighth of it at most, and this


class Packed(NamedTuple):
    """A new batch: of which share it is, and which source offsets are in it."""

    share: int
    batch: Batch
    first: int
    last: int


def shares(targets: Ints, count: int) -> list[Ints]:
    """For each target the indexes of its records, in order."""
    order = np.argsort(targets, kind="stable")
    return np.split(order, np.cumsum(np.bincount(targets, minlength=count))[:-1])


def pack_shares(records: Records, parts: list[Ints], limits: list[int], codec: int) -> list[Packed]:
    """Each share as batches of at most its limit, all packed in one go; a record that is larger goes alone."""
    order = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if not len(order):
        return []
    chosen = records[order] if len(order) < len(records) or len(parts) > 1 else records
    size = sizes(chosen)
    bounds, owner = [0], []
    at = 0
    for share, part in enumerate(parts):
        found = _bounds(size[at : at + len(part)], limits[share], codec)
        bounds += [at + bound for bound in found]
        owner += [share] * len(found)
        at += len(part)
    packed, offsets = pack(chosen, bounds, codec), chosen.offsets
    return [
        Packed(share, Batch(data), int(offsets[start]), int(offsets[stop - 1]))
        for share, data, start, stop in zip(owner, packed, bounds[:-1], bounds[1:], strict=True)
    ]


def _bounds(size: Ints, limit: int, codec: int) -> list[int]:
    """Behind which records a batch ends."""
    if not len(size):
        return []
    limit -= HEADER.size
    if codec != NONE:
        limit -= limit // 8 + _SLACK
    until = np.cumsum(size)
    if until[-1] <= limit:
        return [len(size)]
    found, at = [], 0
    while at < len(size):
        before = int(until[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(until, before + limit, side="right")))
        found.append(stop)
        at = stop
    return found


def first_too_large(records: Records, limit: int, codec: int) -> int | None:
    """The first record that does not fit into a batch of this size, not even alone."""
    for index in np.flatnonzero(sizes(records) > limit - HEADER.size).tolist():
        (alone,) = pack(records[index : index + 1], [0, 1], codec)
        if len(alone) > limit:
            return int(index)
    return None
