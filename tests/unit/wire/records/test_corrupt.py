"""Damaged batches whose CRC matches are refused as corrupt or read as something, and do no other harm."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records import columns
from mirrormaker.wire.records.arrow import to_table
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import Records, pack, unpack
from mirrormaker.wire.records.compression import compress
from tests.support.batches import (
    CODECS,
    GZIP,
    HEADER,
    LZ4,
    NONE,
    NOW,
    SNAPPY,
    ZSTD,
    Record,
    Written,
    stamp_crc,
    write_batch,
)
from tests.support.memory import growth
from tests.support.strategies import batches, look_alikes

MB = 1 << 20
# The places and types of numbers in a batch's header, without those of its producer.
BASE_OFFSET, LENGTH, ATTRIBUTES, LAST_DELTA, FIRST_TIME, MAX_TIME, COUNT = (
    (0, ">q"), (8, ">i"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (57, ">i"),
)  # fmt: skip
# Varints that are larger than they should be, or do not end.
LONG = [
    b"\xff" * 9 + b"\x01",
    b"\xfe" + b"\xff" * 8 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\xff" * 12,
    b"\x80" * 4 + b"\0",
]


def outcome(data: bytes | bytearray) -> str:
    """Take fetched bytes through all steps of the records lane. Any error but CorruptBatch comes out.

    Records that are unpacked together and piece by piece must be the same, and be refused alike.
    """
    whole, in_pieces = outcome_of(data, _unpack_together), outcome_of(data, _unpack_in_pieces)
    assert whole == in_pieces
    return whole


def _unpack_together(run: Batches) -> list[Records]:
    return [unpack(run, 64 * MB)]


def _unpack_in_pieces(run: Batches) -> list[Records]:
    with patch.object(columns, "MOST_RECORDS", 3):
        return [piece.records for piece in columns.unpack_in_pieces(run, 64 * MB, 50)]


def outcome_of(data: bytes | bytearray, way: Callable[[Batches], list[Records]]) -> str:
    try:
        for run in split(memoryview(data)):
            if isinstance(run, Batches):
                run.check()
                for found in way(run):
                    found.keys()
                    to_table(found).validate(full=True)
                    if len(found):
                        pack(found, [0, len(found)])
    except CorruptBatch as error:
        assert str(error)
        return "refused"
    return "read"


def repacked(payload: bytes, codec: int, count: int) -> bytes:
    """Return a batch around any payload, with matching length and CRC."""
    packed = bytes(compress(codec, payload)) if codec != NONE else payload
    data = bytearray(write_batch([Record(NOW, None, None)]).data[:HEADER] + packed)
    put(data, LENGTH, len(data) - 12)
    put(data, ATTRIBUTES, codec)
    put(data, LAST_DELTA, max(0, count - 1))
    put(data, COUNT, count)
    stamp_crc(data)
    return bytes(data)


def put(data: bytearray, field: tuple[int, str], number: int) -> None:
    struct.pack_into(field[1], data, field[0], number)


def only(data: bytes | bytearray) -> Batches:
    return Batches.of(Batch(memoryview(bytes(data))))


# -- anything


@given(batches(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_changed_anywhere(written: Written, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(written.data)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    stamp_crc(damaged)
    outcome(damaged)


@given(batches(), st.integers(0), st.integers(0, 10))
def test_bytes_lost_from_the_middle_or_the_end(written: Written, at: int, size: int) -> None:
    damaged = bytearray(written.data)
    at = HEADER + at % (len(damaged) - HEADER)
    del damaged[at : at + size or len(damaged)]
    put(damaged, LENGTH, len(damaged) - 12)
    stamp_crc(damaged)
    outcome(damaged)


@given(
    batches(),
    st.sampled_from([BASE_OFFSET, LENGTH, ATTRIBUTES, LAST_DELTA, FIRST_TIME, MAX_TIME, COUNT]),
    st.one_of(st.sampled_from([0, 1, -1, 1 << 63, (1 << 63) - 1]), st.integers(0, (1 << 64) - 1)),
)
def test_a_number_changed_in_the_header(written: Written, field: tuple[int, str], number: int) -> None:
    damaged = bytearray(written.data)
    size = struct.calcsize(field[1])
    damaged[field[0] : field[0] + size] = (number % (1 << 64)).to_bytes(8, "big")[-size:]
    stamp_crc(damaged)
    outcome(damaged)


def test_offsets_that_do_not_fit_into_64_bits_are_refused() -> None:
    damaged = bytearray(write_batch([Record(NOW, None, b"value")] * 8).data)
    put(damaged, BASE_OFFSET, (1 << 63) - 4)
    stamp_crc(damaged)
    assert outcome(damaged) == "refused"


@pytest.mark.parametrize("codec", CODECS)
@given(st.lists(look_alikes | st.sampled_from(LONG), max_size=10).map(b"".join), st.integers(-1, 40))
def test_records_of_anything_at_all(codec: int, payload: bytes, count: int) -> None:
    outcome(repacked(payload, codec, count))


@pytest.mark.parametrize("seed", range(4))
def test_records_damaged_in_many_ways_before_they_were_compressed(seed: int) -> None:
    """More cases than Hypothesis has time for: numbers too large, bytes lost, doubled or replaced."""
    luck = random.Random(seed)
    seen: Counter[str] = Counter()
    clean = [write_batch(log).data[HEADER:] for log in _logs(luck)]
    for _ in range(800):
        payload = bytearray(luck.choice(clean))
        count = _count(payload)
        for _ in range(luck.choice([1, 1, 1, 2, 5])):
            at = luck.randrange(len(payload) + 1)
            new = luck.choice([b"", bytes([luck.randrange(256)]), luck.choice(LONG), payload[at : at + 9] * 2])
            payload[at : at + luck.choice([0, 1, len(new), 20])] = new
        seen[outcome(repacked(bytes(payload), luck.choice(CODECS), count))] += 1
    assert min(seen["read"], seen["refused"]) > 10, seen


def _logs(luck: random.Random) -> list[list[Record]]:
    def some() -> bytes | None:
        return luck.choice([None, b"", luck.randbytes(luck.randrange(60)), bytes(luck.randrange(200)), b"\xff" * 9])

    def one() -> Record:
        headers = tuple((luck.choice(["", "a", "é"]), some()) for _ in range(luck.choice([0, 0, 1, 3])))
        return Record(NOW + luck.randrange(-999, 999), some(), some(), headers)

    return [[one() for _ in range(count)] for count in (1, 1, 2, 5, 30, 300)]


def _count(payload: bytes | bytearray) -> int:
    """Return the number of records in undamaged data."""
    count, at = 0, 0
    while at < len(payload):
        size, at = decode_varint(payload, at)
        at += size
        count += 1
    return count


# -- wrong numbers


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize("claim", [-(2**31), -1, 0, 1, "one less", "one more", 10_000, 2**31 - 1])
def test_a_wrong_number_of_records_is_refused(codec: int, size: int, claim: int | str) -> None:
    counts = {"one less": size - 1, "one more": size + 1}
    count = counts[claim] if isinstance(claim, str) else claim
    data = bytearray(write_batch([Record(NOW, b"k" * 30, b"v" * 60)] * size, codec=codec).data)
    put(data, COUNT, count)
    stamp_crc(data)
    batch = only(data)
    if count == size:
        assert len(unpack(batch)) == size
        return
    # The header is kept after the first time: it must be refused the second time too.
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            unpack(batch)


def test_offsets_that_count_backwards_are_refused() -> None:
    rows = [Record(NOW, None, b"v")] * 3
    for deltas in ([0, 2, 1], [0, 1, 1], [-1, 0, 1]):
        with pytest.raises(CorruptBatch, match="do not increase"):
            unpack(only(write_batch(rows, deltas=deltas).data))
    overlapping = write_batch(rows, base_offset=10).data + write_batch(rows, base_offset=12).data
    (both,) = split(memoryview(overlapping))
    assert isinstance(both, Batches)
    with pytest.raises(CorruptBatch, match="do not increase"):
        unpack(both)


def test_a_record_behind_the_end_of_its_batch_is_refused() -> None:
    """The next batch begins there: one of the two records would be lost."""
    data = bytearray(write_batch([Record(NOW, None, b"v")] * 3, base_offset=10).data)
    put(data, LAST_DELTA, 1)
    stamp_crc(data)
    for way in (_unpack_together, _unpack_in_pieces):
        with pytest.raises(CorruptBatch, match="offset 12 lies behind the end"):
            way(only(data))


def test_a_header_that_counts_backwards_is_refused_each_time() -> None:
    data = bytearray(write_batch([Record(NOW, None, None)], base_offset=7).data)
    put(data, LAST_DELTA, -1)
    stamp_crc(data)
    batch = only(data)
    for check in (batch.check, lambda: batch.headers, lambda: unpack(batch)):
        with pytest.raises(CorruptBatch, match=r"offset 7 has an impossible record count"):
            check()


def test_one_damaged_batch_among_many_is_named_by_its_offset() -> None:
    log = [bytearray(write_batch([Record(NOW, None, b"v")], base_offset=n).data) for n in range(5)]
    log[3][-1] ^= 1
    (found,) = split(memoryview(b"".join(log)))
    assert isinstance(found, Batches)
    with pytest.raises(CorruptBatch, match="offset 3 does not match its CRC"):
        found.check()


@pytest.mark.parametrize("attributes", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_named(attributes: int) -> None:
    with pytest.raises(CorruptBatch, match=f"codec {attributes} does not exist"):
        unpack(only(write_batch([Record(NOW, None, b"v")], attributes=attributes).data))


# -- memory and time

SMALLEST_RECORD = b"\x0c\0\0\0\x01\x01\0"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (bytes(MB), 2**31 - 1),
        (bytes(MB), MB),
        (bytes(MB), MB // 7),
        (SMALLEST_RECORD * (MB // 7), MB // 7),
        (b"\x80" * MB, MB // 7),
        (b"\x80\x80\x80\x80\x01\0\0" * (MB // 7), MB // 7),
        (b"\xfe\xff\xff\xff\x0f\0\0" * (MB // 7), MB // 7),
        # One record, whose last field is a number of headers for which there would just be room.
        (b"\xfe\xff\x7f\0\0\0\x01\x01\xea\xff\x7f" + bytes(MB - 12), 1),
    ],
)
def test_a_lie_costs_neither_memory_nor_time(codec: int, payload: bytes, count: int) -> None:
    """1 MB of the smallest records takes 12 MB as columns."""
    data = repacked(payload, codec, count)
    began = time.monotonic()
    assert growth(lambda: outcome_of(data, _unpack_together)) < 32 * MB
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("count", [1, 64 * MB // 7])
def test_a_bomb_is_refused_before_it_fills_the_memory(codec: int, count: int) -> None:
    batch = only(repacked(bytes(64 * MB), codec, count))

    def run() -> None:
        with pytest.raises(CorruptBatch, match="more than 1048576 bytes"):
            unpack(batch, MB)

    assert growth(run) < 24 * MB
