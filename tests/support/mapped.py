"""Offset maps whose records lie one after the other."""

from __future__ import annotations

from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Place, Position
from mirrormaker.wire.protocol.codec import TopicPartition


def mapped(key: TopicPartition, place: Place, count: int = 100, at: int = 0) -> PartitionMap:
    """Return the map of a partition's first `count` records, which lie in one place of the target from an offset on."""
    known = PartitionMap()
    position = Position(*key, 0, 0, "", Identity(7, 0), "", "", 1, (Cut(place[1], 0, at, place[0]),))
    known.begin(position)
    after = position.advanced(count, 0, [Cut(place[1], count, at + count, place[0])])
    known.note(after, [(place, [NotedRun(0, at, count, 0)])])
    return known
