"""Record batches for tests: kafka-python writes them and reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import calc_crc32c

from mirrormaker.wire.records.arrow import to_table
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import Records, pack

NONE, GZIP, SNAPPY, LZ4, ZSTD = CODECS = range(5)
ABORT, COMMIT = 0, 1
LOG_APPEND_TIME = 0x08
NOW = 1_700_000_000_000
HEADER = 61  # bytes of a batch before its records
_MAX_SIZE = 1 << 30


class Record(NamedTuple):
    """A record as a consumer sees it, without its offset."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Written:
    """A batch as it stands in a log: its bytes, and the values that they were made of."""

    data: bytes
    base_offset: int
    leader_epoch: int
    records: tuple[Record, ...]
    transactional: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    offsets: tuple[int, ...]

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record."""
        return self.offsets[-1] if self.offsets else self.base_offset


# -- writing


def write_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: int = NONE,
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    deltas: Sequence[int] | None = None,
    append_time: int | None = None,
) -> Written:
    """Write a batch with kafka-python, and set the fields that a broker sets when it appends the batch.

    `attributes` are bits that only brokers set. `deltas` are the records' offsets from the first one, where compaction has
    left holes. `append_time` is the broker's time for a batch of a topic with LogAppendTime.
    """
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, producer_epoch, base_sequence, _MAX_SIZE)
    deltas = range(len(records)) if deltas is None else deltas
    for delta, record in zip(deltas, records, strict=True):
        builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, leader_epoch)
    if append_time is not None:
        attributes |= LOG_APPEND_TIME
        struct.pack_into(">q", data, 35, append_time)
    if attributes:
        struct.pack_into(">h", data, 21, struct.unpack_from(">h", data, 21)[0] | attributes)
        stamp_crc(data)
    return Written(
        bytes(data),
        base_offset,
        leader_epoch,
        tuple(records),
        transactional,
        producer_id,
        producer_epoch,
        base_sequence,
        tuple(base_offset + delta for delta in deltas),
    )


def stamp_crc(data: bytearray) -> None:
    """Set the CRC that matches the batch, however damaged it is."""
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))


def marker(kind: int, producer_id: int, base_offset: int) -> Written:
    """Write the control batch with which a broker ends a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return write_batch(
        [Record(0, key, value)], base_offset=base_offset, producer_id=producer_id, producer_epoch=0, attributes=0x30
    )


def emptied(written: Written) -> Written:
    """Return the header that compaction keeps of a batch without records, to remember its producer."""
    data = bytearray(written.data[:HEADER])
    struct.pack_into(">i", data, 8, HEADER - 12)
    struct.pack_into(">i", data, 57, 0)
    stamp_crc(data)
    return replace(written, data=bytes(data))


def write_tiny_records(count: int, codec: int, base_offset: int = 0, tail: bytes = b"\1\1\0") -> bytes:
    """Write a batch of very many records that are all alike: by default without key, value and headers."""
    data = np.frombuffer(tail, np.uint8)
    starts = np.zeros(count, np.int64)
    records = Records(data, starts, starts + len(tail), starts, np.full(count, NOW))
    (packed,) = pack(records, [0, count], codec)
    written = bytearray(packed)
    struct.pack_into(">q", written, 0, base_offset)
    stamp_crc(written)
    return bytes(written)


def numbered(count: int, size: int) -> list[Record]:
    """Return records with different keys, timestamps and lengths of about `size` bytes."""
    filling = b"x" * size
    return [Record(NOW + n % 1000, b"key-%d" % n, filling[: size - n % 50]) for n in range(count)]


def join(*log: Written) -> Batches:
    """Return written batches as `split` finds them in a fetched partition."""
    (batches,) = split(memoryview(b"".join(written.data for written in log)))
    assert isinstance(batches, Batches)
    return batches


# -- reading


def read_records(data: bytes | memoryview) -> tuple[Record, ...]:
    """Return the records that kafka-python finds in a batch."""
    return tuple(record for _, record in read_log(data))


def read_log(data: bytes | memoryview) -> list[tuple[int, Record]]:
    """Return the offsets and records that kafka-python finds in batches or messages."""
    return [
        # Format 0 has no timestamps.
        (r.offset, Record(-1 if r.timestamp is None else r.timestamp, r.key, r.value, tuple(r.headers)))
        for batch in MemoryRecords(bytes(data))
        for r in batch
    ]


def rows(records: Records) -> list[tuple[int, Record]]:
    """Return the offsets and records of unpacked columns, to compare them with `read_log`."""
    return [
        (row["offset"], Record(row["timestamp"], row["key"], row["value"], _pairs(row["headers"])))
        for row in to_table(records).to_pylist()
    ]


def _pairs(headers: list[dict[str, bytes]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((str(header["key"]), header["value"]) for header in headers)


Damage = Callable[[bytearray], None]  # changes the records of an answer


def move_batch(number: int, offset: int) -> Damage:
    """Return what writes another base offset, which no CRC covers, into a batch of an answer that has one of this number."""

    def damage(records: bytearray) -> None:
        (run,) = split(memoryview(records)) if records else (Batches(memoryview(records), [0]),)
        assert isinstance(run, Batches)
        if number < len(run):
            struct.pack_into(">q", records, run.bounds[number], offset)

    return damage


def flip_last_bit(records: bytearray) -> None:
    """Damage the last record of an answer."""
    records[-1] ^= 1


def times(count: int, damage: Damage) -> Damage:
    """Return damage that only the first answers have."""
    left = count

    def some(records: bytearray) -> None:
        nonlocal left
        if left:
            left -= 1
            damage(records)

    return some
