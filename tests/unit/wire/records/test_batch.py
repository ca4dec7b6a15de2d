"""The batch header, compared with kafka-python's."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import HEADER, Batch, Batches, split
from tests.support.batches import (
    COMMIT,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    Written,
    marker,
    read_records,
    write_batch,
)
from tests.support.strategies import batches, logs, records, sequences

RECORDS = (
    Record(1_700_000_000_000, b"key", b"value" * 50, (("header", b"x"), ("empty", None))),
    Record(-1, None, None),
)


def batches_in(data: bytes | bytearray | memoryview) -> list[Batch]:
    """Return each batch in the data."""
    return [batch for run in split(memoryview(data)) if isinstance(run, Batches) for batch in run]


def only(data: bytes | bytearray) -> Batch:
    (batch,) = batches_in(bytearray(data))
    return batch


# -- finding batches


@given(logs())
def test_every_batch_is_found_with_the_fields_that_were_written(log: list[Written]) -> None:
    found = batches_in(b"".join(b.data for b in log))

    assert [bytes(b.data) for b in found] == [b.data for b in log]
    for batch, written in zip(found, log, strict=True):
        theirs = DefaultRecordBatch(written.data)
        assert (batch.base_offset, batch.last_offset) == (written.base_offset, written.last_offset)
        assert batch.leader_epoch == written.leader_epoch
        assert batch.attributes == theirs.attributes
        assert batch.max_timestamp == max(r.timestamp for r in written.records)
        assert batch.count == len(written.records)
        assert batch.is_transactional is written.transactional
        assert batch.is_control is False
        identity = batch.producer_id, batch.producer_epoch, batch.base_sequence
        assert identity == (written.producer_id, written.producer_epoch, written.base_sequence)


@given(logs(), batches(), st.data())
def test_a_batch_that_was_cut_short_is_left_out(log: list[Written], last: Written, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, len(last.data) - 1))
    found = batches_in(b"".join(b.data for b in log) + last.data[:kept])
    assert [bytes(b.data) for b in found] == [b.data for b in log]


@pytest.mark.parametrize(
    ("codec", "name"), [(NONE, "none"), (GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd")]
)
def test_the_codec_has_a_name(codec: int, name: str) -> None:
    assert only(write_batch(RECORDS, codec=codec).data).codec == name


def test_an_unknown_codec_is_named_by_its_number() -> None:
    assert only(write_batch(RECORDS, attributes=7).data).codec == "codec 7"


def test_a_transaction_marker_is_a_control_batch() -> None:
    batch = only(marker(COMMIT, producer_id=7, base_offset=3).data)
    assert batch.is_control
    assert batch.is_transactional
    assert batch.producer_id == 7


# -- numbers


@given(batches())
def test_the_last_number_is_what_kafka_python_says(written: Written) -> None:
    assume(written.base_sequence >= 0)
    assert only(written.data).last_sequence == DefaultRecordBatch(written.data).last_sequence


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [(0, 1, 0), (0, 3, 2), (2**31 - 2, 2, 2**31 - 1), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 5, 10, 4)],
)
def test_numbers_go_on_at_zero_after_the_largest(first: int, count: int, last: int) -> None:
    written = write_batch([Record(0, None, None)] * count, producer_id=1, producer_epoch=0, base_sequence=first)
    assert only(written.data).last_sequence == last


# -- noticing damage


@given(batches(), st.data())
def test_any_byte_changed_under_the_crc_is_noticed(written: Written, data: st.DataObject) -> None:
    at = data.draw(st.integers(21, len(written.data) - 1))
    damaged = bytearray(written.data)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        Batch(memoryview(damaged)).check()


@given(batches(), st.integers(17, 20), st.integers(1, 255))
def test_a_damaged_crc_is_noticed(written: Written, at: int, flip: int) -> None:
    damaged = bytearray(written.data)
    damaged[at] ^= flip
    with pytest.raises(CorruptBatch, match=f"offset {written.base_offset}"):
        Batch(memoryview(damaged)).check()


@given(batches())
def test_a_sound_batch_passes_wherever_a_broker_puts_it(written: Written) -> None:
    """The broker sets base offset and leader epoch; the CRC does not cover them."""
    moved = bytearray(written.data)
    moved[0:8] = b"\0" * 8
    moved[12:16] = b"\xff" * 4
    Batch(memoryview(moved)).check()


@given(st.binary(max_size=200))
@example(b"\0" * 17)
@example(b"\0" * 16 + b"\2" + b"\0" * 100)
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    try:
        for batch in batches_in(garbage):
            batch.check()
    except CorruptBatch:
        pass


@given(logs(), st.data())
def test_a_damaged_log_is_refused_or_shows_only_whole_batches(log: list[Written], data: st.DataObject) -> None:
    assume(log)
    damaged = bytearray(b"".join(b.data for b in log))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        for batch in batches_in(damaged):
            assert len(batch.data) >= HEADER.size
            batch.check()
            assert batch.count >= 0
            assert batch.last_offset >= batch.base_offset
    except CorruptBatch:
        pass


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_between_batches_come_as_bytes(magic: int) -> None:
    old = bytearray(write_batch(RECORDS).data)
    old[16] = magic
    first, messages, last = split(memoryview(write_batch(RECORDS).data + old + old + write_batch(RECORDS).data))
    assert isinstance(first, Batches)
    assert isinstance(last, Batches)
    assert bytes(messages) == old + old  # type: ignore[arg-type]


@pytest.mark.parametrize("magic", [3, 0x7F, 0xFF])
def test_a_message_format_that_does_not_exist_is_refused(magic: int) -> None:
    odd = bytearray(write_batch(RECORDS).data)
    odd[16] = magic
    with pytest.raises(CorruptBatch, match="does not exist"):
        only(odd)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_shorter_than_the_header_is_refused(length: int) -> None:
    odd = bytearray(write_batch(RECORDS).data)
    odd[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="shorter than its own header"):
        only(odd)


# -- stamping a batch


@given(batches(), st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 15) - 1), sequences)
def test_a_stamped_batch_is_ours_and_holds_the_same_records(
    written: Written, producer_id: int, producer_epoch: int, sequence: int
) -> None:
    batch = only(written.data)
    batch.stamp(producer_id, producer_epoch, sequence)

    theirs = DefaultRecordBatch(bytes(batch.data))
    assert theirs.validate_crc()
    assert theirs.base_offset == 0
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (producer_id, producer_epoch, sequence)
    assert theirs.is_transactional is False
    assert theirs.attributes == DefaultRecordBatch(written.data).attributes & 0x0F
    assert theirs.max_timestamp == max(r.timestamp for r in written.records)
    assert read_records(batch.data) == written.records


@given(batches(), sequences, sequences)
def test_stamping_again_with_other_numbers_leaves_no_trace_of_the_first(
    written: Written, first: int, second: int
) -> None:
    """After an error the same batch may be sent again under later numbers."""
    once, twice = only(written.data), only(written.data)
    twice.stamp(1, 0, first)
    twice.stamp(2, 1, second)
    once.stamp(2, 1, second)
    assert bytes(once.data) == bytes(twice.data)


@given(batches())
def test_stamping_happens_in_the_fetched_bytes_themselves(written: Written) -> None:
    frame = bytearray(b"before" + written.data + b"after")
    (batch,) = batches_in(memoryview(frame)[6 : 6 + len(written.data)])
    batch.stamp(5, 0, 0)
    assert frame[:6] == b"before"
    assert frame[-5:] == b"after"
    assert bytes(frame[6:-5]) == bytes(batch.data) != written.data


@given(st.lists(records, min_size=1, max_size=5))
def test_the_payload_is_the_same_on_both_sides_of_a_mirror(rows: list[Record]) -> None:
    source = only(write_batch(rows, base_offset=1000, producer_id=3, producer_epoch=1, base_sequence=9).data)
    before = bytes(source.data[HEADER.size :])
    source.stamp(77, 0, 123)
    assert source.data[HEADER.size :] == before
    assert only(bytes(source.data)).data[HEADER.size :] == before
