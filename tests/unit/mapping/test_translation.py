"""Offsets of a topic translated both ways, by maps as they are stored."""

from __future__ import annotations

from mirrormaker.mapping.translation import translate
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.offset_translation import Translation
from mirrormaker.model.position import Cut, Identity, Position

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
