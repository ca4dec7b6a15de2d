"""Offsets of a topic translated both ways, by maps as they are stored."""

from __future__ import annotations

import asyncio

import pytest

from mirrormaker.mapping.translation import held_in_logs, translate
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.offset_translation import Translation
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.batches import NOW, Record, write_batch
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 0)


def begun_at(source: int, target: int) -> PartitionMap:
    """A map of a thousand records that begins at these offsets."""
    found = PartitionMap()
    at = Position(*KEY, source, 0, "", Identity(7, 0), "", "", 1, (Cut(0, 0, target),))
    found.begin(at)
    after = at.advanced(source + 1000, 0, [Cut(0, 1000, target + 1000)])
    found.note(after, [(("", 0), [NotedRun(source, target, 1000, 0)])])
    return found


def test_an_offset_from_before_the_map_is_not_called_exact() -> None:
    maps = {KEY: begun_at(5000, 5007)}
    assert translate(maps, "orders", [(0, 100), (0, 5100)]) == [
        Translation(*KEY, 100, *KEY, 0, 5007),
        Translation(*KEY, 5100, *KEY, 5107, 5107),
    ]
    assert translate(maps, "orders", [(0, 50)], back=True) == [Translation(*KEY, 50, *KEY, 0, 5000)]


@pytest.mark.parametrize(
    ("earliest", "latest", "expected"),
    [
        pytest.param(150, 150, (150, 150, 0, 0, True), id="in the log"),
        pytest.param(90, 90, (100, 100, 10, 0, False), id="deleted by retention"),
        pytest.param(0, 150, (100, 150, 100, 0, False), id="from before the map"),
        pytest.param(200, 200, (200, 200, 0, 0, True), id="at the end of the log"),
        pytest.param(205, 205, (200, 200, 0, 5, False), id="after the end of the log"),
    ],
)
def test_a_place_that_the_log_does_not_have_is_held_in_it(
    earliest: int, latest: int, expected: tuple[object, ...]
) -> None:
    rows = [Record(NOW, None, b"%d" % number) for number in range(100)]
    there = ScriptedLogs({KEY: [write_batch(rows, base_offset=100)]})
    (row,) = asyncio.run(held_in_logs([Translation(*KEY, 7, *KEY, earliest, latest)], there))
    assert (row.to_offset, row.latest, row.trimmed, row.ahead, row.is_exact) == expected


def test_places_stay_as_they_are_if_the_cluster_does_not_tell_where_the_log_begins() -> None:
    rows = [Translation(*KEY, 7, *KEY, 90, 90)]
    away, without_leader = ScriptedLogs({}), ScriptedLogs({})
    away.brokers = {}
    for there in (away, without_leader):
        assert asyncio.run(held_in_logs(rows, there)) == rows
