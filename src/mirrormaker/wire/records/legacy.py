"""Message formats 0 and 1, which brokers before 0.11 use, and which topics of newer brokers may still contain.

    offset q | size i | crc I | magic b | attributes b | timestamp q (format 1) | key length i | key | value length i | value

The value of a compressed message, the *wrapper*, is a set of messages of the same format. In format 1 their offsets count from
0, and the wrapper has the offset of the last one.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa

from mirrormaker.errors import BadCompression, CorruptBatch
from mirrormaker.wire.records.arrow import from_columns, slices, to_table
from mirrormaker.wire.records.batch import CODEC_MASK, LOG_APPEND_TIME, SMALLEST_MESSAGE, Batch, Batches
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.columns import unpack as unpack_batches
from mirrormaker.wire.records.compression import GZIP, LZ4, NONE, compress, decompress, fix_lz4_header_checksum
from mirrormaker.wire.records.varints import Data, Ints

_SIZE = struct.Struct(">8xi")
_PREFIX = 12
_ATTRIBUTES_AT = 17
_CRC = struct.Struct(">I")
_FRONT = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1"), ("timestamp", ">i8")]
)
_KEY_AT = np.array([18, 26])  # the place of the key's length in format 0 and in format 1


class _Messages:
    """The fields of a set of messages, as columns."""

    def __init__(self, data: memoryview) -> None:
        self.data: Data = np.frombuffer(data, np.uint8)
        starts, at = [], 0
        while len(data) - at >= _PREFIX:
            (size,) = _SIZE.unpack_from(data, at)
            stop = at + _PREFIX + size
            if size < SMALLEST_MESSAGE or stop > len(data):
                raise CorruptBatch("a message is longer or shorter than its size says")
            starts.append(at)
            at = stop
        self.starts = np.array(starts, np.int64)
        self.ends = np.array([*starts[1:], at] if starts else [], np.int64)
        # A message of format 0 at the end may be shorter than the front of format 1.
        padded = np.concatenate([self.data, np.zeros(_FRONT.itemsize, np.uint8)])
        front = padded[self.starts[:, None] + np.arange(_FRONT.itemsize)].view(_FRONT)[:, 0]
        self.offsets = front["offset"].astype(np.int64)
        self.crcs, self.magic = front["crc"], front["magic"].astype(np.int64)
        self.attributes = front["attributes"]
        if bool(((self.magic != 0) & (self.magic != 1)).any()):
            raise CorruptBatch("a message set contains a message that is neither of format 0 nor of format 1")
        self.timestamps = np.where(self.magic == 1, front["timestamp"].astype(np.int64), -1)
        self.key, self.key_size = self._field(self.starts + _KEY_AT[self.magic])
        self.value, self.value_size = self._field(self.key + np.maximum(self.key_size, 0))

    def _field(self, at: Ints) -> tuple[Ints, Ints]:
        """Return where the fields whose lengths stand at these places start, and the lengths."""
        if len(at) and bool((at + 4 > self.ends).any()):
            raise CorruptBatch("a message is shorter than its own fields")
        size = self.data[at[:, None] + np.arange(4)].view(">i4")[:, 0].astype(np.int64)
        if len(at) and (int(size.min()) < -1 or bool((at + 4 + np.maximum(size, 0) > self.ends).any())):
            raise CorruptBatch("a message's key or value is longer than the message")
        return at + 4, size

    def check(self) -> None:
        """Raise CorruptBatch if a message does not match its CRC."""
        raw = self.data.data
        for start, end, crc in zip(self.starts.tolist(), self.ends.tolist(), self.crcs.tolist(), strict=True):
            if zlib.crc32(raw[start + _PREFIX + _CRC.size : end]) != crc:
                raise CorruptBatch(f"the message at offset {_offset(raw, start)} does not match its CRC")

    def records(self, which: slice) -> Records:
        """Return some of the messages as records."""
        return from_columns(
            pa.array(self.offsets[which]), pa.array(self.timestamps[which]),
            slices(self.data, self.key[which], self.key_size[which]),
            slices(self.data, self.value[which], self.value_size[which]),
        )  # fmt: skip


def _offset(raw: memoryview, start: int) -> int:
    return int.from_bytes(raw[start : start + 8], "big", signed=True)


def codec_of_first(data: memoryview) -> int:
    """Return the compression codec of the first message of a set."""
    return data[_ATTRIBUTES_AT] & CODEC_MASK


def last_offset(data: memoryview) -> int:
    """Return the offset of the last message of a set."""
    at = offset = 0
    while at < len(data):
        offset = _offset(data, at)
        at += _PREFIX + _SIZE.unpack_from(data, at)[0]
    return offset


def unpack(data: memoryview, limit: int) -> list[Records]:
    """Return the records of a message set, in several pieces. A compressed message may take `limit` bytes decompressed."""
    messages = _Messages(data)
    messages.check()
    codecs = messages.attributes & CODEC_MASK
    wrappers = np.flatnonzero(codecs != NONE).tolist()
    pieces: list[Records] = []
    done = 0
    for index in wrappers:
        if index > done:
            pieces.append(messages.records(slice(done, index)))
        pieces.append(_unwrap(messages, index, int(codecs[index]), limit))
        done = index + 1
    if done < len(codecs):
        pieces.append(messages.records(slice(done, len(codecs))))
    return pieces


def _unwrap(outer: _Messages, index: int, codec: int, limit: int) -> Records:
    """Return the records inside of a compressed message."""
    offset, magic = int(outer.offsets[index]), int(outer.magic[index])
    start, size = int(outer.value[index]), int(outer.value_size[index])
    if size < 0:
        raise CorruptBatch(f"the compressed message at offset {offset} is empty")
    packed: bytes | bytearray | memoryview = outer.data.data[start : start + size]
    if codec == LZ4 and magic == 0:
        packed = fix_lz4_header_checksum(packed)
    try:
        inner = _Messages(memoryview(decompress(codec, packed, limit)))
    except BadCompression as error:
        raise CorruptBatch(f"the message at offset {offset}: {error}") from error
    if not len(inner.starts):
        raise CorruptBatch(f"the compressed message at offset {offset} holds nothing")
    if bool((inner.attributes & CODEC_MASK).any()):
        raise CorruptBatch(f"the compressed message at offset {offset} holds compressed messages")
    if magic == 1:
        inner.offsets = inner.offsets - inner.offsets[-1] + outer.offsets[index]
        if outer.attributes[index] & LOG_APPEND_TIME:
            inner.timestamps = np.full(len(inner.starts), int(outer.timestamps[index]))
    return inner.records(slice(None))


def to_message_set(batch: Batch, magic: int) -> bytes:
    """Convert a batch to messages of format 0 or 1, for targets before 0.11.

    These formats have no headers, and format 0 has no timestamps. The conversion is not meant to be fast.
    """
    table = to_table(unpack_batches(Batches.of(batch)))
    columns = (table.column(name).to_pylist() for name in ("timestamp", "key", "value"))
    inner = b"".join(_message(offset, magic, NONE, *fields) for offset, fields in enumerate(zip(*columns, strict=True)))
    codec = batch.attributes & CODEC_MASK
    if codec == NONE:
        return inner
    # LZ4 frames in format 0 must have a wrong checksum: see `fix_lz4_header_checksum`.
    if codec == LZ4 and magic == 0:
        codec = GZIP
    return _message(table.num_rows - 1, magic, codec, batch.max_timestamp, None, bytes(compress(codec, inner)))


def _message(offset: int, magic: int, codec: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = struct.pack(">bbq", magic, codec, timestamp) if magic else struct.pack(">bb", magic, codec)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + _CRC.size, zlib.crc32(body)) + body
