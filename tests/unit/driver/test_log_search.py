"""Reading logs for an adoption: which records count, and how much is read at most."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.driver import log_search
from mirrormaker.driver.log_search import LogRange, Tails, find_tails, read_sample, read_tails, replicated_end
from mirrormaker.errors import CorruptBatch, Unanswered
from mirrormaker.model import tail_search
from mirrormaker.model.tail_search import TAIL, Conclusion, Doubt, Mark, Tail
from mirrormaker.wire.records.columns import unpack
from tests.support.batches import (
    ABORT,
    COMMIT,
    NOW,
    Record,
    Written,
    flip_last_bit,
    join,
    marker,
    move_batch,
    numbered,
    times,
    write_batch,
)
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 3)


def log_of(*batches: Sequence[Record], producer_id: int = -1, first: int = 0) -> list[Written]:
    """Return batches that follow each other, of one producer."""
    log, at = [], first
    for records in batches:
        log.append(
            write_batch(records, base_offset=at, producer_id=producer_id, producer_epoch=0, base_sequence=at - first)
        )
        at += len(records)
    return log


def in_batches(records: Sequence[Record], size: int) -> list[Sequence[Record]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


def marks(records: Sequence[Record], *, timed: bool = True) -> Tail:
    columns = unpack(join(write_batch(records)))
    return tuple(Mark.of(columns, row, timed=timed) for row in range(len(records)))


def whole(log: Sequence[Written]) -> LogRange:
    return LogRange(log[0].base_offset, log[-1].last_offset + 1)


def find(cluster: ScriptedLogs, tails: Sequence[Tail], *, read_committed: bool = False) -> Conclusion:
    log = whole(cluster.logs[KEY])
    return asyncio.run(find_tails(cluster, KEY, log, Tails(list(tails), None), read_committed=read_committed))


def tails_in(cluster: ScriptedLogs) -> Tails:
    return asyncio.run(read_tails(cluster, KEY, whole(cluster.logs[KEY])))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a search give up soon, and read little at a time."""
    monkeypatch.setattr(tail_search, "SLACK", 600)
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 400)


# -- the tails of a target


def test_the_last_records_of_each_idempotent_producer_are_kept() -> None:
    ours, others = numbered(300, 60), [Record(NOW, b"x", b"%d" % n) for n in range(20)]
    log = log_of(*in_batches(ours[:290], 7), producer_id=9)
    at = log[-1].last_offset + 1
    log += log_of(others[:5], first=at)
    log.append(write_batch(others[5:9], base_offset=at + 5, producer_id=8, producer_epoch=0, transactional=True))
    log.append(marker(COMMIT, 8, at + 9))
    log += log_of(others[10:], producer_id=7, first=at + 10)
    log.append(write_batch(ours[290:], base_offset=at + 20, producer_id=9, producer_epoch=0, base_sequence=290))
    found = tails_in(ScriptedLogs({KEY: log}))
    assert set(found.tails) == {marks(ours[-TAIL:]), marks(others[10:])}
    assert found.latest is None


def test_a_newer_epoch_of_a_producer_id_is_another_producer() -> None:
    first, second = [Record(NOW, None, b"first")], [Record(NOW, None, b"second")]
    log = [
        write_batch(first, producer_id=9, producer_epoch=0, base_sequence=0),
        write_batch(second, base_offset=1, producer_id=9, producer_epoch=1, base_sequence=0),
    ]
    assert set(tails_in(ScriptedLogs({KEY: log})).tails) == {marks(first), marks(second)}


def test_only_the_last_ten_thousand_offsets_are_read() -> None:
    log = log_of(*in_batches([Record(NOW + n, None, b"%d" % n) for n in range(30_000)], 500), producer_id=9)
    cluster = ScriptedLogs({KEY: log})
    (tail,) = tails_in(cluster).tails
    assert tail == marks(log[-1].records[-TAIL:])
    assert cluster.bytes <= sum(len(batch.data) for batch in log[-21:])


def test_large_records_are_read_only_near_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_TAIL_BYTES", 40_000)
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 10_000)
    records = [Record(NOW + n, None, bytes([n % 256]) * 5000) for n in range(1000)]
    log = log_of(*in_batches(records, 1), producer_id=9)
    cluster = ScriptedLogs({KEY: log})
    (tail,) = tails_in(cluster).tails
    assert 1 <= len(tail) < TAIL
    assert tail == marks(records[-len(tail) :])
    # 10,000 offsets, an eighth of them, and so on: each time until 40,000 bytes are read.
    assert cluster.bytes <= 5 * 50_100


def test_a_time_that_the_target_has_set_is_not_compared() -> None:
    records = numbered(20, 60)
    log = [write_batch(records, producer_id=9, producer_epoch=0, base_sequence=0, append_time=NOW + 5000)]
    found = tails_in(ScriptedLogs({KEY: log}))
    assert found.tails == [marks(records, timed=False)]
    assert found.latest == NOW + 5000 + log_search.CLOCK_SKEW_MS


