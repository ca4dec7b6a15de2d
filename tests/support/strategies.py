"""Records, batches and the contents of fetches and produces, as Hypothesis draws them; kafka-python writes the bytes."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple

from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import calc_crc32c

from mirrormaker.wire.protocol.fetch import Fetched, Wanted
from mirrormaker.wire.protocol.produce import Appended

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ABORT, COMMIT = 0, 1
LOG_APPEND_TIME = 0x08
BIG = 1 << 30
HEADER = 61  # bytes of a batch before its records

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.integers(0, (1 << 62) - 1)
epochs = st.integers(-1, (1 << 31) - 1)
sequences = st.integers(0, (1 << 31) - 1)
names = st.text("abXY09._-äß漢😀", min_size=1, max_size=20)


# -- records and batches


class Record(NamedTuple):
    """What a reader of a topic sees."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Written:
    """A batch as it stands in a log: its bytes, and what they were made of."""

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
        return self.offsets[-1] if self.offsets else self.base_offset


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
    """A batch from kafka-python's own builder, at its place in a log.

    `attributes` are bits that only brokers set; `deltas` are the records' offsets from the first, where compaction left
    holes; `append_time` is when a broker got a batch of a topic with LogAppendTime.
    """
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer_id, producer_epoch, base_sequence, BIG)
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
    """Make the CRC match, whatever else the batch says."""
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))


def marker(kind: int, producer_id: int, base_offset: int) -> Written:
    """The control batch that ends a transaction, as a broker writes it."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return write_batch(
        [Record(0, key, value)], base_offset=base_offset, producer_id=producer_id, producer_epoch=0, attributes=0x30
    )


def emptied(written: Written) -> Written:
    """What compaction leaves of a batch whose records are all gone: the header alone, to remember its producer by."""
    data = bytearray(written.data[:HEADER])
    struct.pack_into(">i", data, 8, HEADER - 12)
    struct.pack_into(">i", data, 57, 0)
    stamp_crc(data)
    return replace(written, data=bytes(data))


def read_records(data: bytes | memoryview) -> tuple[Record, ...]:
    """kafka-python's opinion of what is in a batch."""
    return tuple(record for _, record in read_log(data))


def read_log(data: bytes | memoryview) -> list[tuple[int, Record]]:
    """kafka-python's opinion of what is in some batches or messages: offsets and records."""
    return [
        # Format 0 has no timestamps.
        (r.offset, Record(-1 if r.timestamp is None else r.timestamp, r.key, r.value, tuple(r.headers)))
        for batch in MemoryRecords(bytes(data))
        for r in batch
    ]


# -1 is "no timestamp"; others below zero are odd, but brokers take them.
timestamps = st.one_of(st.just(-1), st.integers(-(1 << 40), 1 << 45), st.integers(1_500_000_000_000, 1_800_000_000_000))
payloads = st.one_of(
    st.none(), st.binary(max_size=40), st.builds(bytes.__mul__, st.binary(min_size=1, max_size=4), st.integers(1, 200))
)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=10)), max_size=3).map(tuple)
records = st.builds(Record, timestamps, payloads, payloads, headers)


@st.composite
def batches(draw: st.DrawFn, base_offset: int | None = None) -> Written:
    transactional = draw(st.booleans())
    has_id = transactional or draw(st.booleans())
    rows = draw(st.lists(records, min_size=1, max_size=5))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 200]), min_size=len(rows) - 1, max_size=len(rows) - 1))
    return write_batch(
        rows,
        base_offset=draw(st.integers(0, 1 << 60)) if base_offset is None else base_offset,
        leader_epoch=draw(epochs),
        codec=draw(st.sampled_from([NONE, GZIP, SNAPPY, LZ4, ZSTD])),
        transactional=transactional,
        producer_id=draw(st.integers(0, (1 << 63) - 1)) if has_id else -1,
        producer_epoch=draw(st.integers(0, (1 << 15) - 1)) if has_id else -1,
        base_sequence=draw(sequences) if has_id else -1,
        attributes=draw(st.sampled_from([0, 0, 0x40])),  # a delete horizon: compaction has been here
        deltas=list(accumulate([0, *steps])),
    )


@st.composite
def logs(draw: st.DrawFn, max_size: int = 4) -> list[Written]:
    """A few batches one after the other, with the gaps that compaction leaves between them."""
    log: list[Written] = []
    end = draw(st.integers(0, 1 << 60))
    for _ in range(draw(st.integers(0, max_size))):
        log.append(draw(batches(base_offset=end + draw(st.integers(0, 3)))))
        end = log[-1].last_offset + 1
    return log


