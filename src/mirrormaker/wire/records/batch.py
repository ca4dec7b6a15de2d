"""Record batches (message format 2): their 61-byte headers, read and rewritten in place.

    base offset q | length i | leader epoch i | magic b | crc I | attributes h | last offset delta i |
    first timestamp q | max timestamp q | producer id q | producer epoch h | base sequence i | count i

The CRC-32C covers everything from the attributes on: a broker can set base offset and leader epoch without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mirrormaker.errors import BadChecksum, CorruptBatch
from mirrormaker.wire.records.compression import CODECS

HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC = 2
_MAGIC_AT, _ATTRIBUTES_AT = 16, 21
_IDENTITY = struct.Struct(">qhi")
_IDENTITY_AT = 43
_FRONT = struct.Struct(">qiibI")  # the fields before the attributes
_ATTRIBUTES = struct.Struct(">h")
_PREFIX = 12  # bytes of base offset and length, which the length does not count
SMALLEST_MESSAGE = 14  # bytes of a message of format 0, without its offset and length

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
SEQUENCES = 1 << 31  # sequence numbers run from 0 to 2^31 - 1, and then begin at 0 again


class Batch:
    """One record batch: its bytes, and the header fields that the mirror uses."""

    __slots__ = (
        "_covered_by_crc", "_crc", "_length", "attributes", "base_offset", "base_sequence", "count", "data",
        "first_timestamp", "last_offset", "leader_epoch", "max_timestamp", "producer_epoch", "producer_id",
    )  # fmt: skip

    def __init__(self, data: memoryview) -> None:
        (
            self.base_offset, self._length, self.leader_epoch, _magic, self._crc, self.attributes, delta,
            self.first_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch, self.base_sequence, self.count,
        ) = HEADER.unpack_from(data)  # fmt: skip
        self.last_offset: int = self.base_offset + delta
        self.data = data
        self._covered_by_crc = data[_ATTRIBUTES_AT:]

    @property
    def is_control(self) -> bool:
        """Return True if the batch holds a transaction marker instead of data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Return True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def codec(self) -> str:
        """Return the name of the compression codec."""
        number = self.attributes & CODEC_MASK
        return CODECS[number] if number < len(CODECS) else f"codec {number}"

    @property
    def last_sequence(self) -> int:
        """Return the sequence number of the last record.

        It follows from the offsets, not from the count: compaction leaves holes, but keeps both ends.
        """
        last: int = (self.base_sequence + self.last_offset - self.base_offset) % SEQUENCES
        return last

    def check(self) -> None:
        """Raise CorruptBatch if these are not the bytes that the producer wrote."""
        if self.count < 0 or self.last_offset < self.base_offset:
            raise CorruptBatch(f"the batch at offset {self.base_offset} has a negative record count or offset delta")
        if crc32c(self._covered_by_crc) != self._crc:
            raise BadChecksum(f"the batch at offset {self.base_offset} does not match its CRC")

    def stamp(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Rewrite the header for the target: base offset 0, this identity and sequence number, and a CRC that matches.

        The batch is no longer part of a transaction, and has no delete horizon.
        """
        data = self.data
        _IDENTITY.pack_into(data, _IDENTITY_AT, producer_id, producer_epoch, sequence)
        if self.attributes & (TRANSACTIONAL | DELETE_HORIZON):
            _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, self.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))
        self._crc = crc32c(self._covered_by_crc)
        _FRONT.pack_into(data, 0, 0, self._length, -1, _MAGIC, self._crc)


_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")
_HEADERS = np.dtype(
    [
        ("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"),
        ("attributes", ">i2"), ("last_offset_delta", ">i4"), ("first_timestamp", ">i8"), ("max_timestamp", ">i8"),
        ("producer_id", ">i8"), ("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("count", ">i4"),
    ]
)  # fmt: skip

_ROWS = 1 << 14  # batches that are found, or headers that are read, at a time: 10 to 20 ms
_HIGHEST_BASE_OFFSET = (1 << 63) - (1 << 32)  # the offsets of all records of a batch must fit into 64 bits


class Batches:
    """Batches that lie one after the other in memory: a sequence of `Batch`, with the headers also as columns.

    Batch i is data[bounds[i]:bounds[i + 1]].
    """

    __slots__ = ("_headers", "bounds", "data")

    def __init__(self, data: memoryview, bounds: list[int]) -> None:
        self.data, self.bounds = data, bounds
        self._headers: npt.NDArray[np.void] | None = None

    @classmethod
    def of(cls, batch: Batch) -> Batches:
        """Return a sequence of one batch."""
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
        """Return the batches from `start` up to, but not including, `stop`."""
        part = Batches(self.data, self.bounds[start : stop + 1])
        if self._headers is not None:
            part._headers = self._headers[start:stop]
        return part

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """Return `data` as a numpy array."""
        return np.frombuffer(self.data, np.uint8)

    @property
    def headers(self) -> npt.NDArray[np.void]:
        """Return the header fields of all batches as the columns of a structured array."""
        for _ in self.read_headers():
            pass
        assert self._headers is not None
        return self._headers

    def read_headers(self) -> Iterator[None]:
        """Read the header fields in steps; yield after each of them."""
        if self._headers is None:
            data, at, width = self.array, np.array(self.bounds[:-1], np.int64), np.arange(HEADER.size)
            rows = []
            # The places of all bytes take eight times as much memory as the bytes: not too many at a time.
            for n in range(0, len(at) or 1, _ROWS):
                rows.append(data[at[n : n + _ROWS, None] + width])
                yield
            headers = (rows[0] if len(rows) == 1 else np.concatenate(rows)).view(_HEADERS)[:, 0]
            is_negative = (headers["count"] < 0) | (headers["last_offset_delta"] < 0)
            if (is_negative | (headers["base_offset"] > _HIGHEST_BASE_OFFSET)).any():
                raise CorruptBatch(
                    f"a batch at or after offset {self.first_offset} has an impossible record count or offset"
                )
            self._headers = headers

    @property
    def first_offset(self) -> int:
        """Return the base offset of the first batch."""
        offset: int = self[0].base_offset
        return offset

    @property
    def size(self) -> int:
        """Return the size of all batches in bytes."""
        return self.bounds[-1] - self.bounds[0]

    def check(self) -> None:
        """Raise CorruptBatch if any batch is not what its producer wrote."""
        data, start = self.data, self.bounds[0]
        for index, (stop, crc) in enumerate(zip(self.bounds[1:], self.headers["crc"].tolist(), strict=True)):
            if crc32c(data[start + _ATTRIBUTES_AT : stop]) != crc:
                raise BadChecksum(f"the batch at offset {self[index].base_offset} does not match its CRC")
            start = stop


# Batches or messages of one format that lie one after the other. Messages of format 0 and 1 are plain bytes: see `legacy`.
Run = Batches | memoryview


def split(records: memoryview) -> Iterator[Run]:
    """Yield the batches that were fetched from a partition, in runs of the same format.

    A broker may cut off the last batch at the fetch size. Such a rest is left out.
    """
    return (run for run in split_in_steps(records) if run is not None)


def split_in_steps(records: memoryview) -> Iterator[Run | None]:
    """Do the same as `split`, and also yield None after some thousand batches each, so that others can have their turn."""
    at, end = 0, len(records)
    bounds, was_old = [0], False
    unpack = _LENGTH_AND_MAGIC.unpack_from
    while end - at > _MAGIC_AT:
        length, magic = unpack(records, at)
        old = magic != _MAGIC
        if old and magic not in (0, 1):
            raise CorruptBatch(f"message format {magic} does not exist")
        if length < (SMALLEST_MESSAGE if old else HEADER.size - _PREFIX):
            raise CorruptBatch("a batch is shorter than its own header")
        stop = at + _PREFIX + length
        if stop > end:
            break
        if old is not was_old:
            if len(bounds) > 1:
                yield _run(records, bounds, was_old)
            bounds, was_old = [at], old
        bounds.append(stop)
        at = stop
        if not len(bounds) % _ROWS:
            yield None
    if len(bounds) > 1:
        yield _run(records, bounds, was_old)


def size_of(run: Run) -> int:
    """Return the size of a run in bytes."""
    return run.size if isinstance(run, Batches) else len(run)


def joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of several fetches as if one fetch had brought them. This copies, so it is meant for small runs."""
    parts = [run.data[run.bounds[0] : run.bounds[-1]] if isinstance(run, Batches) else run for run in runs]
    return list(split(memoryview(bytearray().join(parts))))


def _run(records: memoryview, bounds: list[int], old: bool) -> Run:
    return records[bounds[0] : bounds[-1]] if old else Batches(records, bounds)