def test_a_damaged_tail_is_an_error() -> None:
    (batch,) = log_of(numbered(20, 60), producer_id=9)
    data = bytearray(batch.data)
    data[-1] ^= 1
    damaged = Written(bytes(data), *list(vars(batch).values())[1:])
    with pytest.raises(CorruptBatch):
        tails_in(ScriptedLogs({KEY: [damaged]}))


@pytest.mark.parametrize(("number", "offset"), [(1, 290), (2, 10_000), (0, 5), (1, 0)])
def test_a_damaged_base_offset_does_not_end_a_tail_early(
    monkeypatch: pytest.MonkeyPatch, number: int, offset: int
) -> None:
    """The mirror would go on too early, and send records twice."""
    records = numbered(300, 60)
    log = log_of(*in_batches(records, 10), producer_id=9)
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 3 * len(log[0].data))
    cluster = ScriptedLogs({KEY: log})
    tails_in(cluster)
    undamaged, cluster.fetches = cluster.fetches, 0
    cluster.damage = times(1, move_batch(number, offset))
    assert tails_in(cluster).tails == [marks(records[-TAIL:])]
    # Of a last batch beyond the high watermark, those before it count.
    assert cluster.fetches == (undamaged if number == 2 else undamaged + 1)


def test_a_tail_whose_answers_stay_damaged_is_an_error_after_three_of_them() -> None:
    for damage in move_batch(1, 5), move_batch(0, 10_000), flip_last_bit:
        cluster = ScriptedLogs({KEY: log_of(*in_batches(numbered(30, 60), 10), producer_id=9)})
        cluster.damage = damage
        with pytest.raises(CorruptBatch):
            tails_in(cluster)
        assert cluster.fetches == 3


def test_a_damaged_header_does_not_hide_a_batch_of_a_tail() -> None:
    def of_no_producer(records: bytearray) -> None:
        records[-len(last) + 43] ^= 0x80  # the sign of its producer id

    records = numbered(30, 60)
    log = log_of(*in_batches(records, 10), producer_id=9)
    last, cluster = log[-1].data, ScriptedLogs({KEY: log})
    cluster.damage = times(1, of_no_producer)
    assert tails_in(cluster).tails == [marks(records)]
    assert cluster.fetches == 2


# -- the search on the source


def test_a_search_does_not_pass_over_records_for_a_damaged_base_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    records = numbered(300, 60)
    log = log_of(*in_batches(records, 10))
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 3 * len(log[0].data))
    cluster = ScriptedLogs({KEY: log})
    cluster.damage = times(1, move_batch(1, 299))
    assert find(cluster, [marks(records[40:90])]) == 90
    assert cluster.fetches <= 11


def test_a_tail_is_found_and_little_is_read_for_it() -> None:
    records = [Record(NOW + n, None, b"%d" % n * 20) for n in range(50_000)]
    cluster = ScriptedLogs({KEY: log_of(*in_batches(records, 100))})
    assert find(cluster, [marks(records[40_000:40_050])]) == 40_050
    # The log ends before the slack does.
    assert cluster.bytes <= sum(len(batch.data) for batch in cluster.logs[KEY][400:])


def test_markers_and_aborted_records_are_passed_over() -> None:
    records = numbered(60, 40)
    log = log_of(records[:20])
    log.append(write_batch(numbered(5, 90), base_offset=20, producer_id=4, producer_epoch=0, transactional=True))
    log.append(marker(ABORT, 4, 25))
    log.append(write_batch(records[20:30], base_offset=26, producer_id=4, producer_epoch=0, transactional=True))
    log.append(marker(COMMIT, 4, 36))
    log += log_of(records[30:], first=37)
    cluster = ScriptedLogs({KEY: log})
    cluster.aborted = [(4, 20)]
    assert find(cluster, [marks(records[10:45])], read_committed=True) == 52
    # A mirror of uncommitted records would have put the aborted ones between these.
    assert find(cluster, [marks(records[10:45])]) is Doubt.PARTLY


def test_a_tail_that_ends_inside_of_a_compressed_batch_is_found() -> None:
    records = numbered(90, 40)
    log = [write_batch(records[:45], codec=3), write_batch(records[45:], base_offset=45, codec=4)]
    assert find(ScriptedLogs({KEY: log}), [marks(records[30:70])]) == 70


def test_a_search_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "SEARCH_BYTES", 50_000)
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 5_000)
    records = [Record(NOW + n % 2, None, b"%d" % n * 20) for n in range(5000)]
    cluster = ScriptedLogs({KEY: log_of(*in_batches(records, 20))})
    assert find(cluster, [marks(records[4000:4050])]) is Doubt.TOO_FAR
    assert cluster.bytes <= 55_000
    assert find(cluster, [marks(records[10:60])]) is Doubt.TOO_FAR


