"""Batches to columns and back, with kafka-python as the witness in both directions."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import decode_varint, encode_varint

from mirrormaker.errors import BadVarint, CorruptBatch
from mirrormaker.wire.records import record_starts as walking
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.arrow import from_table, to_table
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import (
    Records,
    pack,
    sizes,
    unpack,
    unpack_some,
)
from mirrormaker.wire.records.record_starts import _walk_abreast, _walk_by_steps, _walk_by_zeros, walk
from mirrormaker.wire.records.varints import Ints
from tests.support.strategies import (
    GZIP,
    HEADER,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Record,
    Written,
    disguised,
    emptied,
    int64,
    logs,
    look_alikes,
    read_log,
    records,
    timestamps,
    write_batch,
)  # fmt: skip

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
NOW = 1_700_000_000_000
SMALLEST = 7  # bytes of a record
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
PATIENCE = 20.0
"""Seconds for 100,000 records: they take a tenth of one, a loop over them in Python takes one, and this machine may be busy."""


def joined(*log: Written) -> Batches:
    (batches,) = split(memoryview(b"".join(written.data for written in log)))
    assert isinstance(batches, Batches)
    return batches


def rows(found: Records) -> list[tuple[int, Record]]:
    return [
        (row["offset"], Record(row["timestamp"], row["key"], row["value"], pairs(row["headers"])))
        for row in to_table(found).to_pylist()
    ]


def pairs(headers: list[dict[str, bytes]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((str(header["key"]), header["value"]) for header in headers)


def reread(packed: list[memoryview]) -> list[tuple[int, Record]]:
    """What kafka-python reads from new batches, once they have their CRC."""
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
    batches = joined(*log)
    assert rows(unpack(batches)) == read_log(batches.data)


@pytest.mark.parametrize("codec", CODECS)
def test_nulls_and_large_and_odd_records_come_out_of_every_codec(codec: int) -> None:
    written = write_batch(ODD, codec=codec, base_offset=10**12)
    assert joined(written)[0].attributes & 7 == codec
    assert rows(unpack(joined(written))) == list(zip(written.offsets, ODD, strict=True))


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(records, min_size=1, max_size=4), timestamps)
def test_records_of_a_topic_with_log_append_time_have_the_time_of_their_batch(
    codec: int, log: list[Record], append_time: int
) -> None:
    stamped = write_batch(log, codec=codec, append_time=append_time)
    created = write_batch(log, codec=codec, base_offset=100)
    found = rows(unpack(joined(stamped, created)))
    assert found == read_log(stamped.data + created.data)
    assert [record.timestamp for _, record in found] == [append_time] * len(log) + [r.timestamp for r in log]


def test_holes_in_offsets_stay_where_they_are() -> None:
    written = write_batch(ODD[:4], base_offset=2**62, deltas=[0, 7, 8, 2**31 - 1])
    assert unpack(joined(written)).offsets.tolist() == [2**62, 2**62 + 7, 2**62 + 8, 2**62 + 2**31 - 1]


def test_batches_of_every_codec_come_out_together_and_in_order() -> None:
    log = [write_batch(ODD[n:], codec=codec, base_offset=100 * n) for n, codec in enumerate(CODECS)]
    assert rows(unpack(joined(*log))) == read_log(b"".join(written.data for written in log))


@given(st.lists(records, min_size=1, max_size=3))
def test_a_batch_that_compaction_emptied_has_no_records(log: list[Record]) -> None:
    empty = emptied(write_batch(log, base_offset=5))
    full = write_batch(log, base_offset=10)
    assert rows(unpack(joined(empty))) == []
    assert rows(unpack(joined(empty, full, emptied(write_batch(log, base_offset=50))))) == read_log(full.data)


def test_no_batches_have_no_records() -> None:
    assert len(unpack(joined(write_batch(ODD)).part(0, 0))) == 0


@given(logs())
def test_some_of_the_batches_can_be_had_alone(log: list[Written]) -> None:
    assume(len(log) > 1)
    batches = joined(*log)
    for start, stop in itertools.combinations(range(len(log) + 1), 2):
        wanted = read_log(b"".join(written.data for written in log[start:stop]))
        assert rows(unpack(batches.part(start, stop))) == wanted


@given(logs(), st.integers(1, 2000))
def test_batches_can_be_unpacked_piece_by_piece(log: list[Written], enough: int) -> None:
    assume(log)
    batches = joined(*log)
    found, done = [], 0
    while done < len(batches):
        some, used = unpack_some(batches.part(done, len(batches)), 1 << 20, enough)
        assert used > 0
        found += rows(some)
        done += used
    assert found == read_log(batches.data)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_larger_than_allowed_are_refused_and_not_cut_short(codec: int) -> None:
    log = [write_batch([Record(NOW, None, b"x" * 10_000)], codec=codec, base_offset=n) for n in range(3)]
    assert len(unpack(joined(*log), 40_000)) == 3
    with pytest.raises(CorruptBatch, match="more than 15000 bytes"):
        unpack(joined(*log), 15_000)


# -- from columns to batches


@given(logs(), st.sampled_from(CODECS), st.data())
def test_kafka_python_reads_what_was_packed(log: list[Written], codec: int, data: st.DataObject) -> None:
    assume(log)
    given_records = unpack(joined(*log))
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
    packed = pack(unpack(joined(write_batch(ODD))), [0, 3, 4, len(ODD)], codec)
    assert [record for _, record in reread(packed)] == list(ODD)


@given(logs(), st.data())
def test_any_choice_of_records_in_any_order_can_be_packed(log: list[Written], data: st.DataObject) -> None:
    assume(log)
    given_records = unpack(joined(*log))
    index = st.integers(0, len(given_records) - 1)
    chosen = np.array(data.draw(st.lists(index, min_size=1, max_size=20)), np.int64)
    was = rows(given_records)
    assert rows(given_records[chosen]) == [was[i] for i in chosen.tolist()]
    assert [record for _, record in reread(pack(given_records[chosen], [0, len(chosen)]))] == [
        was[i][1] for i in chosen.tolist()
    ]


@given(logs(), st.sampled_from(CODECS))
def test_packing_and_unpacking_changes_no_tail(log: list[Written], codec: int) -> None:
    assume(log)
    before = unpack(joined(*log))
    (packed,) = pack(before, [0, len(before)], codec)
    after = unpack(Batches(packed, [0, len(packed)]))
    assert [after.tail(i) for i in range(len(after))] == [before.tail(i) for i in range(len(before))]
    assert after.timestamps.tolist() == before.timestamps.tolist()


@given(logs())
def test_a_record_never_takes_more_than_its_size_says(log: list[Written]) -> None:
    assume(log)
    found = unpack(joined(*log))
    for start in range(len(found)):
        for stop in range(start + 1, len(found) + 1):
            (packed,) = pack(found[start:stop], [0, stop - start])
            assert len(packed) - HEADER <= sizes(found[start:stop]).sum()


@given(logs())
def test_keys_are_found_where_they_are(log: list[Written]) -> None:
    assume(log)
    found = unpack(joined(*log))
    start, size = found.keys()
    keys = [
        None if n < 0 else found.data[at : at + n].tobytes()
        for at, n in zip(start.tolist(), size.tolist(), strict=True)
    ]
    assert keys == [record.key for written in log for record in written.records]


# -- many at once


def numbered(count: int, size: int) -> list[Record]:
    filling = b"x" * size
    return [Record(NOW + n % 1000, b"key-%d" % n, filling[: size - n % 50]) for n in range(count)]


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
    taken = unpack(found)
    table = to_table(taken)
    packed = pack(taken, [*range(0, len(taken), 5000), len(taken)])
    again = from_table(table)
    assert time.monotonic() - began < PATIENCE

    assert taken.offsets.tolist() == list(range(batches * each))
    assert table.column("key").to_pylist() == [r.key for r in log] * batches
    assert table.column("value").to_pylist() == [r.value for r in log] * batches
    assert taken.timestamps.tolist() == [r.timestamp for r in log] * batches
    assert all(again.tail(i) == taken.tail(i) for i in range(0, len(taken), 997))
    assert [record for _, record in reread(packed[:1])] == (log * batches)[:5000]
    assert reread(packed[-1:])[-1][1] == log[-1]


def test_a_hundred_thousand_records_in_the_opposite_order() -> None:
    taken = unpack(joined(write_batch(numbered(100_000, 40))))
    (packed,) = pack(taken[::-1], [0, len(taken)], ZSTD)
    back = unpack(Batches(packed, [0, len(packed)]))[::-1]
    assert to_table(back).drop(["offset"]) == to_table(taken).drop(["offset"])


# -- finding where records begin


def begins(data: bytes, count: int) -> list[int]:
    """The truth, with kafka-python's numbers."""
    found, at = [], 0
    for _ in range(count):
        found.append(at)
        length, at = decode_varint(data, at)
        at += length
    assert at == len(data)
    return found


