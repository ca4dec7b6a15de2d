"""The 61-byte header of a record batch (message format 2), read and rewritten in place.

    base offset q | length i | leader epoch i | magic b | crc I | attributes h | last offset delta i |
    first timestamp q | max timestamp q | producer id q | producer epoch h | base sequence i | count i

The CRC-32C covers everything from the attributes on: base offset, length and leader epoch can change without it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.compression import CODECS

HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_MAGIC = 2
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_IDENTITY = struct.Struct(">qhi")
_IDENTITY_AT = 43
_FRONT = struct.Struct(">qiibI")  # what lies before the attributes
_ATTRIBUTES = struct.Struct(">h")
_PREFIX = 12  # base offset and length: what the length field does not count
SMALLEST_MESSAGE = 14  # of format 0, after offset and length

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
SEQUENCES = 1 << 31


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
        if self.count < 0 or self.last_offset < self.base_offset:
            raise CorruptBatch(f"the batch at offset {self.base_offset} counts backwards")
        if crc32c(self._covered) != self._crc:
            raise CorruptBatch(f"the batch at offset {self.base_offset} does not match its CRC")

    def stamp(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Make it ours: base offset 0, our identity and number, no transaction, no delete horizon, and a CRC to match."""
        data = self.data
        _IDENTITY.pack_into(data, _IDENTITY_AT, producer_id, producer_epoch, sequence)
        if self.attributes & (TRANSACTIONAL | DELETE_HORIZON):
            _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, self.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))
        self._crc = crc32c(self._covered)
        _FRONT.pack_into(data, 0, 0, self._length, -1, _MAGIC, self._crc)


_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")
_HEADERS = np.dtype(
    [
        ("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"),
        ("attributes", ">i2"), ("last_offset_delta", ">i4"), ("first_timestamp", ">i8"), ("max_timestamp", ">i8"),
        ("producer_id", ">i8"), ("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("count", ">i4"),
    ]
)  # fmt: skip


class Batches:
    """Batches that follow each other in memory. Each can be had alone; their headers can be had as columns."""

    __slots__ = ("_headers", "bounds", "data")

    def __init__(self, data: memoryview, bounds: list[int]) -> None:
        self.data, self.bounds = data, bounds
        self._headers: npt.NDArray[np.void] | None = None

    @classmethod
    def of(cls, batch: Batch) -> Batches:
        return cls(batch.data, [0, len(batch.data)])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> Batch:
        return Batch(self.data[self.bounds[index] : self.bounds[index + 1]])

    def __iter__(self) -> Iterator[Batch]:
        data, start = self.data, self.bounds[0]
        for stop in self.bounds[1:]:
            yield Batch(data[start:stop])
            start = stop

    def part(self, start: int, stop: int) -> Batches:
        """Some of them."""
        part = Batches(self.data, self.bounds[start : stop + 1])
        if self._headers is not None:
            part._headers = self._headers[start:stop]
        return part

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8)

    @property
    def headers(self) -> npt.NDArray[np.void]:
        if self._headers is None:
            at = np.array(self.bounds[:-1], np.int64)
            rows: npt.NDArray[np.uint8] = self.array[at[:, None] + np.arange(HEADER.size)]
            headers = rows.view(_HEADERS)[:, 0]
            if ((headers["count"] < 0) | (headers["last_offset_delta"] < 0)).any():
                raise CorruptBatch(f"a batch from offset {self.first_offset} on counts backwards")
            self._headers = headers
        return self._headers

    @property
    def first_offset(self) -> int:
        offset: int = self[0].base_offset
        return offset

    @property
    def size(self) -> int:
        return self.bounds[-1] - self.bounds[0]

    def check(self) -> None:
        """As `Batch.check`, for all."""
        data, start = self.data, self.bounds[0]
        for index, (stop, crc) in enumerate(zip(self.bounds[1:], self.headers["crc"].tolist(), strict=True)):
            if crc32c(data[start + _ATTRIBUTES_AT : stop]) != crc:
                raise CorruptBatch(f"the batch at offset {self[index].base_offset} does not match its CRC")
            start = stop


def split(records: memoryview) -> Iterator[Batches | memoryview]:
    """The whole batches in a fetched slice; a broker may cut the last one short, and that rest is left out.

    Where a log has messages of format 0 or 1, those come as the bytes that they are.
    """
    at, end = 0, len(records)
    bounds, was_old = [0], False
    unpack = _LENGTH_AND_MAGIC.unpack_from
    while end - at > _MAGIC_AT:
        length, magic = unpack(records, at)
        old = magic != _MAGIC
        if old and magic not in (0, 1):
            raise CorruptBatch(f"message format {magic} does not exist")
        if length < (SMALLEST_MESSAGE if old else HEADER.size - _PREFIX):
            raise CorruptBatch("a batch shorter than its own header")
        stop = at + _PREFIX + length
        if stop > end:
            break
        if old is not was_old:
            if len(bounds) > 1:
                yield _run(records, bounds, was_old)
            bounds, was_old = [at], old
        bounds.append(stop)
        at = stop
    if len(bounds) > 1:
        yield _run(records, bounds, was_old)


def size_of(run: Batches | memoryview) -> int:
    return run.size if isinstance(run, Batches) else len(run)


def joined(runs: Sequence[Batches | memoryview]) -> list[Batches | memoryview]:
    """What several slices brought, as if it were one: copied, so meant for what is small."""
    parts = [r.data[r.bounds[0] : r.bounds[-1]] if isinstance(r, Batches) else r for r in runs]
    return list(split(memoryview(bytearray().join(parts))))


def _run(records: memoryview, bounds: list[int], old: bool) -> Batches | memoryview:
    return records[bounds[0] : bounds[-1]] if old else Batches(records, bounds)
