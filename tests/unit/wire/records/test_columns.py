"""Unpack batches to columns and pack them again, compared with kafka-python in both directions."""

from __future__ import annotations

import itertools
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records import arrow, columns
from mirrormaker.wire.records.arrow import from_table, to_table
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import pack, sizes, unpack, unpack_in_pieces
from mirrormaker.wire.records.slices import binary_array, in_memory_order
from mirrormaker.wire.records.varints import Data
from tests.support.batches import (
    CODECS,
    HEADER,
    NONE,
    NOW,
    ZSTD,
    Record,
    Written,
    emptied,
    join,
    numbered,
    read_log,
    rows,
    write_batch,
    write_tiny_records,
)
from tests.support.memory import peak
from tests.support.strategies import logs, records, timestamps

MB = b"0123456789abcdef" * (1 << 16)
ODD = (
    Record(NOW, b"key", b"value", (("header", b"x"), ("null", None), ("", b""), ("größe", MB[:300]))),
    Record(NOW - 5, None, None),
    Record(-1, b"", b""),
    Record(-(1 << 40), MB, None),
    Record(1 << 45, None, MB),
    Record(NOW, b"a" * 63, b"b" * 64),
    Record(NOW, b"a" * 8191, b"b" * 8192),
    Record(NOW, bytes(500), b"\xff" * 500, (("end", b"\xff\x80"),)),
)
# Seconds for 100,000 records. They take a tenth of a second, and a loop over them in Python takes one; the rest is for a busy
# machine.
PATIENCE = 20.0


def reread(packed: list[memoryview]) -> list[tuple[int, Record]]:
    """Stamp new batches, and return the offsets and records that kafka-python finds in them."""
    found = []
    for data in packed:
        batch = Batch(data)
        batch.stamp(5, 1, 0)
        batch.check()
        assert DefaultRecordBatch(bytes(data)).validate_crc()
        found += read_log(data)
    return found


# -- from batches to columns


@given(logs())
def test_every_record_is_what_kafka_python_reads(log: list[Written]) -> None:
    assume(log)
    batches = join(*log)
    assert rows(unpack(batches)) == read_log(batches.data)


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_and_large_and_odd_records_come_out_of_every_codec(codec: int) -> None:
    written = write_batch(ODD, codec=codec, base_offset=10**12)
    assert join(written)[0].attributes & 7 == codec
    assert rows(unpack(join(written))) == list(zip(written.offsets, ODD, strict=True))


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(records, min_size=1, max_size=4), timestamps)
def test_records_of_a_topic_with_log_append_time_have_the_time_of_their_batch(
    codec: int, log: list[Record], append_time: int
) -> None:
    stamped = write_batch(log, codec=codec, append_time=append_time)
    created = write_batch(log, codec=codec, base_offset=100)
    found = rows(unpack(join(stamped, created)))
    assert found == read_log(stamped.data + created.data)
    assert [record.timestamp for _, record in found] == [append_time] * len(log) + [r.timestamp for r in log]


def test_holes_in_offsets_stay_where_they_are() -> None:
    written = write_batch(ODD[:4], base_offset=2**62, deltas=[0, 7, 8, 2**31 - 1])
    assert unpack(join(written)).offsets.tolist() == [2**62, 2**62 + 7, 2**62 + 8, 2**62 + 2**31 - 1]


def test_batches_of_every_codec_come_out_together_and_in_order() -> None:
    log = [write_batch(ODD[n:], codec=codec, base_offset=100 * n) for n, codec in enumerate(CODECS)]
    assert rows(unpack(join(*log))) == read_log(b"".join(written.data for written in log))


@given(st.lists(records, min_size=1, max_size=3))
def test_a_batch_that_compaction_emptied_has_no_records(log: list[Record]) -> None:
    empty = emptied(write_batch(log, base_offset=5))
    full = write_batch(log, base_offset=10)
    assert rows(unpack(join(empty))) == []
    assert rows(unpack(join(empty, full, emptied(write_batch(log, base_offset=50))))) == read_log(full.data)


def test_no_batches_have_no_records() -> None:
    assert len(unpack(join(write_batch(ODD)).part(0, 0))) == 0


@given(logs())
def test_some_of_the_batches_can_be_had_alone(log: list[Written]) -> None:
    assume(len(log) > 1)
    batches = join(*log)
    for start, stop in itertools.combinations(range(len(log) + 1), 2):
        wanted = read_log(b"".join(written.data for written in log[start:stop]))
        assert rows(unpack(batches.part(start, stop))) == wanted


