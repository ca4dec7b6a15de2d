"""The truth about offsets, read from both logs, beside what the stored offset map says."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from mirrormaker.embedded import Cluster
from mirrormaker.mapping.map_topic import MapTopic, open_map
from mirrormaker.model.offset_map import PartitionMap
from tests.support.reading import Read
from tests.support.wire_clients import wire_client


def stored_map(source: Cluster, target: Cluster) -> MapTopic:
    """Return the offset map of a source cluster as the target has it."""

    async def ask() -> MapTopic:
        ours, theirs = wire_client(source.bootstrap), wire_client(target.bootstrap)
        try:
            await ours.refresh()
            return await open_map(theirs, ours.id)
        finally:
            ours.close()
            theirs.close()

    return asyncio.run(ask())


def wrong_translations(
    found: PartitionMap, ours: Sequence[Read], theirs: Mapping[int, Sequence[Read]], end: int
) -> tuple[list[tuple[object, ...]], int]:
    """Translate every source offset of a partition, and back; return the wrong ones, and how many are not exact.

    `ours` are the mirrored records of the source partition. Values are unique.
    """
    wrong: list[tuple[object, ...]] = []
    inexact = 0
    source_of = {row.value: row.offset for row in ours}
    for partition, rows in theirs.items():
        pairs = [(source_of[row.value], row.offset) for row in rows if row.value in source_of]
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        assert sources == sorted(sources)
        place = ("", partition)
        if place not in found.places:
            wrong += [(partition, "not in the map")] if pairs else []
            continue
        for offset in range(end + 2):
            told = found.translate(place, offset)
            at = bisect_left(sources, offset)
            inexact += not told.is_exact
            if at < len(sources):
                if not told.offset <= targets[at] <= told.latest:
                    wrong.append((partition, offset, told, targets[at]))
            elif targets and told.offset < targets[-1] + 1 and told.is_exact:
                wrong.append((partition, offset, told, "the end"))
        for source, target in pairs:
            back = found.translate_back(place, target)
            if not back.offset <= source <= back.latest:
                wrong.append((partition, source, back, "back"))
    return wrong, inexact
