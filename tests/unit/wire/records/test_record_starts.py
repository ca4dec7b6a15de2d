"""All ways to find where records begin agree with each other and with kafka-python."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.util import decode_varint

from mirrormaker.errors import BadVarint
from mirrormaker.wire.records import record_starts
from mirrormaker.wire.records.columns import unpack
from mirrormaker.wire.records.record_starts import (
    _find_by_zeros,
    _find_side_by_side,
    _find_step_by_step,
    find_record_starts,
)
from mirrormaker.wire.records.varints import Ints
from tests.support.batches import HEADER, NOW, Record, emptied, join, numbered, read_log, rows, write_batch
from tests.support.strategies import disguised, look_alikes, records

SMALLEST = 7  # bytes of a record


def true_starts(data: bytes, count: int) -> list[int]:
    """Return where records begin, found with kafka-python's varints."""
    found, at = [], 0
    for _ in range(count):
        found.append(at)
        length, at = decode_varint(data, at)
        at += length
    assert at == len(data)
    return found


def found_starts(data: bytes, count: int) -> tuple[list[int] | None, ...]:
    """Return what each way finds: step by step, side by side, by zeros, and the function that chooses between them.

    None means that the data is refused, or that the zeros do not tell. The bytes around the data could be taken for its own.
    """
    edge = b"\x80\xff\0"
    around = np.frombuffer(edge + data + edge, np.uint8)
    start, end = len(edge), len(edge) + len(data)

    columns = [np.array([number], np.int64) for number in (start, end, count)]

    def by_steps() -> Ints:
        return _find_step_by_step(around, start, end, count)

    def side_by_side() -> Ints:
        return _find_side_by_side(around, *columns)

    def by_choice() -> Ints:
        return find_record_starts(around, *columns)

    def by_zeros() -> Ints | None:
        # However many guesses it takes.
        with (
            patch.object(record_starts, "_MAX_ZEROS_PER_RECORD", 10**9),
            patch.object(record_starts, "_MAX_ZEROS_PER_BYTE", 1),
        ):
            return _find_by_zeros(around, start, end, count)

    results: list[list[int] | None] = []
    for way in (by_steps, side_by_side, by_zeros, by_choice):
        try:
            found = way()
            results.append(None if found is None else (found - start).tolist())
        except BadVarint:
            results.append(None)
    return tuple(results)


def assert_all_records_are_found(log: list[Record]) -> None:
    data = write_batch(log).data[HEADER:]
    truth = true_starts(data, len(log))
    by_steps, side_by_side, by_zeros, by_choice = found_starts(data, len(log))
    assert by_steps == truth
    assert side_by_side == truth
    assert by_zeros in (None, truth)
    assert by_choice == truth


@given(st.lists(records, min_size=1, max_size=30))
def test_all_ways_find_the_same_records(log: list[Record]) -> None:
    assert_all_records_are_found(log)


@given(st.lists(disguised, min_size=1, max_size=6))
def test_records_inside_of_records_are_not_mistaken_for_records(log: list[Record]) -> None:
    assert_all_records_are_found(log)
    written = write_batch(log)
    assert rows(unpack(join(written))) == read_log(written.data)


@given(st.lists(disguised, min_size=1, max_size=6))
def test_batches_inside_of_batches_are_not_mistaken_for_batches(log: list[Record]) -> None:
    inner = write_batch(log).data
    assert_all_records_are_found([Record(NOW, inner, inner * 3, (("batch", inner),)), *log, Record(NOW, None, inner)])


@pytest.mark.parametrize(
    "filling", [b"\0", b"\x80", b"\xff", b"\x02", b"\x02\0", b"\0\xfe", b"\x06\0\0\0", b"\x80\x80\0"]
)
@pytest.mark.parametrize("count", [1, 2, 300])
def test_payloads_full_of_one_thing_are_not_mistaken_for_records(filling: bytes, count: int) -> None:
    log = [
        Record(NOW, filling * (n % 7), filling * (n % 90), (("h", filling * (n % 3)),) * (n % 2)) for n in range(count)
    ]
    assert_all_records_are_found(log)


@given(st.integers(1, 4), st.integers(0, 5), look_alikes, look_alikes)
def test_a_false_chain_as_long_as_the_true_one_leads_nowhere(
    count: int, extra: int, before: bytes, after: bytes
) -> None:
    """The values are chains of any number of records themselves, and end where the true record ends."""
    chain = write_batch([Record(NOW, None, b"v" * n) for n in range(count + extra)]).data[HEADER:]
    swallow = b"\x08\0\0\0"  # a record of four bytes, of which the last is the true record's number of headers
    assert_all_records_are_found([Record(NOW, before, after + chain + swallow)] * count)


# Lengths that are right, too large, or encoded with more bytes than they need; and any bytes behind them.
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
def test_all_ways_refuse_the_same(data: bytes, count: int) -> None:
    """Whatever the data is, they agree on where its records are, or that it has none. The zeros may not tell."""
    by_steps, side_by_side, by_zeros, by_choice = found_starts(data, count)
    assert side_by_side == by_steps
    assert by_zeros in (None, by_steps)
    assert by_choice == (by_steps if count * SMALLEST <= len(data) else None)


def test_ordinary_records_are_found_by_their_zeros() -> None:
    """Otherwise the quick way would never be taken."""
    data = np.frombuffer(write_batch(numbered(5000, 80)).data, np.uint8)
    found = _find_by_zeros(data, HEADER, len(data), 5000)
    assert found is not None
    assert np.array_equal(found, _find_step_by_step(data, HEADER, len(data), 5000))


def test_values_of_zeros_take_neither_much_time_nor_memory() -> None:
    """If each zero were a candidate, 10 MB of them would take a second and 640 MB."""
    batches = join(write_batch([Record(NOW, None, bytes(100))] * 20_000))
    tracemalloc.start()
    try:
        found = unpack(batches)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == 20_000
    assert peak < 5 * batches.size


def test_many_batches_side_by_side_give_the_same_as_one_after_the_other() -> None:
    written = [write_batch(numbered(1 + n % 9, 60)).data for n in range(50)]
    data = np.frombuffer(b"".join(written), np.uint8)
    ends = np.cumsum([len(part) for part in written])
    starts = ends - [len(part) for part in written] + HEADER
    counts = np.array([1 + n % 9 for n in range(50)], np.int64)
    alone = [_find_step_by_step(data, int(a), int(b), int(n)) for a, b, n in zip(starts, ends, counts, strict=True)]
    assert np.array_equal(_find_side_by_side(data, starts, ends, counts), np.concatenate(alone))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=9), st.booleans()), min_size=1, max_size=8),
    st.lists(disguised, min_size=1, max_size=3),
)
def test_batches_of_records_of_one_length_among_others(
    kinds: list[tuple[int, bytes, bool]], others: list[Record]
) -> None:
    """The guess of one length finds them. It must notice a record of another length, also if the sum of bytes is the same."""
    log, offset = [], 0
    for count, value, uneven in kinds:
        rows_of_one = [Record(NOW, None, value)] * count
        odd = [Record(NOW, None, value + b"+"), Record(NOW, None, value[1:])] if uneven else []
        written = write_batch([*rows_of_one, *odd, *(others if uneven else [])] or others, base_offset=offset)
        log.append(emptied(written) if count == 5 and not uneven else written)
        offset = written.last_offset + 1
    batches = join(*log)
    assert rows(unpack(batches)) == read_log(batches.data)
