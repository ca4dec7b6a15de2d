"""Where a log has the last records of another one, compared with a search that tries every place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.model import tail_search
from mirrormaker.model.tail_search import ENOUGH_UNTIMED, TAIL, Conclusion, Doubt, Mark, SearchTimes, Tail, TailSearch
from mirrormaker.wire.records.arrow import from_columns
from mirrormaker.wire.records.columns import Records


class Row(NamedTuple):
    """A record of the log that is searched."""

    value: bytes
    timestamp: int


def columns(rows: Sequence[Row], offset: int = 0) -> Records:
    return from_columns(
        pa.array(range(offset, offset + len(rows)), pa.int64()),
        pa.array([row.timestamp for row in rows], pa.int64()),
        pa.array([None] * len(rows), pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
    )


def tail_of(rows: Sequence[Row], *, timed: bool = True) -> Tail:
    records = columns(rows)
    return tuple(Mark.of(records, row, timed=timed) for row in range(len(rows)))


def search(tails: Sequence[Tail], *slices: Sequence[Row], latest: int | None = None) -> Conclusion:
    """Search slices of a log that follow each other; an empty slice stands for records that were passed over."""
    found, offset = TailSearch(tails, latest), 0
    for rows in slices:
        if rows:
            found.see(columns(rows, offset))
        else:
            found.pass_over()
        offset += len(rows)
    return found.conclude()


def numbered(count: int, first: int = 0) -> list[Row]:
    return [Row(b"value-%d" % number, 1000 + number) for number in range(first, first + count)]


# -- a search that tries every place

Wanted = tuple[tuple[bytes, int | None], ...]


def naive(tails: Sequence[Wanted], log: Sequence[Row | None], latest: int | None) -> Conclusion:
    """Return where the log has the last of the tails; None in the log stands for records that were passed over."""

    def same(wanted: tuple[bytes, int | None], row: Row | None) -> bool:
        value, timestamp = wanted
        if row is None or row.value != value:
            return False
        if timestamp is not None:
            return row.timestamp == timestamp
        return latest is None or row.timestamp <= latest

    offsets, offset = [], 0
    for row in log:
        offsets.append(offset)
        offset += row is not None
    places: dict[Wanted, list[int]] = {}
    for tail in tails:
        size = len(tail)
        windows = [log[stop - size : stop] for stop in range(size, len(log) + 1)]
        places[tail] = [
            offsets[start + size - 1]
            for start, window in enumerate(windows)
            if all(same(wanted, row) for wanted, row in zip(tail, window, strict=True))
        ]
    if any(len(found) > 1 for found in places.values()):
        return Doubt.EQUAL
    proofs = {
        tail: found[0]
        for tail, found in places.items()
        if found
        and (len(tail) >= ENOUGH_UNTIMED or all(timestamp is not None and timestamp >= 0 for _, timestamp in tail))
    }
    last = max(proofs.values(), default=-1)
    for tail in tails:
        seen = [at for at, row in zip(offsets, log, strict=True) if row is not None and any(same(w, row) for w in tail)]
        if tail not in proofs and max(seen, default=-1) > last:
            return Doubt.PARTLY
    return last + 1 if proofs else None


values = st.sampled_from([b"a", b"b", b"cc", b"d"])
rows = st.builds(Row, values, st.integers(-1, 4))


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[Wanted], list[Row | None], int | None]:
    """Draw a log, and tails most of which are copied from it, unchanged or not quite."""
    log: list[Row | None] = draw(st.lists(rows | rows | rows | rows | st.none(), max_size=40))
    tails: list[Wanted] = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, max(0, len(log) - 1)))
        size = draw(st.integers(1, 14))
        copied = [row for row in log[start : start + size] if row is not None]
        if draw(st.integers(0, 3)) == 0:
            copied = draw(st.lists(rows, min_size=1, max_size=4))
        elif copied and draw(st.integers(0, 3)) == 0:
            copied[draw(st.integers(0, len(copied) - 1))] = draw(rows)
        timed = draw(st.booleans())
        if copied:
            tails.append(tuple((row.value, row.timestamp if timed else None) for row in copied))
    return tails, log, draw(st.none() | st.integers(0, 4))


@given(searches(), st.data())
def test_a_search_finds_what_a_search_of_every_place_finds(
    drawn: tuple[list[Wanted], list[Row | None], int | None], data: st.DataObject
) -> None:
    tails, log, latest = drawn
    marks = []
    for tail in tails:
        timed = all(timestamp is not None for _, timestamp in tail)
        marks.append(tail_of([Row(value, timestamp or 0) for value, timestamp in tail], timed=timed))
    slices: list[list[Row]] = [[]] if not log else []
    for row in log:
        if row is None:
            slices.append([])
        elif slices and slices[-1] and data.draw(st.booleans()):
            slices[-1].append(row)
        else:
            slices.append([row])
    assert search(marks, *slices, latest=latest) == naive(tails, log, latest)


# -- single rules


def test_a_tail_is_found_across_slices_of_one_record_each() -> None:
    log = numbered(200)
    tail = tail_of(log[70 : 70 + TAIL])
    assert search([tail], *([row] for row in log)) == 70 + TAIL
    assert search([tail], log) == 70 + TAIL
    assert search([tail], log[:100], log[100:]) == 70 + TAIL


def test_a_tail_that_the_log_has_twice_has_no_place() -> None:
    log = numbered(20)
    assert search([tail_of(log[5:10])], log, numbered(20)) is Doubt.EQUAL


def test_equal_records_are_told_apart_by_their_timestamps() -> None:
    log = [Row(b"beat", 1000 + number) for number in range(100)]
    assert search([tail_of(log[20:60])], log) == 60
    assert search([tail_of(log[20:60], timed=False)], log) is Doubt.EQUAL


def test_a_tail_without_its_middle_is_no_tail_but_a_doubt() -> None:
    log = numbered(30)
    assert search([tail_of(log[5:15])], log[:8] + log[9:]) is Doubt.PARTLY
    assert search([tail_of(log[5:15])], log[:8], [], log[8:]) is Doubt.PARTLY


def test_records_of_other_writers_are_not_found() -> None:
    others = [Row(b"other-%d" % number, 1000 + number) for number in range(50)]
    assert search([tail_of(others)], numbered(30)) is None
    assert search([tail_of(others), tail_of(numbered(10, 5))], numbered(30)) == 15
    assert search([], numbered(30)) is None


def test_the_last_one_of_several_tails_counts() -> None:
    log = numbered(30)
    assert search([tail_of(log[20:25]), tail_of(log[2:9])], log) == 25


def test_a_doubt_before_the_last_tail_does_not_count() -> None:
    log = numbered(30)
    broken = tail_of([log[2], log[4]])
    assert search([broken, tail_of(log[20:25])], log) == 25
    assert search([broken, tail_of(log[0:3])], log) is Doubt.PARTLY


def test_a_few_records_without_timestamps_prove_nothing() -> None:
    log = numbered(30)
    assert search([tail_of(log[:ENOUGH_UNTIMED], timed=False)], log) == ENOUGH_UNTIMED
    assert search([tail_of(log[: ENOUGH_UNTIMED - 1], timed=False)], log) is Doubt.PARTLY
    assert search([tail_of([Row(b"x", -1)])], [Row(b"x", -1)]) is Doubt.PARTLY


def test_a_record_that_was_made_after_the_last_append_was_not_mirrored() -> None:
    log = numbered(30)
    tail = tail_of(log[5:20], timed=False)
    assert search([tail], log, latest=1019) == 20
    assert search([tail], log, latest=1004) is None
    # The tail ends with records that the source got later: it is another time that the same records were written.
    assert search([tail], log, latest=1018) is Doubt.PARTLY


# -- times


def batches_of(times: Sequence[int], per_batch: int) -> list[list[int]]:
    return [list(times[at : at + per_batch]) for at in range(0, len(times), per_batch)]


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), max_size=60),
    st.integers(1, 4),
)
def test_no_batch_with_a_record_of_a_tail_is_left_out(tails: list[list[int]], log: list[int], per_batch: int) -> None:
    wanted = [tail_of([Row(b"x", time) for time in tail]) for tail in tails]
    times = SearchTimes(wanted)
    assert times.first == min(min(tail) for tail in tails)
    for batch in batches_of(log, per_batch):
        if not times.needs(max(batch)):
            assert not {time for tail in tails for time in tail} & set(batch)
        assert not times.note(batch[0], max(batch), tail_search.SLACK // 100)
        assert not times.is_over


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), max_size=60).map(sorted),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_tails_are_given_up_only_when_their_time_is_over(
    tails: list[list[int]], log: list[int], per_batch: int, sizes: int
) -> None:
    times = SearchTimes([tail_of([Row(b"x", time) for time in tail]) for tail in tails])
    for batch in batches_of(log, per_batch):
        given_up = times.note(batch[0], max(batch), tail_search.SLACK // sizes + 1)
        ahead = [tail for tail in tails if max(tail) >= batch[0]]
        assert not ahead or not times.is_over
        if ahead:
            assert times.first is not None
            assert times.first <= min(min(tail) for tail in ahead)
        if given_up and not ahead:
            assert times.is_over
    for _ in range(sizes + 1):
        times.note(31, 31, tail_search.SLACK // sizes + 1)
    assert times.is_over


@pytest.mark.parametrize("time", [None, -1])
def test_a_tail_without_timestamps_may_be_anywhere(time: int | None) -> None:
    times = SearchTimes([(Mark(1, 1, time),)])
    assert times.first is None and times.needs(-1)
    assert not times.note(5, 5, 100 * tail_search.SLACK)
    assert not times.is_over


def test_a_tail_without_timestamps_ends_before_the_last_append() -> None:
    times = SearchTimes([(Mark(1, 1, None),)], latest=10)
    assert times.first is None and times.needs(-1)
    assert not times.note(0, 5, 100 * tail_search.SLACK)
    assert times.note(11, 11, 2 * tail_search.SLACK)
    assert times.is_over