def test_compressed_records_count_as_long_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "SEARCH_BYTES", 1_000_000)
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 5_000)
    batches = [write_batch([Record(NOW, None, bytes(200_000))], base_offset=n, codec=4) for n in range(1000)]
    cluster = ScriptedLogs({KEY: batches})
    assert find(cluster, [marks([Record(NOW, None, b"else")])]) is Doubt.TOO_FAR
    assert cluster.fetches < 10


def test_a_search_that_is_ambiguous_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_FETCH_BYTES", 5_000)
    records = [Record(NOW, None, b"beat")] * 5000
    cluster = ScriptedLogs({KEY: log_of(*in_batches(records, 20))})
    assert find(cluster, [marks(records[:TAIL])]) is Doubt.EQUAL
    assert cluster.fetches == 1


@st.composite
def timed_logs(draw: st.DrawFn) -> tuple[list[Record], list[int], list[tuple[int, int]]]:
    """Draw records in the order of their times, the sizes of their batches, and tails as ranges of records."""
    steps = draw(st.lists(st.sampled_from([0, 0, 1, 5, 1000]), min_size=1, max_size=80))
    numbers, time = count(), NOW
    records = []
    for step in steps:
        time += step
        records.append(Record(time, None, b"%d" % next(numbers)))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ranges = []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(records) - 1))
        ranges.append((start, draw(st.integers(start + 1, min(len(records), start + 8)))))
    return records, sizes, ranges


@given(timed_logs(), st.booleans())
def test_a_search_by_time_finds_what_a_search_of_everything_finds(
    drawn: tuple[list[Record], list[int], list[tuple[int, int]]], with_others: bool
) -> None:
    records, sizes, ranges = drawn
    batches: list[Sequence[Record]] = []
    at = 0
    while at < len(records):
        size = sizes[len(batches) % len(sizes)]
        batches.append(records[at : at + size])
        at += size
    tails = [marks(records[start:stop]) for start, stop in ranges]
    if with_others:
        tails += [marks([Record(NOW + time, b"other", b"writer")]) for time in (0, 3, 2000, 50_000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_search, "SLACK", 300)
        patch.setattr(log_search, "_FETCH_BYTES", 200)
        assert find(ScriptedLogs({KEY: log_of(*batches)}), tails) == max(stop for _, stop in ranges)


@pytest.mark.usefixtures("impatient")
def test_time_without_wanted_records_is_jumped_over() -> None:
    day = 86_400_000
    week = [Record(NOW + n * day // 200, None, b"%d" % n) for n in range(7 * 200)]
    cluster = ScriptedLogs({KEY: log_of(*in_batches(week, 4))})
    other = marks([Record(NOW + 7 * day - 1000, None, b"somebody else")])
    assert find(cluster, [marks(week[20:40]), other]) == 40
    assert cluster.fetches < 30
    assert cluster.bytes < sum(len(batch.data) for batch in cluster.logs[KEY]) / 10


@pytest.mark.usefixtures("impatient")
def test_a_record_of_the_future_at_the_start_does_not_hide_the_others() -> None:
    records = [Record(NOW + 10**9, None, b"from the future"), *(Record(NOW + n, None, b"%d" % n) for n in range(400))]
    cluster = ScriptedLogs({KEY: log_of(*in_batches(records, 4))})
    assert find(cluster, [marks(records[300:350])]) == 350


# -- the rest


def test_a_sample_begins_at_its_offset() -> None:
    records = numbered(500, 30)
    cluster = ScriptedLogs({KEY: log_of(*in_batches(records, 50))})
    sample = asyncio.run(read_sample(cluster, KEY, LogRange(0, 500), 120, read_committed=False))
    assert sample is not None
    assert sample.offsets[0] == 120 and 0 < len(sample) <= log_search.SAMPLE
    assert asyncio.run(read_sample(cluster, KEY, LogRange(0, 500), 500, read_committed=False)) is None


def test_records_that_are_not_replicated_yet_are_waited_for() -> None:
    cluster = ScriptedLogs({KEY: log_of(numbered(20, 30), producer_id=9)})
    cluster.high_watermarks[KEY] = [10, 15]
    assert asyncio.run(replicated_end(cluster, KEY)) == 20


def test_a_high_watermark_that_stays_behind_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_HIGH_WATERMARK_PATIENCE", 0.3)
    cluster = ScriptedLogs({KEY: log_of(numbered(20, 30), producer_id=9)})
    cluster.high_watermarks[KEY] = [10] * 100
    with pytest.raises(Unanswered):
        asyncio.run(replicated_end(cluster, KEY))
