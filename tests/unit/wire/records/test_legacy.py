"""Message formats 0 and 1, compared with kafka-python."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import kafka.codec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.legacy import last_offset, to_message_set, unpack
from tests.support.batches import (
    GZIP,
    LZ4,
    NONE,
    NOW,
    SNAPPY,
    Record,
    read_log,
    rows,
    write_batch,
)
from tests.support.messages import stamp_message_crc, wrap_messages, write_messages
from tests.support.strategies import payloads, timestamps

CODECS = [NONE, GZIP, SNAPPY, LZ4]
LIMIT = 64 << 20
FILLING = b"value" * 100

plain_records = st.builds(Record, timestamps, payloads, payloads, st.just(()))
formats = st.sampled_from([0, 1])
codecs = st.sampled_from(CODECS)


def read(data: bytes) -> list[tuple[int, Record]]:
    """Return the offsets and records in a message set."""
    return [row for part, _ in unpack(memoryview(data), LIMIT) for row in rows(part)]


def old_runs(data: bytes) -> list[memoryview]:
    """Return the message sets in a log of any formats."""
    return [run for run in split(memoryview(data)) if isinstance(run, memoryview)]


# -- reading


@given(st.lists(plain_records, min_size=1, max_size=6), formats, codecs, st.integers(0, 1 << 60))
def test_every_message_is_what_kafka_python_reads(log: list[Record], magic: int, codec: int, offset: int) -> None:
    data = write_messages(log, magic, codec, offset)
    found = read(data)
    assert found == read_log(data)
    assert [at for at, _ in found] == list(range(offset, offset + len(log)))
    assert [record for _, record in found] == [r if magic else r._replace(timestamp=-1) for r in log]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_nulls_and_empty_and_large_messages_come_out(magic: int, codec: int) -> None:
    megabyte = bytes(range(256)) * 4096
    log = [Record(NOW, megabyte, None), Record(-1, None, megabyte), Record(NOW - 1, b"", b""), Record(NOW, None, None)]
    data = write_messages(log, magic, codec, 77)
    assert read(data) == read_log(data)
    assert [record[1:3] for _, record in read(data)] == [record[1:3] for record in log]


@given(st.lists(st.tuples(st.lists(plain_records, min_size=1, max_size=3), codecs), max_size=5), formats, st.data())
def test_wrappers_and_plain_messages_in_turn(
    parts: list[tuple[list[Record], int]], magic: int, data: st.DataObject
) -> None:
    log, offset = b"", 0
    for records, codec in parts:
        log += write_messages(records, magic, codec, offset)
        offset += len(records) + data.draw(st.integers(0, 2))
    assert read(log) == read_log(log)


def test_both_formats_in_one_log() -> None:
    log = write_messages([Record(NOW, b"a", FILLING)] * 3, 0) + write_messages(
        [Record(NOW, b"b", FILLING)] * 3, 1, GZIP, 3
    )
    assert read(log) == read_log(log)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@given(st.lists(plain_records, min_size=1, max_size=4), timestamps)
def test_messages_of_a_topic_with_log_append_time_have_the_time_of_their_wrapper(
    codec: int, log: list[Record], append_time: int
) -> None:
    data = write_messages(log, 1, codec, 10, append_time)
    assert read(data) == read_log(data)
    assert {record.timestamp for _, record in read(data)} == {append_time}


def test_a_plain_message_with_log_append_time_has_its_own() -> None:
    data = write_messages([Record(NOW, None, b"v")], 1, append_time=123)
    assert read(data) == read_log(data) == [(0, Record(123, None, b"v"))]


def test_compaction_leaves_holes_inside_of_a_wrapper() -> None:
    """The wrapper keeps the offset of its last message."""
    builder = LegacyRecordBatchBuilder(1, GZIP, 1 << 20)
    for relative in (2, 3, 7):
        builder.append(relative, NOW, b"k", FILLING)
    data = struct.pack(">q", 107) + bytes(builder.build())[8:]
    assert [offset for offset, _ in read(data)] == [102, 103, 107]
    assert read(data) == read_log(data)


def test_early_lz4_with_its_wrong_checksum_is_read() -> None:
    log = [Record(-1, b"k", FILLING)] * 5
    data = write_messages(log, 0, LZ4)
    (payload,) = (record.value for _, record in rows_of_wrapper(data))
    assert payload is not None
    with pytest.raises(RuntimeError, match="header"):
        kafka.codec.lz4_decode(payload)
    assert [record for _, record in read(data)] == log


def rows_of_wrapper(data: bytes) -> list[tuple[int, Record]]:
    """Read a wrapper as if it were a plain message."""
    plain = bytearray(data)
    plain[17] = 0
    stamp_message_crc(plain)
    return read(bytes(plain))


def test_no_messages_have_no_records() -> None:
    assert read(b"") == []


@given(st.lists(plain_records, min_size=1, max_size=5), formats, codecs, st.integers(0, 1 << 60))
def test_the_last_offset_is_that_of_the_last_message(log: list[Record], magic: int, codec: int, offset: int) -> None:
    assert last_offset(memoryview(write_messages(log, magic, codec, offset))) == offset + len(log) - 1


# -- in a log, with other formats around


@given(
    st.lists(plain_records, min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from([0, 1, 2]), codecs), min_size=1, max_size=6),
    st.data(),
)
def test_a_log_of_every_format_is_split_where_the_format_changes(
    log: list[Record], parts: list[tuple[int, int]], data: st.DataObject
) -> None:
    written, offset = [], 0
    for magic, codec in parts:
        if magic == 2:
            written.append(write_batch(log, codec=codec, base_offset=offset).data)
        else:
            written.append(write_messages(log, magic, codec, offset))
        offset += len(log)
    kept = data.draw(st.integers(0, len(written[-1]) - 1))
    whole = b"".join(written)
    runs = list(split(memoryview(whole + written[-1][:kept])))

    found = b""
    for run in runs:
        if isinstance(run, Batches):
            found += run.data[run.bounds[0] : run.bounds[-1]]
        else:
            found += run
    # Of the set that was cut off, the messages that are whole may follow.
    assert found.startswith(whole)
    assert read_log(found)[: len(log) * len(parts)] == read_log(whole)
    kinds = [isinstance(run, Batches) for run in runs]
    assert all(one != other for one, other in itertools.pairwise(kinds))


# -- noticing damage


@given(st.lists(plain_records, min_size=1, max_size=4), formats, codecs, st.data())
def test_any_byte_changed_under_the_crc_is_noticed(
    log: list[Record], magic: int, codec: int, data: st.DataObject
) -> None:
    damaged = bytearray(write_messages(log[:1], magic, codec))
    damaged[data.draw(st.integers(12, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        read(bytes(damaged))


def test_a_bad_crc_names_the_message() -> None:
    log = bytearray(write_messages([Record(NOW, b"k", b"v")] * 3, 1, base_offset=41))
    log[-1] ^= 1
    with pytest.raises(CorruptBatch, match="offset 43 does not match its CRC"):
        read(bytes(log))


@given(st.lists(plain_records, min_size=1, max_size=4), formats, codecs, st.data())
def test_a_message_that_was_cut_short_is_left_out(
    log: list[Record], magic: int, codec: int, data: st.DataObject
) -> None:
    whole, last = write_messages(log, magic, codec), write_messages(log[:1], magic, codec, 100)
    kept = data.draw(st.integers(0, len(last) - 1))
    (found,) = old_runs(whole + last[:kept])
    assert read(bytes(found)) == read_log(whole)


@given(st.lists(plain_records, min_size=1, max_size=4), formats, st.sampled_from([GZIP, SNAPPY, LZ4]), st.data())
def test_damage_that_got_past_the_crc_gives_an_answer_or_is_refused(
    log: list[Record], magic: int, codec: int, data: st.DataObject
) -> None:
    damaged = bytearray(write_messages(log, magic, codec, 5))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(16, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged[16] &= 1
    stamp_message_crc(damaged)
    refuse_or_answer(bytes(damaged))


@given(st.lists(plain_records, min_size=1, max_size=4), formats, st.sampled_from([GZIP, SNAPPY, LZ4]), st.data())
def test_damage_inside_of_a_wrapper_gives_an_answer_or_is_refused(
    log: list[Record], magic: int, codec: int, data: st.DataObject
) -> None:
    inner = bytearray(write_messages(log, magic))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(inner) - 1))
        inner[at : at + 1] = data.draw(
            st.sampled_from([b"", b"\0", b"\x7f", b"\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
        )
        assume(inner)
    refuse_or_answer(wrap_messages(bytes(inner), magic, codec))


@given(st.binary(max_size=120))
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    refuse_or_answer(garbage)


def refuse_or_answer(data: bytes) -> None:
    """Read anything; no other error than CorruptBatch may come out."""
    try:
        for run in old_runs(data):
            read(bytes(run))
    except CorruptBatch:
        pass


def test_a_wrapper_that_claims_offsets_beyond_all_numbers_is_no_disaster() -> None:
    """The difference of the two offsets does not fit into 64 bits."""
    inner = bytearray(write_messages([Record(NOW, None, b"v")], 1))
    struct.pack_into(">q", inner, 0, -5)
    refuse_or_answer(wrap_messages(bytes(inner), 1, GZIP, offset=2**63 - 1))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_with_nothing_inside_is_refused(codec: int) -> None:
    with pytest.raises(CorruptBatch, match="offset 9 holds nothing"):
        read(wrap_messages(b"", 1, codec))


def test_a_wrapper_without_a_value_is_refused() -> None:
    data = bytearray(write_messages([Record(NOW, None, None)], 1, base_offset=9))
    data[17] |= GZIP
    stamp_message_crc(data)
    with pytest.raises(CorruptBatch, match="offset 9 is empty"):
        read(bytes(data))


def test_a_wrapper_in_a_wrapper_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="offset 9 holds compressed messages"):
        read(wrap_messages(write_messages([Record(NOW, None, FILLING)], 1, GZIP), 1, GZIP))


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_a_codec_that_is_younger_than_the_format_or_does_not_exist_is_refused(codec: int) -> None:
    data = bytearray(write_messages([Record(NOW, None, FILLING)], 1))
    data[17] |= codec
    stamp_message_crc(data)
    with pytest.raises(CorruptBatch):
        read(bytes(data))


@given(st.lists(plain_records, min_size=1, max_size=20), formats, codecs)
def test_a_batch_for_an_old_broker_holds_the_same_records(log: list[Record], magic: int, codec: int) -> None:
    batch = Batch(memoryview(write_batch(log, codec=codec).data))
    found = list(_one_by_one(to_message_set(batch, magic)))
    assert [(row.key, row.value) for row in found] == [(record.key, record.value) for record in log]
    if magic == 1:
        assert [row.timestamp for row in found] == [record.timestamp for record in log]
    assert [offset for offset, _ in read(to_message_set(batch, magic))] == list(range(len(log)))


def _one_by_one(data: bytes) -> Iterator[Any]:
    """Yield kafka-python's records. For it each message that is not compressed is a batch of its own."""
    messages = MemoryRecords(data)
    while messages.has_next():
        yield from messages.next_batch()
