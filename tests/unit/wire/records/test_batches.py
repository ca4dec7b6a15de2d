"""Sequences of batches: found in a fetched partition, with their headers as columns."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batch, Batches, split
from tests.support.batches import Record, Written, join, write_batch
from tests.support.strategies import batches, logs

FIELDS = (
    "base_offset", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "first_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip


@given(logs())
def test_all_batches_come_in_one_piece_and_each_can_be_had_alone(log: list[Written]) -> None:
    assume(log)
    found = join(*log)
    wanted = [written.data for written in log]
    assert len(found) == len(log)
    assert found.size == sum(map(len, wanted))
    assert found.first_offset == log[0].base_offset
    assert [bytes(batch.data) for batch in found] == wanted
    assert [bytes(found[index].data) for index in range(len(found))] == wanted
    found.check()


@given(logs())
def test_headers_as_columns_are_what_kafka_python_reads(log: list[Written]) -> None:
    assume(log)
    headers = join(*log).headers
    theirs = [DefaultRecordBatch(written.data) for written in log]
    for name in FIELDS:
        assert headers[name].tolist() == [getattr(batch, name) for batch in theirs], name
    assert headers["count"].tolist() == [batch.records_count for batch in theirs]
    assert (headers["length"] + 12).tolist() == [batch.size_in_bytes for batch in theirs]


@given(logs(), st.booleans())
def test_a_part_is_what_it_would_be_alone(log: list[Written], known: bool) -> None:
    assume(log)
    found = join(*log)
    # A part takes over the headers that have been read already.
    if known:
        assert len(found.headers) == len(log)
    for start, stop in itertools.combinations(range(len(log) + 1), 2):
        part, alone = found.part(start, stop), join(*log[start:stop])
        assert [bytes(batch.data) for batch in part] == [bytes(batch.data) for batch in alone]
        assert part.headers.tolist() == alone.headers.tolist()
        assert (part.size, part.first_offset) == (alone.size, alone.first_offset)
        part.check()
        assert part.part(0, 1).headers.tolist() == alone.headers[:1].tolist()


@given(batches())
def test_one_batch_is_batches_too(written: Written) -> None:
    found = Batches.of(Batch(memoryview(written.data)))
    assert [bytes(batch.data) for batch in found] == [written.data]
    assert found.headers.tolist() == join(written).headers.tolist()


@given(logs(), st.data())
def test_damage_to_any_of_them_is_noticed(log: list[Written], data: st.DataObject) -> None:
    assume(log)
    which = data.draw(st.integers(0, len(log) - 1))
    damaged = [bytearray(written.data) for written in log]
    at = data.draw(st.integers(17, len(damaged[which]) - 1))
    damaged[which][at] ^= data.draw(st.integers(1, 255))
    (found,) = split(memoryview(b"".join(damaged)))
    assert isinstance(found, Batches)
    with pytest.raises(CorruptBatch, match=r"CRC|impossible"):
        found.check()
    found.part(0, which).check()
    found.part(which + 1, len(log)).check()


def test_nothing_at_all_and_half_a_batch_are_no_batches() -> None:
    whole = write_batch([Record(0, b"k", b"v")]).data
    for size in range(len(whole)):
        assert list(split(memoryview(whole[:size]))) == []
