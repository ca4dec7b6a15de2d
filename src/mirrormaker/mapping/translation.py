"""Translate offsets of a topic from the source to the target and back, from the stored map alone: the source may be gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping

from mirrormaker.errors import OUTAGE, ClusterError, MirrorError, describe
from mirrormaker.kafka_errors import error_code
from mirrormaker.mapping.ledger_tail import lengthen
from mirrormaker.mapping.map_topic import TOPIC, MapTopic, open_map, sources_of
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_translation import Translation
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.wire.client.cluster import Cluster, reach
from mirrormaker.wire.client.group_offsets import fetch_offsets, find_coordinators
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, find_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.zookeeper.lookup import endpoint_of

_SOURCE_WITHIN = 5.0  # seconds for the source to tell its id; the map is read without it if need be
_LOGS_WITHIN = 5.0  # seconds for a cluster to tell where its logs begin and end

Maps = Mapping[TopicPartition, PartitionMap]
Offsets = Iterable[tuple[int, int]]  # partitions and offsets


async def translate_offsets(
    source: SourceSettings,
    target: TargetSettings,
    topic: str,
    offsets: Offsets | str,
    *,
    back: bool = False,
    source_id: str = "",
) -> list[Translation]:
    """Translate offsets of a topic; from the target to the source with `back`.

    `offsets` are partitions and offsets, or the name of a consumer group: then they are those that it has committed, on the
    target with `back` and else on the source. `source_id` is the id of the source cluster if it does not answer.

    Raise ClusterError if the target cannot be read, or if the map or the group does not know the topic.
    """
    async with _opened(source, target) as (ours, theirs):
        found = await find_source(ours, theirs, source_id, topic)
        maps = {key: found.read(key) for key in found.partitions if back or key[0] == topic}
        if isinstance(offsets, str):
            offsets = await _committed(theirs if back else ours, offsets, topic)
        if ours.brokers:
            await lengthen(maps, ours, source.group_id)
        return await held_in_logs(translate(maps, topic, offsets, back=back), ours if back else theirs)


async def held_in_logs(rows: list[Translation], there: Cluster) -> list[Translation]:
    """Hold places in the logs of the other cluster: retention may have deleted them. They stay if it does not answer in 5 s."""
    starts, ends = dict[TopicPartition, int](), dict[TopicPartition, int]()
    places = {(row.to_topic, row.to_partition) for row in rows} if there.brokers else set[TopicPartition]()
    with contextlib.suppress(*OUTAGE, MirrorError):
        async with asyncio.timeout(_LOGS_WITHIN):
            starts, _ = await find_offsets(there, places, EARLIEST, attempts=2)
            ends, _ = await find_offsets(there, places, LATEST, attempts=2)
    found: list[Translation] = []
    for row in rows:
        start, end = (log.get((row.to_topic, row.to_partition)) for log in (starts, ends))
        found.append(row if start is None or end is None else row.held(start, max(start, end)))
    return found


async def stored_maps(
    source: SourceSettings, target: TargetSettings, topics: Iterable[str], source_id: str = ""
) -> dict[TopicPartition, PartitionMap]:
    """Return the maps of source topics as they are stored. Raise ClusterError for a topic that has none."""
    names = list(dict.fromkeys(topics))
    async with _opened(source, target) as (ours, theirs):
        found = await find_source(ours, theirs, source_id, names[0] if names else "")
    maps = {key: found.read(key) for key in found.partitions if key[0] in names}
    for name in names:
        if not any(key[0] == name for key in maps):
            raise ClusterError(f"the offset map has nothing of {name}: no mirror has brought it to this target")
    return maps


@contextlib.asynccontextmanager
async def _opened(source: SourceSettings, target: TargetSettings) -> AsyncIterator[tuple[Cluster, Cluster]]:
    ours, theirs = Cluster(source.endpoint), Cluster(await endpoint_of(target))
    try:
        await reach("target", theirs)
        yield ours, theirs
    except OSError as error:
        raise ClusterError(f"a cluster cannot be reached: {describe(error)}") from error
    finally:
        ours.close()
        theirs.close()


async def find_source(source: Cluster | None, target: Cluster, source_id: str, topic: str) -> MapTopic:
    """Return the map of a source cluster: the one with the id, the one that answers, or the only one that has the topic."""
    if source is not None:
        with contextlib.suppress(*OUTAGE, MirrorError, asyncio.TimeoutError):
            await asyncio.wait_for(source.refresh(), _SOURCE_WITHIN)
            source_id = source_id or source.id
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


async def _committed(cluster: Cluster, group: str, topic: str) -> list[tuple[int, int]]:
    """Return the offsets that a group has committed in a topic."""
    if not cluster.brokers:
        raise ClusterError(f"{cluster.endpoint} does not answer, so the offsets of group {group} are not known")
    nodes = await find_coordinators(cluster, [group])
    found = (await fetch_offsets(cluster, nodes, stable=False)).get(group)
    if found is None or isinstance(found, Exception) or found.error:
        reason = "it has no coordinator, or this client may not describe it"
        if found is not None:
            reason = describe(found) if isinstance(found, Exception) else error_code(found.error).words
        raise ClusterError(f"{cluster.endpoint} does not tell the offsets of group {group}: {reason}")
    rows = found.topics[topic].rows() if topic in found.topics else {}
    pairs = sorted((partition, row.offset) for partition, row in rows.items() if row.offset >= 0)
    if not pairs:
        raise ClusterError(f"group {group} has committed nothing in {topic} on {cluster.endpoint}")
    return pairs


def translate(maps: Maps, topic: str, offsets: Offsets, *, back: bool = False) -> list[Translation]:
    """Translate (partition, offset) pairs of a topic; from the target to the source with `back`.

    Raise ClusterError for partitions that the maps do not know.
    """
    return list(_back(maps, topic, offsets) if back else _forth(maps, topic, offsets))


def _forth(maps: Maps, topic: str, offsets: Offsets) -> Iterable[Translation]:
    for partition, offset in offsets:
        known = maps.get((topic, partition))
        if known is None or not known.blocks:
            raise ClusterError(
                f"the offset map has nothing of {topic}-{partition}: no mirror has brought it to this target"
            )
        for place in known.places:
            told = known.translate(place, offset)
            yield Translation(topic, partition, offset, place[0] or topic, place[1], told.offset, told.latest)


def _back(maps: Maps, topic: str, offsets: Offsets) -> Iterable[Translation]:
    sources: dict[TopicPartition, list[TopicPartition]] = {}
    for key, known in maps.items():
        for place in known.places:
            sources.setdefault((place[0] or key[0], place[1]), []).append(key)
    for partition, offset in offsets:
        if (topic, partition) not in sources:
            raise ClusterError(f"the offset map has nothing of {topic}-{partition} on the target")
        for key in sources[topic, partition]:
            known = maps[key]
            place = next(p for p in known.places if (p[0] or key[0], p[1]) == (topic, partition))
            told = known.translate_back(place, offset)
            yield Translation(topic, partition, offset, *key, told.offset, told.latest)