@given(logs(), st.integers(1, 2000), st.integers(1, 20))
def test_batches_can_be_unpacked_piece_by_piece(log: list[Written], enough: int, most: int) -> None:
    """However small the pieces are, they have all records, in order, and end where the next one begins."""
    assume(log)
    batches = join(*log)
    found: list[tuple[int, Record]] = []
    size, before = 0, -1
    with patch.object(columns, "MOST_RECORDS", most):
        for piece in unpack_in_pieces(batches, 1 << 20, enough):
            assert len(piece.records) <= most
            assert len(piece.counts) == len(piece.batches) and piece.counts.sum() == len(piece.records)
            some = rows(piece.records)
            assert all(before < offset < piece.end for offset, _ in some)
            found += some
            size, before = size + piece.size, piece.end - 1
    assert found == read_log(batches.data)
    assert before == batches[len(batches) - 1].last_offset
    assert size <= batches.size


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("tails", [b"\1\1\0", b"\1\x08" + b"abcd\0"])
def test_a_batch_of_countless_records_takes_the_memory_of_one_piece(codec: int, tails: bytes) -> None:
    """Each of 1,000,000 records would take 200 bytes for a moment if all were unpacked together."""
    count = 1_000_000
    (batches,) = split(memoryview(write_tiny_records(count, codec, 70, tails)))
    assert isinstance(batches, Batches)
    payload = count * (len(tails) + 7)
    found, largest = 70, 0

    def run() -> None:
        nonlocal found, largest
        for piece in unpack_in_pieces(batches, 64 << 20, 4 << 20):
            assert piece.records.offsets[0] == found
            found, largest = piece.end, max(largest, len(piece.records))

    list(unpack_in_pieces(join(write_batch(ODD)), 64 << 20, 4 << 20))
    assert peak(run) < payload + 200 * columns.MOST_RECORDS
    assert found == 70 + count
    assert largest == columns.MOST_RECORDS


@pytest.mark.parametrize("uneven", [False, True])
def test_a_batch_of_many_bytes_becomes_several_pieces(uneven: bool) -> None:
    log = [Record(NOW, None, b"x" * (1000 + 7 * (n % 3) * uneven)) for n in range(1000)]
    batches = join(write_batch(log, base_offset=5))
    pieces = list(unpack_in_pieces(batches, 64 << 20, 100_000))
    assert [row for piece in pieces for row in rows(piece.records)] == read_log(batches.data)
    assert len(pieces) >= 8
    assert all((piece.records.ends - piece.records.starts).sum() < 200_000 for piece in pieces)
    assert len(list(unpack_in_pieces(batches, 64 << 20, 600_000))) == 1, "a little more than enough is one piece"


@pytest.mark.parametrize("codec", CODECS)
def test_batches_larger_than_allowed_are_refused_and_not_cut_short(codec: int) -> None:
    log = [write_batch([Record(NOW, None, b"x" * 10_000)], codec=codec, base_offset=n) for n in range(3)]
    assert len(unpack(join(*log), 40_000)) == 3
    with pytest.raises(CorruptBatch, match="more than 15000 bytes"):
        unpack(join(*log), 15_000)


# -- from columns to batches


@given(logs(), st.sampled_from(CODECS), st.data())
def test_kafka_python_reads_what_was_packed(log: list[Written], codec: int, data: st.DataObject) -> None:
    assume(log)
    given_records = unpack(join(*log))
    count = len(given_records)
    bounds = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=4))})
    packed = pack(given_records, bounds, codec)

    wanted = [record for _, record in rows(given_records)]
    assert [record for _, record in reread(packed)] == wanted
    for batch, (start, stop) in zip(map(Batch, packed), itertools.pairwise(bounds), strict=True):
        theirs = DefaultRecordBatch(bytes(batch.data))
        assert [r.offset for r in theirs] == list(range(stop - start))
        assert theirs.attributes == codec
        assert theirs.size_in_bytes == len(batch.data)
        assert (theirs.records_count, theirs.last_offset_delta) == (stop - start, stop - start - 1)
        assert theirs.first_timestamp == wanted[start].timestamp
        assert theirs.max_timestamp == max(r.timestamp for r in wanted[start:stop])


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_and_large_and_odd_records_survive_every_codec(codec: int) -> None:
    packed = pack(unpack(join(write_batch(ODD))), [0, 3, 4, len(ODD)], codec)
    assert [record for _, record in reread(packed)] == list(ODD)


@given(logs(), st.data())
def test_any_choice_of_records_in_any_order_can_be_packed(log: list[Written], data: st.DataObject) -> None:
    assume(log)
    given_records = unpack(join(*log))
    index = st.integers(0, len(given_records) - 1)
    chosen = np.array(data.draw(st.lists(index, min_size=1, max_size=20)), np.int64)
    was = rows(given_records)
    assert rows(given_records[chosen]) == [was[i] for i in chosen.tolist()]
    assert [record for _, record in reread(pack(given_records[chosen], [0, len(chosen)]))] == [
        was[i][1] for i in chosen.tolist()
    ]