def walks(data: bytes, count: int) -> tuple[list[int] | None, ...]:
    """What each way says: step by step, batches side by side, by zeros, and all of them together with a guess of one length.

    None: it is refused, or not known. Around the data lie bytes that would go well with it.
    """
    edge = b"\x80\xff\0"
    around = np.frombuffer(edge + data + edge, np.uint8)
    start, end = len(edge), len(edge) + len(data)

    def told(found: Ints | None) -> list[int] | None:
        return None if found is None else (found - start).tolist()

    def steps() -> Ints:
        return _walk_by_steps(around, start, end, count)

    columns = [np.array([number], np.int64) for number in (start, end, count)]

    def abreast() -> Ints:
        return _walk_abreast(around, *columns)

    def together() -> Ints:
        return walk(around, *columns)

    def zeros() -> Ints | None:
        with (
            patch.object(walking, "_ZEROS", 10**9),
            patch.object(walking, "_ZEROS_SHARE", 1),
        ):  # however many guesses it takes
            return _walk_by_zeros(around, start, end, count)

    found = []
    for way in (steps, abreast, zeros, together):
        try:
            found.append(told(way()))
        except BadVarint:
            found.append(None)
    return tuple(found)


def assert_the_walks_find_all(log: list[Record]) -> None:
    data = write_batch(log).data[HEADER:]
    truth = begins(data, len(log))
    steps, abreast, zeros, together = walks(data, len(log))
    assert steps == truth
    assert abreast == truth
    assert zeros in (None, truth)
    assert together == truth


