"""Messages of formats 0 and 1 for tests: kafka-python writes them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import kafka.codec
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.support.batches import GZIP, LOG_APPEND_TIME, LZ4, NONE, NOW, SNAPPY, Record


def write_messages(
    log: Sequence[Record], magic: int, codec: int = NONE, base_offset: int = 0, append_time: int | None = None
) -> bytes:
    """Write a message set as it stands in a broker's log: a wrapper has the last offset, and maybe the broker's time."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    for number, record in enumerate(log):
        # Inside of a wrapper of format 1 the offsets count from 0; all others are offsets in the log.
        relative = magic == 1 and codec != NONE
        builder.append(number if relative else base_offset + number, record.timestamp, record.key, record.value)
    data = bytearray(builder.build())
    if codec != NONE:
        struct.pack_into(">q", data, 0, base_offset + len(log) - 1)
    if append_time is not None:
        data[17] |= LOG_APPEND_TIME
        struct.pack_into(">q", data, 18, append_time)
        stamp_message_crc(data)
    return bytes(data)


def stamp_message_crc(message: bytearray) -> None:
    """Set the CRC that matches the message."""
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))


def wrap_messages(inner: bytes, magic: int, codec: int, offset: int = 9) -> bytes:
    """Wrap any bytes into a compressed message."""
    encode = {
        GZIP: kafka.codec.gzip_encode,
        SNAPPY: kafka.codec.snappy_encode,
        LZ4: kafka.codec.lz4_encode_old_kafka if magic == 0 else kafka.codec.lz4_encode,
    }
    data = bytearray(write_messages([Record(NOW, None, encode[codec](inner))], magic, base_offset=offset))
    data[17] |= codec
    stamp_message_crc(data)
    return bytes(data)
