"""Translate offsets of a topic from the source to the target and back, from the stored map alone: the source may be gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from mirrormaker.errors import OUTAGE, ClusterError, MirrorError
from mirrormaker.mapping.map_topic import TOPIC, MapTopic, open_map, sources_of
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition

_SOURCE_WITHIN = 5.0  # seconds for the source to tell its id; the map is read without it if need be


@dataclass(frozen=True)
class Translation:
    """One offset on both sides. The right place lies between `to_offset` and `latest`, which are equal if it is exact."""

    topic: str
    partition: int
    offset: int
    to_topic: str
    to_partition: int
    to_offset: int
    latest: int

    @property
    def is_exact(self) -> bool:
        """Return True if nothing is read again."""
        return self.to_offset == self.latest


async def find_source(source: Cluster | None, target: Cluster, source_id: str, topic: str) -> MapTopic:
    """Return the map of a source cluster: the one with the id, the one that answers, or the only one that has the topic."""
    if not source_id and source is not None:
        with contextlib.suppress(*OUTAGE, MirrorError, asyncio.TimeoutError):
            await asyncio.wait_for(source.refresh(), _SOURCE_WITHIN)
            source_id = source.id
    if source_id:
        return await open_map(target, source_id)
    candidates = [name for name, topics in (await sources_of(target)).items() if topic in topics]
    if len(candidates) != 1:
        found = (
            f"{len(candidates)} source clusters in {TOPIC}: {', '.join(sorted(candidates))}" if candidates else TOPIC
        )
        hint = "name one with --source.id" if candidates else "no mirror has brought it there"
        raise ClusterError(f"the source cluster does not answer, and {topic} is from {found}; {hint}")
    return await open_map(target, candidates[0])


def translate(
    found: MapTopic, topic: str, offsets: Iterable[tuple[int, int]], *, back: bool = False
) -> list[Translation]:
    """Translate (partition, offset) pairs of a topic; from the target to the source with `back`.

    Raise ClusterError for partitions that the map does not know.
    """
    return list(_back(found, topic, offsets) if back else _forth(found, topic, offsets))


def _forth(found: MapTopic, topic: str, offsets: Iterable[tuple[int, int]]) -> Iterable[Translation]:
    for partition, offset in offsets:
        known = found.read((topic, partition))
        if not known.blocks:
            raise ClusterError(
                f"the offset map has nothing of {topic}-{partition}: no mirror has brought it to this target"
            )
        for place in known.places:
            told = known.translate(place, offset)
            yield Translation(topic, partition, offset, place[0] or topic, place[1], told.offset, told.latest)


def _back(found: MapTopic, topic: str, offsets: Iterable[tuple[int, int]]) -> Iterable[Translation]:
    sources: dict[TopicPartition, list[TopicPartition]] = {}
    for key in found.partitions:
        for place in found.read(key).places:
            sources.setdefault((place[0] or key[0], place[1]), []).append(key)
    for partition, offset in offsets:
        if (topic, partition) not in sources:
            raise ClusterError(f"the offset map has nothing of {topic}-{partition} on the target")
        for key in sources[topic, partition]:
            known = found.read(key)
            place = next(p for p in known.places if (p[0] or key[0], p[1]) == (topic, partition))
            told = known.translate_back(place, offset)
            yield Translation(topic, partition, offset, *key, told.offset, told.latest)
