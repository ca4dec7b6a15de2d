"""Partitions by key, compared with kafka-python and Kafka's own tests; and partitions of records without a key."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from mirrormaker.wire.records.arrow import slices
from mirrormaker.wire.records.murmur2 import murmur2, partitions, partitions_without_key
from mirrormaker.wire.records.varints import Data, Ints

# From UtilsTest in Kafka's own tests.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
NOISE = random.Random(7).randbytes(1 << 20)


def columns(keys: list[bytes], around: bytes = b"") -> tuple[Data, Ints, Ints]:
    """Put keys one after the other, with other bytes between them; return the bytes, and where the keys lie."""
    sizes = np.array([len(key) for key in keys], np.int64)
    starts = np.cumsum(sizes + len(around)) - sizes
    data = np.frombuffer(b"".join(around + key for key in keys), np.uint8)
    assert slices(data, starts, sizes).to_pylist() == keys
    return data, starts, sizes


# -- with a key


def test_hashes_are_those_of_java() -> None:
    assert murmur2(*columns(list(JAVA))).view(np.int32).tolist() == list(JAVA.values())


@given(st.lists(st.binary(max_size=40), max_size=20), st.binary(max_size=3))
@example([b""], b"")
@example([b"", b"\x80", b"\xff\xff\xff", b"\x80" * 4, b""], b"\xff")
def test_hashes_are_those_of_kafka_python(keys: list[bytes], around: bytes) -> None:
    assert murmur2(*columns(keys, around)).tolist() == [kafka_murmur2(key) for key in keys]


def test_keys_of_every_length_are_hashed_together_and_alone() -> None:
    keys = [NOISE[size : 2 * size] for size in range(301)]
    wanted = [kafka_murmur2(key) for key in keys]
    assert murmur2(*columns(keys)).tolist() == wanted
    assert murmur2(*columns(keys[::-1])).tolist() == wanted[::-1]
    assert [murmur2(*columns([key])).item() for key in keys] == wanted


def test_a_key_of_a_megabyte_is_hashed_among_short_ones() -> None:
    keys = [b"a", NOISE, b"", NOISE[:-3], b"b"]
    assert murmur2(*columns(keys)).tolist() == [kafka_murmur2(key) for key in keys]


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(1, 1000))
def test_partitions_are_those_of_java(keys: list[bytes], count: int) -> None:
    assert partitions(*columns(keys), count).tolist() == [(kafka_murmur2(key) & 0x7FFFFFFF) % count for key in keys]


# -- without one

COUNTS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 50, 64, 100, 1000]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 10])
def test_records_without_a_key_are_spread_evenly(count: int, distance: int) -> None:
    """Also if transactions leave holes between the offsets, and already over few records."""
    for source, start in ((0, 0), (1, 0), (17, 10**12), (999, 2**62)):
        chosen = partitions_without_key(source, start + distance * np.arange(200 * count, dtype=np.int64), count)
        shares = np.bincount(chosen, minlength=count)
        assert len(shares) == count
        assert shares.min() > 180
        assert shares.max() < 220


@pytest.mark.parametrize("count", [count for count in COUNTS if count > 2])
def test_neighbours_go_to_different_partitions(count: int) -> None:
    for source in (0, 3, 500):
        chosen = partitions_without_key(source, np.arange(10_000, dtype=np.int64) + 10**9, count)
        assert (np.diff(chosen) != 0).all()
        if count > 4:
            assert (chosen[2:] != chosen[:-2]).all()


@given(st.integers(0, 10_000), st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.integers(1, 10_000))
def test_a_record_always_goes_to_the_same_partition(source: int, offsets: list[int], count: int) -> None:
    """Whoever sends it, for the first time or again, and whichever other records are sent with it."""
    together = partitions_without_key(source, np.array(offsets, np.int64), count)
    assert together.dtype == np.int64
    assert together.min() >= 0
    assert together.max() < count
    assert [
        partitions_without_key(source, np.array([offset], np.int64), count).item() for offset in offsets
    ] == together.tolist()


def test_the_choice_is_written_in_stone() -> None:
    """If the choice changed, a record that is sent again would be in two partitions."""
    assert partitions_without_key(3, np.arange(1000, 1010, dtype=np.int64), 7).tolist() == [
        6,
        3,
        1,
        5,
        2,
        6,
        4,
        1,
        5,
        3,
    ]


def test_source_partitions_do_not_all_begin_with_the_same_target() -> None:
    first = [partitions_without_key(source, np.zeros(1, np.int64), 10).item() for source in range(100)]
    assert np.bincount(first, minlength=10).min() > 5