@given(st.lists(records, min_size=1, max_size=30))
def test_all_ways_to_walk_find_the_same_records(log: list[Record]) -> None:
    assert_the_walks_find_all(log)


@given(st.lists(disguised, min_size=1, max_size=6))
def test_records_inside_of_records_are_not_mistaken_for_records(log: list[Record]) -> None:
    assert_the_walks_find_all(log)
    written = write_batch(log)
    assert rows(unpack(joined(written))) == read_log(written.data)


@given(st.lists(disguised, min_size=1, max_size=6))
def test_batches_inside_of_batches_are_not_mistaken_for_batches(log: list[Record]) -> None:
    inner = write_batch(log).data
    assert_the_walks_find_all([Record(NOW, inner, inner * 3, (("batch", inner),)), *log, Record(NOW, None, inner)])


@pytest.mark.parametrize(
    "filling", [b"\0", b"\x80", b"\xff", b"\x02", b"\x02\0", b"\0\xfe", b"\x06\0\0\0", b"\x80\x80\0"]
)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_payloads_full_of_one_thing_are_walked_right(filling: bytes, count: int) -> None:
    log = [
        Record(NOW, filling * (n % 7), filling * (n % 90), (("h", filling * (n % 3)),) * (n % 2)) for n in range(count)
    ]
    assert_the_walks_find_all(log)


@given(st.integers(1, 4), st.integers(0, 5), look_alikes, look_alikes)
def test_a_false_chain_as_long_as_the_true_one_leads_nowhere(
    count: int, extra: int, before: bytes, after: bytes
) -> None:
    """Values that are chains of records themselves, of any number, and that end where the true record ends."""
    chain = write_batch([Record(NOW, None, b"v" * n) for n in range(count + extra)]).data[HEADER:]
    swallow = b"\x08\0\0\0"  # a record of four bytes, of which the last is the true record's number of headers
    assert_the_walks_find_all([Record(NOW, before, after + chain + swallow)] * count)


# Lengths that are right, too long by any number, or written with more bytes than they need; and what may follow them.
_length_bytes = st.builds(
    lambda size, width: bytes(size >> 7 * n & 0x7F | (0x80 if n < width - 1 else 0) for n in range(width)),
    st.integers(0, 300),
    st.integers(1, 7),
)
_pieces = st.builds(bytes.__add__, _length_bytes, look_alikes)
_exact_pieces = look_alikes.map(lambda body: bytes([len(body) << 1 & 0x7F]) + body if len(body) < 64 else body)


