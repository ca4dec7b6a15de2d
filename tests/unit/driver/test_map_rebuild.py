"""A map whose stored blocks are gone, from the ends of both logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver import map_rebuild
from mirrormaker.driver.map_rebuild import MapRebuild, map_of
from mirrormaker.driver.routing import Routing
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.batches import COMMIT, NOW, Record, Written, marker, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEY, PLACE = ("orders", 0), ("", 0)
OURS = Identity(7, 19789)


def records(first: int, count: int) -> list[Record]:
    return [Record(NOW + number, b"key", b"value-%d" % number) for number in range(first, first + count)]


def ours(base: int, sequence: int, rows: Sequence[Record]) -> Written:
    return write_batch(rows, base_offset=base, producer_id=7, producer_epoch=19789, base_sequence=sequence)


def position(offset: int, sequence: int, there: int) -> Position:
    return Position("orders", 0, offset, 0, "", OURS, "there", "", 1, (Cut(0, sequence, there),))


def rebuilt(source: list[Written], target: list[Written], at: Position) -> PartitionMap | None:
    here, there = ScriptedLogs({KEY: source}, "here"), ScriptedLogs({KEY: target}, "there")
    offset_map: Any = None
    work = MapRebuild(offset_map, Routing(here, there, "target", None, None, False), lambda _: None)
    runs = asyncio.run(work.runs(at))
    return map_of(at, runs) if runs else None


def truth(found: PartitionMap, end: int) -> dict[int, int]:
    told = {offset: found.translate(PLACE, offset) for offset in range(found.first, end)}
    assert all(place.is_exact for place in told.values())
    return {offset: place.offset for offset, place in told.items()}


def test_each_record_is_found_again_beside_another_writer_on_the_target() -> None:
    rows = records(0, 30)
    other = write_batch(records(900, 5), base_offset=110, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    found = rebuilt(
        [write_batch(rows[:12], base_offset=40), write_batch(rows[12:], base_offset=52)],
        [ours(100, 3, rows[:10]), other, ours(115, 13, rows[10:])],
        position(70, 33, 135),
    )
    assert found is not None and (found.first, found.end) == (40, 70)
    assert truth(found, 70) == {40 + n: 100 + n + (5 if n >= 10 else 0) for n in range(30)}
    assert found.translate_back(PLACE, 112).offset == 50


def test_markers_of_transactions_on_the_source_have_no_place() -> None:
    rows = records(0, 20)
    found = rebuilt(
        [write_batch(rows[:10], base_offset=40, producer_id=3, transactional=True), marker(COMMIT, 3, 50),
         write_batch(rows[10:], base_offset=51)],
        [ours(0, 0, rows)],
        position(61, 20, 20),
    )  # fmt: skip
    assert found is not None and found.first == 40
    assert truth(found, 61) == {40 + n: n if n < 11 else n - 1 for n in range(21)}


def test_a_source_that_was_compacted_is_believed_from_its_last_gap_on() -> None:
    rows = records(0, 30)
    found = rebuilt(
        [write_batch(rows[:9], base_offset=0), write_batch(rows[10:20], base_offset=10), write_batch(rows[20:], base_offset=20)],
        [ours(0, 0, rows[:10]), ours(10, 10, rows[10:20]), ours(20, 20, rows[20:])],
        position(30, 30, 30),
    )  # fmt: skip
    assert found is not None and found.first == 10
    assert truth(found, 30) == {n: n for n in range(10, 30)}


def test_other_records_under_the_same_numbers_are_not_taken_for_ours() -> None:
    rows = records(0, 20)
    found = rebuilt(
        [write_batch(rows[:10]), write_batch(rows[10:], base_offset=10)],
        [ours(0, 0, records(500, 10)), ours(10, 10, rows[10:])],
        position(20, 20, 20),
    )
    assert found is not None and found.first == 10
    assert rebuilt([write_batch(rows)], [ours(0, 0, records(500, 20))], position(20, 20, 20)) is None


def test_logs_that_are_too_large_are_read_from_nearer_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_rebuild, "_PARTITION_BYTES", 20_000)
    rows = records(0, 4_000)
    source = [write_batch(rows[at : at + 10], base_offset=at) for at in range(0, 4_000, 10)]
    target = [ours(at, at, rows[at : at + 10]) for at in range(0, 4_000, 10)]
    monkeypatch.setattr(map_rebuild, "_FETCH_BYTES", 4_000)
    found = rebuilt(source, target, position(4_000, 4_000, 4_000))
    assert found is not None and found.first == 3_500
    assert truth(found, 4_000) == {n: n for n in range(3_500, 4_000)}


@pytest.mark.parametrize("can_be_read", [True, False])
def test_a_map_is_missing_until_its_rebuild_was_tried(monkeypatch: pytest.MonkeyPatch, can_be_read: bool) -> None:
    monkeypatch.setattr(map_rebuild, "_LOOK_EVERY", 0.0)
    at, moved = position(20, 20, 20), position(30, 30, 30)
    tried: list[tuple[Position, bool]] = []
    offset_map: Any = SimpleNamespace(missing={KEY: at}, put_before=lambda *_: True)
    work = MapRebuild(offset_map, Routing(ScriptedLogs({}, "h"), ScriptedLogs({}, "t"), "t", None, None, False), print)

    async def runs(where: Position) -> list[NotedRun]:
        tried.append((where, KEY in offset_map.missing))
        if where is at:
            # The partition was away for a moment, and came back.
            offset_map.missing[KEY] = moved
        if not can_be_read:
            raise ConnectionResetError("gone")
        return []

    monkeypatch.setattr(work, "runs", runs)

    async def play() -> None:
        running = asyncio.ensure_future(work.run())
        async with asyncio.timeout(5):
            while offset_map.missing:
                await asyncio.sleep(0.01)
        running.cancel()

    asyncio.run(play())
    assert tried == [(at, True), (moved, True)]
