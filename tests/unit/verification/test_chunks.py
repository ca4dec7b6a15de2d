"""Checksums of records, the chunks that they make, and the pairs of equal chunks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.verification.chunks import Chunk, Chunker, Series, join_chunks
from mirrormaker.verification.hashing import Hashes, hash_ranges, hash_records
from mirrormaker.verification.matching import TopicMatch, match_chunks
from mirrormaker.verification.plan import TARGET, PartitionRange, TopicPlan
from tests.support.writing import Row, many, rows

_RNG = np.random.default_rng(5)
_HASHES = _RNG.integers(0, 1 << 63, 20_000, dtype=np.uint64)


# -- checksums


@given(st.lists(st.binary(max_size=1500), max_size=30), st.integers(0, 9))
def test_equal_bytes_have_equal_checksums_wherever_they_lie(parts: list[bytes], shift: int) -> None:
    data = np.frombuffer(b"x" * shift + b"".join(parts), np.uint8)
    sizes = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(sizes) - sizes + shift
    found = hash_ranges(data, starts, sizes).tolist()
    alone = [int(hash_ranges(np.frombuffer(p, np.uint8), np.array([0]), np.array([len(p)]))[0]) for p in parts]
    assert found == alone
    assert len(set(found)) == len(set(parts))


_ROW = Row(b"key", b"value", 5, (("h", b"1"),))


@pytest.mark.parametrize(
    "other",
    [
        _ROW._replace(key=b"kez"), _ROW._replace(key=None), _ROW._replace(value=b"valuf"), _ROW._replace(value=None),
        _ROW._replace(timestamp=6), _ROW._replace(headers=()), _ROW._replace(headers=(("h", b"2"),)),
        _ROW._replace(key=b"keyv", value=b"alue"),
    ],
)  # fmt: skip
def test_every_field_counts(other: Row) -> None:
    one, two = hash_records(rows([_ROW, other]), True).tolist()
    assert one != two


def test_timestamps_count_only_where_both_sides_keep_them() -> None:
    records = rows([Row(b"key", b"value", 5), Row(b"key", b"value", 6)])
    assert len(set(hash_records(records, False).tolist())) == 1
    assert len(set(hash_records(records, True).tolist())) == 2


def test_headers_count_only_where_both_sides_keep_them() -> None:
    with_headers, without = rows([_ROW, _ROW._replace(value=None)]), rows([_ROW._replace(headers=()), _ROW])
    one, other = hash_records(with_headers, True, False).tolist()
    assert hash_records(without, True, False).tolist() == [one, one] != [one, other]


# -- chunks


def chunks(side: int, hashes: Hashes, cuts: list[int], first: int = 0, number: int = 0) -> list[Chunk]:
    """As if read in spans that end at `cuts`, each in pieces of 700 records."""
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(hashes)], strict=True):
        chunker = Chunker(side, "t", 0, 6)
        for at in range(start, stop, 700):
            part = slice(at, min(at + 700, stop))
            count = part.stop - part.start
            offsets = np.arange(part.start, part.stop) + first
            found += chunker.add(hashes[part], np.full(count, number), offsets, np.zeros(count, np.bool_))
        found += chunker.open_chunks()
    return list(join_chunks(found))


@given(st.lists(st.integers(0, 20_000), max_size=5).map(sorted))
def test_the_same_records_become_the_same_chunks_however_they_are_read(cuts: list[int]) -> None:
    assert chunks(0, _HASHES, cuts) == chunks(0, _HASHES, [])


def test_chunks_know_their_records() -> None:
    found = chunks(0, _HASHES, [])
    assert sum(chunk.records for chunk in found) == 20_000
    assert all(chunk.last - chunk.first + 1 == chunk.records for chunk in found)
    assert 200 < len(found) < 450
    swapped = _HASHES.copy()
    swapped[[100, 101]] = swapped[[101, 100]]
    assert sum(a.checksum != b.checksum for a, b in zip(found, chunks(0, swapped, []), strict=True)) == 1


def test_lines_that_lie_among_each_other_are_told_apart() -> None:
    chunker = Chunker(TARGET, "t", 0, 6)
    numbers = _RNG.integers(0, 3, 20_000)
    found = chunker.add(_HASHES, numbers, np.arange(20_000), np.zeros(20_000, np.bool_)) + chunker.open_chunks()
    for number in range(3):
        alone = chunks(TARGET, _HASHES[numbers == number], [], number=number)
        mine = [chunk for chunk in found if chunk.series.selector == number]
        assert [(c.checksum, c.records) for c in mine] == [(c.checksum, c.records) for c in alone]


# -- pairs


def plan(source_start: int = 0, target_start: int = 0) -> TopicPlan:
    return TopicPlan(
        "t",
        by_key=frozenset(),
        sources=(PartitionRange(0, "t", 0, source_start, source_start, 1 << 40, 1 << 40),),
        targets=(PartitionRange(TARGET, "t", 0, target_start, target_start, 1 << 40, 1 << 40),),
    )


def test_equal_logs_need_no_closer_look() -> None:
    found = match_chunks(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, _HASHES, [5000], first=99)])
    assert (found.source_only, found.target_only, found.records) == ([], [], 20_000)
    assert len(found.edge_pairs()) == 2


def test_one_difference_leaves_one_chunk_on_each_side() -> None:
    changed = _HASHES.copy()
    changed[12_345] ^= np.uint64(1 << 40)
    found = match_chunks(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, changed, [])])
    assert len(found.source_only) == len(found.target_only) == 1
    assert found.source_only[0].first <= 12_345 <= found.source_only[0].last
    assert len(found.edge_pairs()) == 4


def test_a_chunk_that_is_there_twice_is_looked_at_with_its_counterpart() -> None:
    """A doubled record that ends a chunk makes a chunk of its own; only its equal tells whose double it is."""
    ends = [chunk.last + 1 for chunk in chunks(0, _HASHES, []) if chunk.first > 1000]
    doubled = np.concatenate([_HASHES[: ends[1]], _HASHES[ends[0] : ends[1]], _HASHES[ends[1] :]])
    found = match_chunks(plan(), [*chunks(0, _HASHES, []), *chunks(TARGET, doubled, [])])
    assert [(chunk.first, chunk.last) for chunk in found.source_only] == [(ends[0], ends[1] - 1)]
    assert len(found.target_only) == 2
    assert found.records == len(_HASHES) - (ends[1] - ends[0])


def test_a_chunk_that_has_moved_is_looked_at() -> None:
    ours = chunks(0, _HASHES, [])
    bounds = [(c.first, c.last + 1) for c in ours]
    order = [*bounds[:40], *bounds[50:60], bounds[40], *bounds[41:50], *bounds[60:]]
    moved = np.concatenate([_HASHES[a:b] for a, b in order])
    found = match_chunks(plan(), [*ours, *chunks(TARGET, moved, [])])
    assert len(found.source_only) == len(found.target_only) == 10


def test_what_retention_took_is_counted_without_a_closer_look() -> None:
    ours = chunks(0, _HASHES, [])
    found = match_chunks(plan(target_start=7000), [*ours, *chunks(TARGET, _HASHES[7000:], [], first=7000)])
    assert found.deleted_on_target > 6000
    assert sum(chunk.records for chunk in found.source_only) < 1000
    assert len(found.target_only) == 1
    found = match_chunks(
        plan(source_start=7000), [*chunks(0, _HASHES[7000:], [], first=7000), *chunks(TARGET, _HASHES, [])]
    )
    assert found.deleted_on_source > 6000
    assert len(found.source_only) == 1


def test_a_log_has_not_lost_more_records_than_its_start_says() -> None:
    ours = chunks(0, _HASHES, [])
    found = match_chunks(plan(target_start=3000), [*ours, *chunks(TARGET, _HASHES[7000:], [], first=3000)])
    assert found.deleted_on_target + found.target_losses[0] == 3000
    assert sum(chunk.records for chunk in found.source_only) + found.deleted_on_target >= 7000
    found = match_chunks(
        plan(source_start=3000), [*chunks(0, _HASHES[7000:], [], first=3000), *chunks(TARGET, _HASHES, [])]
    )
    assert found.deleted_on_source + found.source_losses[0, 0] == 3000
    assert sum(chunk.records for chunk in found.target_only) + found.deleted_on_source >= 7000


def test_matched_counts_records() -> None:
    chunk = Chunk(Series(0, "t", 0, 0), 1, 5, 0, 4, True, 0)
    assert TopicMatch(pairs=[(chunk, chunk)]).records == 5


def test_many_makes_different_records() -> None:
    assert len(set(hash_records(many(1000), True).tolist())) == 1000
