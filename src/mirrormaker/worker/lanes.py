"""Which batches can be forwarded unchanged, and with which codec the others are sent."""

from __future__ import annotations

from mirrormaker.wire.records.batch import CODEC_MASK, LOG_APPEND_TIME, Batch
from mirrormaker.wire.records.compression import LZ4, ZSTD


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