@given(st.lists(_pieces | _exact_pieces, min_size=1, max_size=12).map(b"".join), st.integers(1, 12))
@example(b"\x86\x80\x80\x80\x80\0\0\1\1", 1)
@example(b"\x06\0\0\0" * 3, 3)
@example(b"\x06\0\0\0" * 3, 2)
@example(b"\x86\x80\x80\x80\x80\0\0\1\1" * 3, 3)
@example(b"\xff\x80\x80\x80\x80\x80\0" * 3, 3)
def test_all_ways_to_walk_refuse_the_same(data: bytes, count: int) -> None:
    """Anything at all: they agree on where the records are, or that there are none; zeros may know nothing."""
    steps, abreast, zeros, together = walks(data, count)
    assert abreast == steps
    assert zeros in (None, steps)
    assert together == (steps if count * SMALLEST <= len(data) else None)


def test_ordinary_records_are_found_by_their_zeros() -> None:
    """Else the quick way is never taken."""
    data = np.frombuffer(write_batch(numbered(5000, 80)).data, np.uint8)
    found = _walk_by_zeros(data, HEADER, len(data), 5000)
    assert found is not None
    assert np.array_equal(found, _walk_by_steps(data, HEADER, len(data), 5000))


def test_values_of_zeros_take_neither_much_time_nor_memory() -> None:
    """Each zero was a guess: 10 MB of them took a second and 640 MB."""
    batches = joined(write_batch([Record(NOW, None, bytes(100))] * 20_000))
    tracemalloc.start()
    try:
        found = unpack(batches)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 20_000
    assert peak < 5 * batches.size


def test_many_batches_are_walked_side_by_side_as_one_after_the_other() -> None:
    written = [write_batch(numbered(1 + n % 9, 60)).data for n in range(50)]
    data = np.frombuffer(b"".join(written), np.uint8)
    ends = np.cumsum([len(part) for part in written])
    starts = ends - [len(part) for part in written] + HEADER
    counts = np.array([1 + n % 9 for n in range(50)], np.int64)
    alone = [_walk_by_steps(data, int(a), int(b), int(n)) for a, b, n in zip(starts, ends, counts, strict=True)]
    assert np.array_equal(_walk_abreast(data, starts, ends, counts), np.concatenate(alone))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=9), st.booleans()), min_size=1, max_size=8),
    st.lists(disguised, min_size=1, max_size=3),
)
def test_batches_of_records_of_one_length_among_others(
    kinds: list[tuple[int, bytes, bool]], others: list[Record]
) -> None:
    """They are found without a walk; a record of another length, or as many bytes in another way, must not go unnoticed."""
    log, offset = [], 0
    for count, value, uneven in kinds:
        rows_of_one = [Record(NOW, None, value)] * count
        odd = [Record(NOW, None, value + b"+"), Record(NOW, None, value[1:])] if uneven else []
        written = write_batch([*rows_of_one, *odd, *(others if uneven else [])] or others, base_offset=offset)
        log.append(emptied(written) if count == 5 and not uneven else written)
        offset = written.last_offset + 1
    batches = joined(*log)
    assert rows(unpack(batches)) == read_log(batches.data)


# -- numbers


def varint_bytes(numbers: list[int]) -> tuple[bytes, list[int], list[int]]:
    """kafka-python's: all of them, where each starts and where it ends."""
    out = bytearray()
    starts, ends = [], []
    for number in numbers:
        starts.append(len(out))
        encode_varint(number, out.append)
        ends.append(len(out))
    return bytes(out), starts, ends


EDGES = [sign * ((1 << bits) + by) for bits in range(0, 63, 7) for by in (-1, 0, 1) for sign in (1, -1)]


@given(st.lists(int64, min_size=1))
@example([0, -1, 2**63 - 1, -(2**63), *EDGES])
def test_numbers_are_read_and_written_as_kafka_python_does(numbers: list[int]) -> None:
    data, starts, ends = varint_bytes(numbers)
    found, after = varints.read(np.frombuffer(data, np.uint8), np.array(starts, np.int64))
    assert found.tolist() == numbers
    assert after.tolist() == ends
    assert [varints.read_one(memoryview(data), start) for start in starts] == list(zip(numbers, ends, strict=True))

    folded = varints.zigzag(np.array(numbers, np.int64))
    size = varints.sizes(folded)
    assert size.tolist() == [end - start for start, end in zip(starts, ends, strict=True)]
    out = np.zeros(len(data), np.uint8)
    varints.write(out, np.array(starts, np.int64), folded, size)
    assert out.tobytes() == data


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 11, b"\x80" * 10 + b"\1"])
def test_a_number_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(BadVarint):
        varints.read(np.frombuffer(data, np.uint8), np.array([0]))
    with pytest.raises(BadVarint):
        varints.read_one(memoryview(data), 0)