# Payloads that look like what lies around them: zeros and the bytes that go on, records, and whole batches.
look_alikes = st.lists(st.sampled_from([0, 0, 0, 2, 8, 0x7F, 0x80, 0xC0, 0xFF]), max_size=60).map(bytes)
disguises = st.one_of(
    st.none(),
    look_alikes,
    batches().map(lambda written: written.data),
    st.builds(lambda written, end: written.data[HEADER:] + end, batches(), look_alikes),
)
disguised = st.builds(
    Record, timestamps, disguises, disguises, st.lists(st.tuples(names, disguises), max_size=2).map(tuple)
)


# -- what goes into a fetch, and what comes back

ids = st.uuids().map(lambda u: u.bytes)
wanted = st.builds(Wanted, st.integers(0, 1 << 20), offsets, epochs, epochs, st.integers(0, (1 << 31) - 1))
fetch_topics = st.lists(st.tuples(names, ids, st.lists(wanted, max_size=3)), max_size=3)
limits = st.fixed_dictionaries(
    {
        "max_wait_ms": st.integers(0, (1 << 31) - 1),
        "min_bytes": st.integers(0, (1 << 31) - 1),
        "max_bytes": st.integers(0, (1 << 31) - 1),
        "read_committed": st.booleans(),
    }
)
endpoints = st.lists(st.tuples(int32, names, int32, st.none() | names), max_size=2, unique_by=lambda e: e[0])


class FetchAnswer(NamedTuple):
    """An answer to a fetch: what a reader wants from it, and what else a broker may put there."""

    error: int
    topics: list[tuple[str, bytes, list[Fetched]]]
    current_leader: tuple[int, int] | None
    endpoints: list[tuple[int, str, int, str | None]]

    def expected(self, version: int) -> tuple[int, list[tuple[Any, ...]]]:
        """The part that survives a version: ids from 13 on, names before; some fields are younger than others."""
        parts = []
        for name, topic_id, fetched in self.topics:
            for part in fetched:
                part = part._replace(topic=topic_id if version >= 13 else name)
                if version < 5:
                    part = part._replace(log_start=-1)
                if version < 4:
                    part = part._replace(stable_offset=part.high_watermark, aborted=[])
                if version < 12:
                    part = part._replace(diverging=None)
                parts.append(plain(part))
        return self.error if version >= 7 else 0, parts


def plain(part: Fetched) -> tuple[Any, ...]:
    """Comparable by value: records as bytes."""
    return (*part[:-3], list(part.aborted), part.diverging, bytes(part.records))


fetched = st.builds(
    Fetched,
    st.just(""),
    st.integers(0, 1 << 20),
    int16,
    int64,
    int64,
    int64,
    st.lists(st.tuples(int64, int64), max_size=3),
    st.none() | st.tuples(st.integers(0, (1 << 31) - 1), offsets),
    st.binary(max_size=60).map(memoryview),
)
fetch_answers = st.builds(
    FetchAnswer,
    int16,
    st.lists(st.tuples(names, ids, st.lists(fetched, max_size=3)), max_size=3),
    st.none() | st.tuples(st.integers(0, 100), st.integers(0, 100)),
    endpoints,
)

# -- what goes into a produce, and what comes back

produce_topics = st.lists(
    st.tuples(names, ids, st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(max_size=300)), max_size=3)), max_size=3
)
appended = st.builds(Appended, st.just(""), st.integers(0, 1 << 20), int16, int64, st.none() | names)


class ProduceAnswer(NamedTuple):
    """An answer to a produce, with the tags and per-record errors of younger versions."""

    topics: list[tuple[str, bytes, list[Appended]]]
    record_errors: list[tuple[int, str | None]]
    current_leader: tuple[int, int] | None
    endpoints: list[tuple[int, str, int, str | None]]

    def expected(self, version: int) -> list[Appended]:
        parts = []
        for name, topic_id, rows in self.topics:
            for row in rows:
                message = row.message
                if message is None:  # the last reason given for a single record is better than none
                    message = next((text for _, text in reversed(self.record_errors) if text), None)
                parts.append(
                    row._replace(topic=topic_id if version >= 13 else name, message=message if version >= 8 else None)
                )
        return parts


produce_answers = st.builds(
    ProduceAnswer,
    st.lists(st.tuples(names, ids, st.lists(appended, max_size=3)), max_size=3),
    st.lists(st.tuples(int32, st.none() | names), max_size=2),
    st.none() | st.tuples(st.integers(0, 100), st.integers(0, 100)),
    endpoints,
)


def as_uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=data)
