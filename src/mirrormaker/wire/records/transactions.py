"""Transactions in a fetched log: which record batches are data, and which are markers or were aborted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CONTROL, HEADER, TRANSACTIONAL, Batch, Batches

# A row for each aborted transaction: producer id and first offset. A response may list very many of them.
Aborted = npt.NDArray[np.int64] | Sequence[tuple[int, int]]

ABORT_MARKER = 0  # the type of a control record; a commit marker is 1


def flag_data(batches: Sequence[Batch] | Batches, aborted: Aborted) -> Iterable[tuple[Batch, bool]]:
    """Return each batch with True if it holds data that a reader should see.

    Control batches, batches that compaction has emptied and batches of aborted transactions hold none. `aborted` is the
    fetch response's list of aborted transactions, in any order: from its first offset to the abort marker, transactional
    batches of that producer are aborted. It is empty for a fetch that reads uncommitted records.
    """
    if all(not batch.attributes & (CONTROL | TRANSACTIONAL) and batch.count for batch in batches):
        return zip(batches, repeat(True))
    return flag_transactions(batches, aborted)


def flag_transactions(batches: Sequence[Batch] | Batches, aborted: Aborted) -> Iterator[tuple[Batch, bool]]:
    """Do the same as `flag_data` for batches some of which hold no data; look at each of them when its turn comes."""
    not_begun = _by_first_offset(aborted, batches) if len(aborted) else None
    aborting: set[int] = set()  # producer ids inside an aborted transaction
    for batch in batches:
        if not_begun is not None and not_begun[0, 1] <= batch.base_offset:
            begun = int(np.searchsorted(not_begun[:, 1], batch.base_offset, side="right"))
            aborting.update(np.unique(not_begun[:begun, 0]).tolist())
            not_begun = not_begun[begun:] if begun < len(not_begun) else None
        if batch.is_control:
            if batch.count and batch.producer_id in aborting and _marker_type(batch) == ABORT_MARKER:
                aborting.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, batch.count > 0 and not (batch.is_transactional and batch.producer_id in aborting)


def _by_first_offset(aborted: Aborted, batches: Sequence[Batch] | Batches) -> npt.NDArray[np.int64] | None:
    """Return the aborted transactions sorted by their first offset, if any of them concerns these batches."""
    rows = np.asarray(aborted, np.int64)
    if len(rows) > len(batches):
        rows = rows[np.isin(rows[:, 0], list({batch.producer_id for batch in batches}))]
    return rows[np.argsort(rows[:, 1])] if len(rows) else None


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