@given(logs(), st.data())
def test_records_are_copied_within_arrows_format_whatever_their_order(log: list[Written], data: st.DataObject) -> None:
    """Arrow's offsets must not decrease: what its kernels do with others is left to chance."""
    assume(log)
    given_records = unpack(join(*log))
    index = st.integers(0, len(given_records) - 1)
    chosen = np.array(data.draw(st.lists(index, min_size=1, max_size=20)), np.int64)
    wanted = [rows(given_records)[i] for i in chosen.tolist()]

    def checked(edges: npt.NDArray[np.int32], joined: Data) -> Any:
        array = binary_array(edges, joined)
        array.validate(full=True)
        return array

    with patch.object(columns, "binary_array", checked), patch.object(arrow, "binary_array", checked):
        assert rows(given_records[chosen]) == wanted
        for packed in (
            pack(given_records[chosen], [0, len(chosen)]),
            pack(given_records, [0, len(chosen)], order=chosen),
            pack(given_records[::-1], [0, len(chosen)], order=len(given_records) - 1 - chosen),
        ):
            assert [record for _, record in reread(packed)] == [record for _, record in wanted]


def test_fields_that_overlap_are_refused() -> None:
    starts, ends = np.array([0, 5, 3]), np.array([4, 9, 6])
    with pytest.raises(CorruptBatch, match="overlap"):
        in_memory_order(starts, ends)


@given(logs(), st.sampled_from(CODECS))
def test_packing_and_unpacking_changes_no_tail(log: list[Written], codec: int) -> None:
    assume(log)
    before = unpack(join(*log))
    (packed,) = pack(before, [0, len(before)], codec)
    after = unpack(Batches(packed, [0, len(packed)]))
    assert [after.tail(i) for i in range(len(after))] == [before.tail(i) for i in range(len(before))]
    assert after.timestamps.tolist() == before.timestamps.tolist()


@given(logs())
def test_a_record_never_takes_more_than_its_size_says(log: list[Written]) -> None:
    assume(log)
    found = unpack(join(*log))
    for start in range(len(found)):
        for stop in range(start + 1, len(found) + 1):
            (packed,) = pack(found[start:stop], [0, stop - start])
            assert len(packed) - HEADER <= sizes(found[start:stop]).sum()


def test_a_fetch_of_a_megabyte_fits_into_two_batches_of_half_a_megabyte() -> None:
    """Otherwise each fetch leaves a small third batch, and brokers pay for each batch."""
    log = [
        write_batch([Record(NOW + offset, None, b"x" * 1024)] * 15, base_offset=offset)
        for offset in range(0, 67 * 15, 15)
    ]
    assert 0 <= (1 << 20) - sum(len(written.data) for written in log) < len(log[0].data), (
        "it must be as much as a broker gives for 1 MB"
    )
    found = unpack(join(*log))
    assert int(sizes(found).sum()) <= 2 * ((512 << 10) - HEADER)


@given(logs())
def test_keys_are_found_where_they_are(log: list[Written]) -> None:
    assume(log)
    found = unpack(join(*log))
    start, size = found.keys()
    keys = [
        None if n < 0 else found.data[at : at + n].tobytes()
        for at, n in zip(start.tolist(), size.tolist(), strict=True)
    ]
    assert keys == [record.key for written in log for record in written.records]


# -- many at once


@pytest.mark.parametrize(
    ("batches", "each", "size"), [(1, 100_000, 80), (10_000, 10, 80), (1, 1, 80), (500, 1, 1000), (20, 1000, 300)]
)
def test_many_records_are_quick(batches: int, each: int, size: int) -> None:
    log = numbered(each, size)
    written = [write_batch(log, base_offset=n * each) for n in range(min(batches, 10))]
    copies = [bytearray(written[n % 10].data) for n in range(batches)]
    for n, data in enumerate(copies):
        data[:8] = (n * each).to_bytes(8, "big")
    (found,) = split(memoryview(b"".join(copies)))
    assert isinstance(found, Batches)

    began = time.monotonic()
    unpacked = unpack(found)
    table = to_table(unpacked)
    packed = pack(unpacked, [*range(0, len(unpacked), 5000), len(unpacked)])
    again = from_table(table)
    assert time.monotonic() - began < PATIENCE

    assert unpacked.offsets.tolist() == list(range(batches * each))
    assert table.column("key").to_pylist() == [r.key for r in log] * batches
    assert table.column("value").to_pylist() == [r.value for r in log] * batches
    assert unpacked.timestamps.tolist() == [r.timestamp for r in log] * batches
    assert all(again.tail(i) == unpacked.tail(i) for i in range(0, len(unpacked), 997))
    assert [record for _, record in reread(packed[:1])] == (log * batches)[:5000]
    assert reread(packed[-1:])[-1][1] == log[-1]


def test_a_hundred_thousand_records_in_the_opposite_order() -> None:
    unpacked = unpack(join(write_batch(numbered(100_000, 40))))
    (packed,) = pack(unpacked[::-1], [0, len(unpacked)], ZSTD)
    back = unpack(Batches(packed, [0, len(packed)]))[::-1]
    assert to_table(back).drop(["offset"]) == to_table(unpacked).drop(["offset"])
