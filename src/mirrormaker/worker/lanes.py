"""Which batches can go as they are, and with which codec the others go."""

from __future__ import annotations

from mirrormaker.wire.records.batch import CODEC_MASK, LOG_APPEND_TIME, Batch
from mirrormaker.wire.records.compression import LZ4, ZSTD


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
