"""Transactions in a fetched log: which record batches are data, and which are markers or were aborted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CONTROL, HEADER, TRANSACTIONAL, Batch

ABORT_MARKER = 0  # the type of a control record; a commit marker is 1


def flag_data(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterable[tuple[Batch, bool]]:
    """Return each batch with True if it holds data that a reader should see.

    Control batches, batches that compaction has emptied and batches of aborted transactions hold none. `aborted` is the
    fetch response's list of aborted transactions as (producer id, first offset), in any order: from that offset to the
    abort marker, transactional batches of that producer are aborted. It is empty for a fetch that reads uncommitted
    records.
    """
    if all(not batch.attributes & (CONTROL | TRANSACTIONAL) and batch.count for batch in batches):
        return zip(batches, repeat(True))
    return _flag_transactions(batches, aborted)


def _flag_transactions(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    not_begun = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    aborting: set[int] = set()  # producer ids inside an aborted transaction
    for batch in batches:
        while not_begun and not_begun[-1][1] <= batch.base_offset:
            aborting.add(not_begun.pop()[0])
        if batch.is_control:
            if batch.count and batch.producer_id in aborting and _marker_type(batch) == ABORT_MARKER:
                aborting.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, batch.count > 0 and not (batch.is_transactional and batch.producer_id in aborting)


def _marker_type(batch: Batch) -> int:
    """Return the type in a control record's key: 0 for abort, 1 for commit.

    The record is its length, attributes, three varints (timestamp delta, offset delta, key length), then the key, in
    which the type follows a version of two bytes.
    """
    data, at = batch.data, HEADER.size
    try:
        _, at = varints.read_one(data, at)
        at += 1
        for _ in range(3):
            _, at = varints.read_one(data, at)
        return data[at + 2] << 8 | data[at + 3]
    except (BadVarint, IndexError) as error:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} is cut short") from error
