"""Which source partitions write to which target partitions, and which process writes the offsets of groups there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.protocol.codec import TopicPartition


class Map(Protocol):
    """The offset map of one source partition."""

    @property
    def first(self) -> int:
        """Return the source offset at which the map begins."""

    @property
    def end(self) -> int:
        """Return the source offset up to which everything is mirrored."""

    @property
    def places(self) -> list[Place]:
        """Return the target partitions that have records of this partition, or may get some."""

    def translate(self, place: Place, source: int) -> Translated:
        """Return where a reader goes on."""


Maps = Mapping[TopicPartition, Map]


@dataclass(frozen=True)
class Route:
    """The source partitions that write to one target topic, and the place in each one's map, by target partition."""

    sources: Mapping[int, list[tuple[TopicPartition, Place]]]
    topics: tuple[str, ...]  # of the source

    @property
    def keys(self) -> set[TopicPartition]:
        """Return the source partitions."""
        return {key for rows in self.sources.values() for key, _ in rows}

    @property
    def shared(self) -> set[TopicPartition]:
        """Return the source partitions that share a target partition with another one."""
        return {key for rows in self.sources.values() if len(rows) > 1 for key, _ in rows}


Routes = Mapping[str, Route]


def routes(maps: Maps) -> dict[str, Route]:
    """Return the ways from source partitions to target topics."""
    found: dict[str, dict[int, list[tuple[TopicPartition, Place]]]] = {}
    for key, known in maps.items():
        for place in known.places:
            found.setdefault(place[0] or key[0], {}).setdefault(place[1], []).append((key, place))
    return {
        topic: Route(parts, tuple(sorted({key[0] for rows in parts.values() for key, _ in rows})))
        for topic, parts in found.items()
    }


def is_plain(key: TopicPartition, known: Map) -> bool:
    """Return True if a source partition writes to the partition of its own topic and number alone."""
    return known.places in ([], [("", key[1])])


def written_here(
    maps: Maps, own: Collection[TopicPartition], partitions: Mapping[str, Collection[TopicPartition]]
) -> dict[str, Route]:
    """Return the routes to target topics for which this process writes the offsets of groups.

    `maps` has the partitions that this process mirrors (`own`), and those of others that may share target partitions with them.
    `partitions` names all partitions of source topics that do not go to the partition of the same number alone. A target topic
    that they write to belongs to the process that mirrors the first of its source partitions. It waits until the maps of all
    partitions are known: the smallest offset of all is not known before.
    """
    found: dict[str, Route] = {}
    for topic, way in routes(maps).items():
        spread = [name for name in way.topics if name in partitions]
        if spread:
            wanted = {key for name in spread for key in partitions[name]}
            if min(way.keys) not in own or not wanted <= maps.keys():
                continue
        found[topic] = way
    return found
