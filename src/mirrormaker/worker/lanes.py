"""Which batches can go as they are, and which of them are not data at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CODEC_MASK, CONTROL, HEADER, LOG_APPEND_TIME, TRANSACTIONAL, Batch
from mirrormaker.wire.records.compression import LZ4, ZSTD

ABORT_MARKER = 0


def goes_as_is(batch: Batch, max_bytes: int, codec: int | None, takes_zstd: bool = True) -> bool:
    """Would a stock broker take this batch without anyone unpacking it, and is it what the user wants?

    Compaction leaves gaps in batches; LogAppendTime is the source broker's time, and a producer may not claim it.
    """
    whole = batch.last_offset - batch.base_offset + 1 == batch.count
    if not whole or batch.attributes & LOG_APPEND_TIME or len(batch.data) > max_bytes:
        return False
    came_with: int = batch.attributes & CODEC_MASK
    return goes_with(came_with, codec, takes_zstd) == came_with


def goes_with(came_with: int, wanted: int | None, takes_zstd: bool) -> int:
    """The codec to send with: what the user wants, else what it came with, if the target knows that."""
    if wanted is not None:
        return wanted
    return LZ4 if came_with == ZSTD and not takes_zstd else came_with


def committed(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterable[tuple[Batch, bool]]:
    """Each batch, and whether it is data to mirror: markers never are, nor what belongs to an aborted transaction.

    `aborted` is what the broker listed for this fetch, (producer id, first offset): from that offset to the abort marker,
    that producer's transactional batches do not count. Empty when reading uncommitted.
    """
    if all(not batch.attributes & (CONTROL | TRANSACTIONAL) and batch.count for batch in batches):
        return zip(batches, repeat(True))
    return _sorted_out(batches, aborted)


def _sorted_out(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
    waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    open_aborts: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.base_offset:
            open_aborts.add(waiting.pop()[0])
        if batch.is_control:
            if batch.count and batch.producer_id in open_aborts and _marker(batch) == ABORT_MARKER:
                open_aborts.discard(batch.producer_id)
            yield batch, False
        else:
            yield batch, batch.count > 0 and not (batch.is_transactional and batch.producer_id in open_aborts)


def _marker(batch: Batch) -> int:
    """The type in a control record's key: 0 is abort, 1 commit. Layout: length, attributes, three varints, then the key."""
    data, at = batch.data, HEADER.size
    try:
        _, at = varints.read_one(data, at)
        at += 1
        for _ in range(3):  # timestamp delta, offset delta, key length
            _, at = varints.read_one(data, at)
        return data[at + 2] << 8 | data[at + 3]
    except (BadVarint, IndexError) as error:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} is cut short") from error
