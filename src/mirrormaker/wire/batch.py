"""The 61-byte header of a record batch (message format 2), read and rewritten in place.

    base offset q | length i | leader epoch i | magic b | crc I | attributes h | last offset delta i |
    first timestamp q | max timestamp q | producer id q | producer epoch h | base sequence i | count i

The CRC-32C covers everything from the attributes on: base offset, length and leader epoch can change without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_MAGIC = 2
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_IDENTITY = struct.Struct(">qhi")
_IDENTITY_AT = 43
_FRONT = struct.Struct(">qiibI")  # what lies before the attributes
_ATTRIBUTES = struct.Struct(">h")
_PREFIX = 12  # base offset and length: what the length field does not count

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEQUENCES = 1 << 31


class CorruptBatch(Exception):
    """Bytes that are no batch, or not the batch that was written."""


class OldFormat(Exception):
    """A message set of format 0 or 1."""


class Batch:
    """One record batch: its bytes, and the header fields that a mirror looks at."""

    __slots__ = (
        "_covered", "_crc", "_length", "attributes", "base_offset", "base_sequence", "count", "data", "last_offset",
        "leader_epoch", "max_timestamp", "producer_epoch", "producer_id",
    )  # fmt: skip

    def __init__(self, data: memoryview) -> None:
        (
            self.base_offset, self._length, self.leader_epoch, _magic, self._crc, self.attributes, delta,
            _first, self.max_timestamp, self.producer_id, self.producer_epoch, self.base_sequence, self.count,
        ) = HEADER.unpack_from(data)  # fmt: skip
        self.last_offset: int = self.base_offset + delta
        self.data = data
        self._covered = data[_ATTRIBUTES_AT:]  # by the CRC

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> str:
        number = self.attributes & CODEC_MASK
        return CODECS[number] if number < len(CODECS) else f"codec {number}"

    @property
    def last_sequence(self) -> int:
        """By offsets, not by count: compaction leaves holes but keeps both ends."""
        last: int = (self.base_sequence + self.last_offset - self.base_offset) % SEQUENCES
        return last

    def check(self) -> None:
        """Refuse bytes that are not what the producer wrote."""
        if crc32c(self._covered) != self._crc:
            raise CorruptBatch(f"the batch at offset {self.base_offset} does not match its CRC")

    def payload_checksum(self) -> int:
        """The records' bytes alone, equal on both sides of a mirror whatever the header says."""
        checksum: int = crc32c(self.data[HEADER.size :])
        return checksum

    def stamp(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Make it ours: base offset 0, our identity and number, no transaction, no delete horizon, and a CRC to match."""
        data = self.data
        _IDENTITY.pack_into(data, _IDENTITY_AT, producer_id, producer_epoch, sequence)
        if self.attributes & (TRANSACTIONAL | DELETE_HORIZON):
            _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, self.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))
        self._crc = crc32c(self._covered)
        _FRONT.pack_into(data, 0, 0, self._length, -1, _MAGIC, self._crc)


def split(records: memoryview) -> Iterator[Batch]:
    """The whole batches in a fetched slice; a broker may cut the last one short, and that rest is left out."""
    at, end = 0, len(records)
    header = HEADER.size
    while end - at > _MAGIC_AT:
        magic = records[at + _MAGIC_AT]
        if magic != _MAGIC:
            if magic > _MAGIC:
                raise CorruptBatch(f"message format {magic} does not exist")
            raise OldFormat(f"message format {magic}")
        stop = at + _PREFIX + _LENGTH.unpack_from(records, at + 8)[0]
        if stop - at < header:
            raise CorruptBatch("a batch shorter than its own header")
        if stop > end:
            return
        batch = Batch(records[at:stop])
        if batch.count < 0 or batch.last_offset < batch.base_offset:
            raise CorruptBatch(f"the batch at offset {batch.base_offset} counts backwards")
        yield batch
        at = stop
