"""Message formats 0 and 1, which brokers before 0.11 use, and which topics of newer brokers may still contain.

    offset q | size i | crc I | magic b | attributes b | timestamp q (format 1) | key length i | key | value length i | value

The value of a compressed message, the *wrapper*, is a set of messages of the same format. In format 1 their offsets count from
0, and the wrapper has the offset of the last one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from mirrormaker.errors import BadChecksum, BadCompression, CorruptBatch
from mirrormaker.wire.records.arrow import from_columns, slices, to_table
from mirrormaker.wire.records.batch import CODEC_MASK, LOG_APPEND_TIME, SMALLEST_MESSAGE, Batch, Batches
from mirrormaker.wire.records.columns import Records
from mirrormaker.wire.records.columns import unpack as unpack_batches
from mirrormaker.wire.records.compression import GZIP, LZ4, NONE, ZSTD, compress, decompress, fix_lz4_header_checksum
from mirrormaker.wire.records.varints import Data, Ints

_SIZE = struct.Struct(">8xi")
_PREFIX = 12
_ATTRIBUTES_AT = 17
_CRC = struct.Struct(">I")
_FRONT = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1"), ("timestamp", ">i8")]
)
_KEY_AT = np.array([18, 26])  # the place of the key's length in format 0 and in format 1
# Messages and bytes of a piece: a piece of the smallest messages takes some 10 MB as columns, and some 50 ms.
_MOST_MESSAGES, _ENOUGH = 1 << 15, 4 << 20
# A batch with more records or bytes is not converted for an old target as a whole: it is refused, and goes again in parts.
# A record alone cannot be split any further.
_MOST_CONVERTED, _MAX_CONVERTED, _MAX_SINGLE = 1 << 17, 32 << 20, 1 << 30

# Some records of a message set, and how many bytes of the set they took.
Piece = tuple[Records, int]

_NO_NUMBERS: Ints = np.empty(0, np.int64)
_NOTHING_YET: Piece = Records(np.empty(0, np.uint8), _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS), 0


class _Messages:
    """The fields of consecutive messages, as columns."""

    def __init__(self, data: memoryview, starts: Ints, end: int) -> None:
        """Decode the messages that begin at these places; the last one goes up to `end`."""
        first = int(starts[0])
        self.data: Data = np.frombuffer(data[first:end], np.uint8)
        self.starts = starts - first
        self.ends = np.append(self.starts[1:], end - first)
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

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        """Return the bytes of all messages."""
        return len(self.data)

    def _field(self, at: Ints) -> tuple[Ints, Ints]:
        """Return where the fields whose lengths stand at these places start, and the lengths."""
        if len(at) and bool((at + 4 > self.ends).any()):
            raise CorruptBatch("a message is shorter than its own fields")
        size = self.data[at[:, None] + np.arange(4)].view(">i4")[:, 0].astype(np.int64)
        if len(at) and (int(size.min()) < -1 or bool((at + 4 + np.maximum(size, 0) > self.ends).any())):
            raise CorruptBatch("a message's key or value is longer than the message")
        return at + 4, size

    def check(self) -> None:
        """Raise BadChecksum if a message does not match its CRC."""
        raw = self.data.data
        for start, end, crc in zip(self.starts.tolist(), self.ends.tolist(), self.crcs.tolist(), strict=True):
            if zlib.crc32(raw[start + _PREFIX + _CRC.size : end]) != crc:
                raise BadChecksum(f"the message at offset {_offset(raw, start)} does not match its CRC")

    def records(self, which: slice = slice(None)) -> Records:
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


def unpack(data: memoryview, limit: int) -> Iterator[Piece]:
    """Yield the records of a message set, in pieces, each with its share of the set's bytes.

    A compressed message may take `limit` bytes decompressed, and is not decompressed before its turn. So the pieces of a
    set may be large together, but a caller who lets go of each needs memory for one compressed message at a time. A piece
    may have no records: then nothing is there yet, and the caller may do something else meanwhile.
    """
    before = np.iinfo(np.int64).min
    for records, size in _pieces(data, limit):
        offsets = records.offsets
        if len(offsets):
            if offsets[0] <= before or bool((np.diff(offsets) <= 0).any()):
                raise CorruptBatch(f"the offsets of the messages from offset {offsets[0]} on do not increase")
            before = offsets[-1]
        yield records, size


def _pieces(data: memoryview, limit: int) -> Iterator[Piece]:
    for starts, end in _chunks(data):
        messages = _Messages(data, starts, end)
        messages.check()
        codecs = messages.attributes & CODEC_MASK
        done = 0
        for index in [*np.flatnonzero(codecs != NONE).tolist(), len(messages)]:
            if index > done:
                size = int(messages.ends[index - 1] - messages.starts[done])
                yield messages.records(slice(done, index)), size
            if index < len(messages):
                yield from _unwrap(messages, index, int(codecs[index]), limit)
            done = index + 1


def _chunks(data: memoryview) -> Iterator[tuple[Ints, int]]:
    """Yield where messages begin, and where the last one of them ends: a bounded number of messages at a time."""
    starts: list[int] = []
    at = 0
    while len(data) - at >= _PREFIX:
        (size,) = _SIZE.unpack_from(data, at)
        stop = at + _PREFIX + size
        if size < SMALLEST_MESSAGE or stop > len(data):
            raise CorruptBatch("a message is longer or shorter than its size says")
        starts.append(at)
        at = stop
        if len(starts) == _MOST_MESSAGES or at - starts[0] >= _ENOUGH:
            yield np.array(starts, np.int64), at
            starts = []
    if starts:
        yield np.array(starts, np.int64), at


def _unwrap(outer: _Messages, index: int, codec: int, limit: int) -> Iterator[Piece]:
    """Yield the records inside of a compressed message."""
    offset, magic = int(outer.offsets[index]), int(outer.magic[index])
    start, size = int(outer.value[index]), int(outer.value_size[index])
    if size < 0:
        raise CorruptBatch(f"the compressed message at offset {offset} is empty")
    if codec == ZSTD:
        raise CorruptBatch(f"the message at offset {offset} is compressed with zstd, which its format does not have")
    packed: bytes | bytearray | memoryview = outer.data.data[start : start + size]
    if codec == LZ4 and magic == 0:
        packed = fix_lz4_header_checksum(packed)
    try:
        plain = memoryview(decompress(codec, packed, limit))
    except BadCompression as error:
        raise CorruptBatch(f"the message at offset {offset}: {error}") from error
    chunks: list[tuple[Ints, int]] = []
    for chunk in _chunks(plain):
        if chunks:
            yield _NOTHING_YET
        chunks.append(chunk)
    if not chunks:
        raise CorruptBatch(f"the compressed message at offset {offset} holds nothing")
    # In format 1 the last message inside has the wrapper's offset, and the others count from it.
    last = _offset(plain, int(chunks[-1][0][-1])) if magic == 1 else offset
    if not 0 <= last <= offset:
        raise CorruptBatch(f"the compressed message at offset {offset} holds messages with impossible offsets")
    for starts, end in chunks:
        inner = _Messages(plain, starts, end)
        if bool((inner.attributes & CODEC_MASK).any()):
            raise CorruptBatch(f"the compressed message at offset {offset} holds compressed messages")
        inner.offsets += offset - last
        if magic == 1 and outer.attributes[index] & LOG_APPEND_TIME:
            inner.timestamps = np.full(len(inner), int(outer.timestamps[index]))
        yield inner.records(), size * inner.size // len(plain)


def to_message_set(batch: Batch, magic: int) -> bytes:
    """Convert a batch to messages of format 0 or 1, for targets before 0.11.

    These formats have no headers, and format 0 has no timestamps. The conversion is not meant to be fast.
    """
    is_single = batch.count == 1
    if batch.count > _MOST_CONVERTED:
        raise CorruptBatch(f"a batch of {batch.count} records is too large to be converted to an old format")
    table = to_table(unpack_batches(Batches.of(batch), _MAX_SINGLE if is_single else _MAX_CONVERTED))
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
