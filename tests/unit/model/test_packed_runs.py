"""Runs as bytes: what complete blocks of the offset map take in memory, and damaged ones."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.errors import BadFrame
from mirrormaker.model import packed_runs
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import BlockKey, pack_block, unpack_block
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.packed_runs import PackedRuns, Run, unpacked
from mirrormaker.model.position import Cut, Identity, Position

PLACE = ("", 0)
START = Position("orders", 0, 0, 0, "0f" * 16, Identity(1, 19789), "c", "", 1, (Cut(0, 0, 0),))
gaps = st.integers(0, 300) | st.integers(0, 1 << 40)
rows = st.lists(st.tuples(gaps, gaps, st.integers(1, 200), st.integers(0, 1 << 31)), max_size=20)


def _transactions(found: PartitionMap, first: int, count: int) -> None:
    """Mirror transactions of ten records, five of them in each report; their markers have source offsets too."""
    for number in range(first, first + count, 5):
        runs = [NotedRun(at * 11, at * 10, 10, at * 10) for at in range(number, number + 5)]
        end = number + 5
        found.note(START.advanced(end * 11, 0, [Cut(0, end * 10, end * 10)]), [(PLACE, runs)])


def _mirrored(count: int) -> PartitionMap:
    found = PartitionMap()
    found.begin(START)
    _transactions(found, 0, count)
    return found


@given(rows, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_runs_are_the_same_after_packing(rows: list[tuple[int, int, int, int]], source: int, target: int) -> None:
    runs: list[Run] = []
    ends = source, target
    for source_gap, target_gap, length, skipped in rows:
        runs.append(Run(ends[0] + source_gap, ends[1] + target_gap, length, skipped))
        ends = runs[-1].source_end, runs[-1].target_end
    packed = PackedRuns.of(runs, source, target)
    assert list(unpacked(packed)) == runs
    assert [unpacked(packed)[number] for number in range(len(runs))] == runs
    assert PackedRuns.read(memoryview(packed.data + b"\1\2"), len(runs), source, target) == packed


@pytest.mark.parametrize(
    "data", [b"", b"\1\1\1", b"\1\1\x80\x80", b"\xff" * 9 + b"\1\1\1\1", b"\xff" * 8 + b"\x7f\1\1\1"]
)
def test_damaged_runs_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        PackedRuns.read(memoryview(data), 1, 5, 5)


def test_a_run_of_a_complete_block_takes_at_most_eight_bytes() -> None:
    _mirrored(10)  # what is made once
    tracemalloc.start()
    try:
        found = _mirrored(20_800)
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sum(block.size for block in found.blocks) == 20_800
    # Four bytes for the run, and the thousand bytes of a block's objects are shared by its 256 runs.
    assert size < 8 * 20_800, size / 20_800


def test_a_translation_unpacks_no_more_than_the_cache_keeps() -> None:
    found = _mirrored(100_000)
    for number in range(0, 100_000, 50):
        assert found.translate(PLACE, number * 11).offset == number * 10
    assert packed_runs._cache._runs <= packed_runs._CACHED_RUNS
    assert packed_runs._cache._runs == sum(len(rows) for rows in packed_runs._cache._found.values())


def test_a_log_that_became_shorter_shortens_a_complete_block() -> None:
    found = _mirrored(2_000)
    at = found.blocks[1].lists[PLACE].end_offset - 15
    found.begin(Position("orders", 0, 22_000, 0, "0f" * 16, Identity(2, 19789), "c", "", 1, (Cut(0, 0, at),)))
    assert all(isinstance(runs.kept, PackedRuns) for block in found.blocks[:-1] for runs in block.lists.values())
    assert found.translate(PLACE, (at // 10) * 11 - 11).offset == (at // 10) * 10 - 10
    told = found.translate(PLACE, (at // 10) * 11 + 11)
    assert (told.offset, told.latest) == (at, at)


def test_blocks_are_completed_while_one_target_partition_is_always_ahead() -> None:
    """Records go to two target partitions in turn, and the second one always acknowledges more than the position has."""
    found, ahead, total = PartitionMap(), 6, 2_000
    cuts = Cut(0, 0, 0), Cut(1, 0, 0)
    found.begin(Position("orders", 0, 0, 0, "", Identity(1, 19789), "c", "", 2, cuts))
    position = Position("orders", 0, 0, 0, "", Identity(1, 19789), "c", "", 2, cuts)
    noted = [0, 0]
    for offset in range(2, total, 2):
        news = []
        for partition, until in ((0, offset), (1, offset + ahead)):
            sources = range(noted[partition] * 2 + partition, until, 2)
            news.append((("", partition), [NotedRun(s, s // 2, 1, s // 2) for s in sources]))
            noted[partition] += len(sources)
        position = position.advanced(offset, 0, [Cut(0, offset // 2, offset // 2), Cut(1, offset // 2, offset // 2)])
        found.note(position, [(place, runs) for place, runs in news if runs])
    assert max(block.size for block in found.blocks) < 300, "a block that never ends is written whole with each commit"
    stored = []
    for block in found.blocks:
        again = unpack_block(BlockKey("c", "orders", 0, block.start), pack_block(block, 0))
        assert again is not None
        stored.append(again)
    for known in (found, PartitionMap(stored)):
        for partition in (0, 1):
            for offset in range(total - 2):
                told = known.translate(("", partition), offset)
                truth = (offset + 1 - partition) // 2
                assert told.is_exact and told.offset == truth, (partition, offset, told)
            for target in range(total // 2 - 1):
                back = known.translate_back(("", partition), target)
                assert back.is_exact and back.offset == target * 2 + partition, (partition, target, back)
