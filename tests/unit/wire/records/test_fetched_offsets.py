"""The offsets of fetched batches: the base offset lies outside of the CRC, so a flipped bit in it must show."""

from __future__ import annotations

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.fetched_offsets import end_of, visible
from tests.support.batches import Record, Written, write_batch
from tests.support.strategies import logs

ROW = Record(1_700_000_000_000, None, b"value")


def log(*batches: tuple[int, int]) -> bytearray:
    """Return batches, given by first offset and number of records."""
    return bytearray().join(
        write_batch([ROW] * count, base_offset=at, leader_epoch=number).data
        for number, (at, count) in enumerate(batches)
    )


def end(data: bytearray, asked: int) -> tuple[int, int]:
    return end_of(list(split(memoryview(data))), asked)


def old_messages(*offsets: int) -> bytearray:
    """Return uncompressed messages of format 1 without keys and values; nobody checks their CRCs here."""
    body = struct.pack(">Ibbqii", 0, 1, 0, 0, -1, -1)
    return bytearray().join(struct.pack(">qi", offset, len(body)) + body for offset in offsets)


@pytest.mark.parametrize("several", [1, 12])
def test_the_end_and_the_epoch_are_those_of_the_last_batch(several: int) -> None:
    data = log(*((100 + 10 * number, 10) for number in range(several)))
    after = 100 + 10 * several
    assert end(data, 100) == (after, several - 1)


@pytest.mark.parametrize("several", [2, 12])
def test_the_first_batch_may_begin_before_the_offset_and_compaction_may_leave_gaps(several: int) -> None:
    data = log((95, 10), *((200 + 20 * number, 10) for number in range(several)))
    assert end(data, 100)[0] == 200 + 20 * (several - 1) + 10


@pytest.mark.parametrize("several", [1, 12])
@pytest.mark.parametrize(("damaged", "offset"), [(0, 50), (1, 105), (1, 100), (2, 0), (1, -5), (2, 1 << 62)])
def test_batches_in_another_order_are_refused(several: int, damaged: int, offset: int) -> None:
    places = [(100 + 10 * number, 10) for number in range(3)] + [(500 + number, 1) for number in range(several)]
    places[damaged] = (offset, 10)
    with pytest.raises(CorruptBatch):
        end(log(*places), 100)


@pytest.mark.parametrize("several", [1, 12])
def test_a_negative_distance_to_the_last_offset_is_refused(several: int) -> None:
    data = log(*((100 + 10 * number, 10) for number in range(several)))
    data[23:27] = struct.pack(">i", -1)
    with pytest.raises(CorruptBatch):
        end(data, 95)


def test_old_messages_are_held_to_the_same_rules() -> None:
    assert end(old_messages(100, 101, 105), 100) == (106, -1)
    for wrong in (old_messages(99), old_messages(100, 100), old_messages(101, 100)):
        with pytest.raises(CorruptBatch):
            end(wrong, 100)


def test_formats_that_follow_each_other_are_one_log() -> None:
    assert end(old_messages(100, 101) + log((102, 10)), 100)[0] == 112
    with pytest.raises(CorruptBatch):
        end(old_messages(100, 103) + log((102, 10)), 100)


def visible_end(data: bytearray, asked: int, high_watermark: int) -> int:
    """Return the offset after the visible batches; check that they are a beginning of what was fetched."""
    runs, after = visible(list(split(memoryview(data))), asked, high_watermark)
    kept = b"".join(run if isinstance(run, memoryview) else run.data[run.bounds[0] : run.bounds[-1]] for run in runs)
    assert data.startswith(kept)
    assert end_of(runs, asked)[0] == after
    return after


@pytest.mark.parametrize("several", [3, 12])
def test_only_batches_up_to_the_high_watermark_are_visible(several: int) -> None:
    data = log(*((100 + 10 * number, 10) for number in range(several)))
    whole = 100 + 10 * several
    for high_watermark, wanted in [(whole, whole), (whole + 9, whole), (whole - 1, whole - 10), (110, 110), (119, 110)]:
        assert visible_end(data, 105, high_watermark) == wanted
    assert visible_end(data, 105, -1) == whole, "the broker does not tell"
    assert visible_end(bytearray(), 105, 0) == 105
    with pytest.raises(CorruptBatch, match="the high watermark is 109"):
        visible_end(data, 105, 109)


def test_old_messages_beyond_the_high_watermark_are_left_out_one_by_one() -> None:
    data = old_messages(100, 101) + log((102, 10), (112, 10))
    assert [visible_end(data, 100, high_watermark) for high_watermark in (122, 121, 111, 101)] == [122, 112, 102, 101]
    with pytest.raises(CorruptBatch):
        visible_end(data, 100, 100)


@given(logs(max_size=20), st.data())
def test_any_log_is_taken_and_no_flipped_bit_moves_the_position_back(whole: list[Written], data: st.DataObject) -> None:
    assume(whole)
    records = bytearray().join(written.data for written in whole)
    asked, after = whole[0].base_offset, whole[-1].last_offset + 1
    assert end(records, asked) == (after, whole[-1].leader_epoch)
    (run,) = split(memoryview(records))
    assert isinstance(run, Batches)
    place = run.bounds[data.draw(st.integers(0, len(whole) - 1))]
    bit = data.draw(st.integers(0, 63))
    records[place + bit // 8] ^= 1 << bit % 8
    try:
        found, _ = end(records, asked)
    except CorruptBatch:
        return
    assert asked < found
