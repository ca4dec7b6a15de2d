"""Which fetched batches are data, and which of them can be forwarded unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import CODEC_MASK, CONTROL, HEADER, LOG_APPEND_TIME, TRANSACTIONAL, Batch
from mirrormaker.wire.records.compression import LZ4, ZSTD

ABORT_MARKER = 0


def can_forward(batch: Batch, max_bytes: int, codec: int | None, takes_zstd: bool = True) -> bool:
    """Return True if the target takes the batch unchanged, and its compression is the one that the user wants.

    A batch with gaps, which compaction leaves, must be unpacked. So must one with LogAppendTime: that is the source
    broker's time, and brokers refuse it from a producer.
    """
    whole = batch.last_offset - batch.base_offset + 1 == batch.count
    if not whole or batch.attributes & LOG_APPEND_TIME or len(batch.data) > max_bytes:
        return False
    batch_codec: int = batch.attributes & CODEC_MASK
    return codec_to_send(batch_codec, codec, takes_zstd) == batch_codec


def codec_to_send(batch_codec: int, wanted: int | None, takes_zstd: bool) -> int:
    """Return the wanted codec if there is one, else the batch's own; LZ4 for zstd if the target does not know that."""
    if wanted is not None:
        return wanted
    return LZ4 if batch_codec == ZSTD and not takes_zstd else batch_codec


def flag_data(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterable[tuple[Batch, bool]]:
    """Return each batch, with True if it is data to mirror: not a control batch, and not of an aborted transaction.

    `aborted` is the broker's list for this fetch, (producer id, first offset): that producer's transactional batches
    from that offset up to the abort marker are not data. It is empty when reading uncommitted.
    """
    if all(not batch.attributes & (CONTROL | TRANSACTIONAL) and batch.count for batch in batches):
        return zip(batches, repeat(True))
    return _flag_transactional(batches, aborted)


def _flag_transactional(batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> Iterator[tuple[Batch, bool]]:
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
    """Return the type in a control record's key: 0 is abort, 1 commit.

    A record is its length, its attributes, three varints (timestamp delta, offset delta, key length), and then the key.
    """
    data, at = batch.data, HEADER.size
    try:
        _, at = varints.read_one(data, at)
        at += 1
        for _ in range(3):  # timestamp delta, offset delta, key length
            _, at = varints.read_one(data, at)
        return data[at + 2] << 8 | data[at + 3]
    except (BadVarint, IndexError) as error:
        raise CorruptBatch(f"the control batch at offset {batch.base_offset} is cut short") from error
