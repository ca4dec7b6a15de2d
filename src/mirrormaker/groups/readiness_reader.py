"""Whether consumer groups could fail over now, read from both clusters: no mirror need run, and nothing is written.

The offset map and the checkpoints on the target say the rest. The map is stored a moment after the records, so the mirror's own
committed offsets complete it. If the source does not answer, the checkpoints stand for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from mirrormaker.errors import (
    OUTAGE,
    AuthenticationFailed,
    BrokerError,
    ClusterError,
    describe,
)
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.group_survey import Survey, as_remembered, errors_in, known_offsets, look, offsets_of
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.left_out import not_mirrored
from mirrormaker.groups.planning import Look, Planner
from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness, Readiness, ReadinessQuestion
from mirrormaker.groups.readiness_gone import gone_groups
from mirrormaker.groups.readiness_rights import name_missing_rights, unreadable
from mirrormaker.groups.routes import Routes, routes
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.ledger_tail import lengthen
from mirrormaker.mapping.map_topic import MapTopic, open_map, sources_of
from mirrormaker.model.group_sync import Cost, Decision, Log, Part, State, advice, aim, cost, decide, worst
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster, reach
from mirrormaker.wire.client.group_offsets import list_groups
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import GroupOffsets

_LATE_ROUNDS, _LATE = 3, 5.0  # a group that moves is in step if it was written in the last three rounds, and 5 s
# Seconds until a running mirror has stored what it knew: it commits once a second.
_STORED_WITHIN = 1.5
_COMMITTED_WITHIN = 2.0  # seconds from a row of the checkpoints to the commit that it is for
_ATTEMPTS, _PAUSE = 10, 0.5  # while coordinators move; the pause is in seconds

Committed = Mapping[str, GroupOffsets]
Maps = Mapping[TopicPartition, PartitionMap]


async def read_readiness(source: Cluster | None, target: Cluster, question: ReadinessQuestion) -> Readiness:
    """Read both clusters once. Raise ClusterError if the target cannot be read, or does not allow it."""
    return await ReadinessReader(source, target, question).read()


class ReadinessReader:
    """Reads again and again; the map and the checkpoints are read from where the last time ended."""

    def __init__(self, source: Cluster | None, target: Cluster, question: ReadinessQuestion) -> None:
        self._source, self._target, self._question = source, target, question
        self._map: MapTopic | None = None
        self._checkpoints: Checkpoints | None = None
        self._last: dict[tuple[str, str], dict[int, Checkpoint]] = defaultdict(dict)
        self._written_at: dict[tuple[str, str], float] = {}

    async def read(self) -> Readiness:
        """Return all chosen groups as they are now."""
        trouble = "it is not asked"
        if self._source is not None:
            trouble = await _unreachable(self._source)
        await reach("target", self._target)
        await self._open(has_source=not trouble)
        if trouble:
            rows = await self._without_source()
        else:
            assert self._source is not None and self._map is not None, "a source that answers has a map"
            rows = await self._with_source(self._source, self._map)
        return Readiness(
            "" if self._source is None else str(self._source.endpoint),
            str(self._target.endpoint),
            tuple(sorted(rows, key=lambda row: (row.group, row.topic))),
            trouble,
            None if self._map is None else self._map.fence,
        )

    # -- what the mirror has stored on the target

    async def _open(self, *, has_source: bool) -> None:
        alias = self._question.alias
        if self._map is None:
            source_id = self._source.id if has_source and self._source is not None else ""
            if not source_id:
                sources = sorted(await sources_of(self._target))
                if len(sources) != 1 and (has_source or not alias):
                    text = f"has maps of {len(sources)} source clusters" if sources else "has no offset map"
                    raise ClusterError(
                        f"the source cluster does not tell its id, and {self._target.endpoint} {text}: ask again when it does"
                    )
                source_id = sources[0] if len(sources) == 1 else ""
            self._map = await open_map(self._target, source_id) if source_id else None
            self._checkpoints = self._checkpoints or Checkpoints(self._target, alias or source_id, self._see)
        else:
            await self._map.refresh()
        assert self._checkpoints is not None, "the checkpoints are opened with the map"
        right = denied(self._target.endpoint, ("Describe", "Read"), "topic", self._checkpoints.topic)
        try:
            await self._checkpoints.open()
        except BrokerError as error:
            if error.code == TOPIC_AUTHORIZATION_FAILED:
                raise ClusterError(right) from error
            raise
        if self._target.refused.get(self._checkpoints.topic) == TOPIC_AUTHORIZATION_FAILED:
            raise ClusterError(right)

    def _see(self, row: Checkpoint, timestamp: int) -> None:
        key = (row.group, row.topic)
        self._last[key][row.partition] = row
        self._written_at[key] = max(timestamp / 1000, self._written_at.get(key, 0.0))

    # -- with the source

    async def _with_source(self, source: Cluster, known: MapTopic) -> list[GroupReadiness]:
        survey = await self._settled_survey(source)
        committed = {
            name: offsets
            for name, offsets in survey.source_offsets.items()
            if not isinstance(offsets, Exception) and not offsets.error
        }
        maps = await self._maps(source, known, committed)
        ways, horizons = routes(maps), Horizons()
        logs = await _logs(self._target, ways)
        # The ends of the source are read after those of the target, and the map that counts is read after both.
        ends = await known_offsets(source, set().union(*(way.shared for way in ways.values())), LATEST)
        horizons.note({key: log.end for key, log in logs.items()}, ends)
        if _is_any_ahead(committed, maps) or any(end > maps[key].end for key, end in ends.items()):
            await asyncio.sleep(_STORED_WITHIN)
            await known.refresh()
            maps = await self._maps(source, known, committed)
            ways = routes(maps)
            logs = await _logs(self._target, ways)
        planner = Planner(is_writing=self._question.commits)
        starts = await known_offsets(source, maps, EARLIEST)
        assert self._checkpoints is not None, "the checkpoints are opened first"
        for _ in planner.plan(survey, ways, Look(maps, logs, starts, horizons), self._checkpoints.memory):
            pass
        rows: dict[tuple[str, str], list[PartitionReadiness]] = defaultdict(list)
        for key, entry in planner.entries.items():
            for partition, decision in entry.decisions.items():
                here, there = entry.offsets[partition]
                log = logs.get((key[1], partition))
                rows[key].append(self._row(key, partition, None if here < 0 else here, there, decision, log))
        memory = {key: found for key, found in self._checkpoints.memory.items() if self._question.has(*key)}
        gone, hidden = await gone_groups(source, survey, memory, planner.entries.keys())
        for key, partition, offset, state in gone:
            rows[key].append(PartitionReadiness(partition, None, offset, Cost(state)))
        for key, partition, offset in self._unmapped(committed, maps):
            rows[key].append(PartitionReadiness(partition, offset, None, Cost(State.UNMAPPED)))
        others = not_mirrored(committed, known.partitions, self._question)
        found = [replace(self._group(*key, parts), left_out=others.get(key[0], ())) for key, parts in rows.items()]
        found += [unreadable(source, name, error) for name, error in errors_in(survey.source_offsets)]
        found += [unreadable(source, name, error) for name, error in hidden.items()]
        unread = [row.group for row in found if not row.topic]
        on_target = [pair for pair in errors_in(survey.target_offsets) if pair[0] not in unread]
        found += [unreadable(self._target, name, error) for name, error in on_target]
        found += [unreadable(source, name, error) for name, error in planner.troubles.items()]
        return await name_missing_rights(self._target, survey.target, self._checkpoints.topic, found)

    async def _settled_survey(self, source: Cluster) -> Survey:
        """Read the groups of both sides; ask again while coordinators move, for 5 s."""
        for attempt in range(_ATTEMPTS):
            remembered = {group for group, _ in self._last if self._question.has_group(group)}
            survey = (await look(source, self._target, self._question.has_group, remembered)).readable()
            if not survey.is_moving:
                break
            if attempt < _ATTEMPTS - 1:
                await asyncio.sleep(_PAUSE)
        return survey

    async def _maps(self, source: Cluster, known: MapTopic, committed: Committed) -> Maps:
        """Return the maps of the topics that a group reads, up to the mirror's committed positions."""
        topics = {topic for offsets in committed.values() for topic in offsets.topics}
        topics = {topic for topic in topics if self._question.has_topic(topic)}
        keys = [key for key in known.partitions if key[0] in topics]
        maps = {key: known.read(key) for key in keys}
        await lengthen(maps, source, self._question.mirror_group)
        return maps

    def _unmapped(self, committed: Committed, maps: Maps) -> Iterable[tuple[tuple[str, str], int, int]]:
        """Yield group and topic, partition and offset where a mirrored topic has no map."""
        mapped = {topic for topic, _ in maps}
        for group, offsets in committed.items():
            for topic, part in offsets.topics.items():
                is_named = self._question.is_mirrored is not None and self._question.is_mirrored(topic)
                if topic not in mapped and not is_named:
                    continue
                for partition, row in part.rows().items():
                    if (topic, partition) not in maps and row.offset >= 0:
                        yield (group, topic), partition, row.offset

    # -- without the source

    async def _without_source(self) -> list[GroupReadiness]:
        """Compare the target with the mirror's last checkpoints."""
        keys = [key for key in self._last if self._question.has(*key)]
        groups = await list_groups(self._target)
        groups = {name: group for name, group in groups.items() if name in {key[0] for key in keys}}
        offsets = await offsets_of(self._target, groups, stable=False)
        logs = await _ends(self._target, {(key[1], partition) for key in keys for partition in self._last[key]})
        assert self._checkpoints is not None, "the checkpoints are opened first"
        types = self._checkpoints.is_share
        here = {name: as_remembered(name, types.get(name), group) for name, group in groups.items()}
        survey = Survey(here, groups, {}, offsets).readable()
        found = [unreadable(self._target, name, error) for name, error in errors_in(survey.target_offsets)]
        for key in keys:
            group, topic = key
            there = survey.target_offsets.get(group)
            if isinstance(there, Exception) or (there is not None and there.error):
                continue
            on_target = there.topics[topic].rows() if there is not None and topic in there.topics else {}
            parts = []
            for partition, row in self._last[key].items():
                log = logs.get((topic, partition))
                if log is None:
                    continue
                memory = self._checkpoints.memory[key][partition]
                offset = on_target[partition].offset if partition in on_target else -1
                target = memory.last if not self._question.commits else offset if offset >= 0 else None
                place = aim([Part(row.upstream, row.downstream, row.downstream, 0, row.upstream)], log)
                decision = decide(place, target, memory, survey.presence(group))
                parts.append(self._row(key, partition, row.upstream, target, decision, log))
            if parts:
                found.append(self._group(*key, parts))
        return found

    # -- rows

    def _row(
        self,
        key: tuple[str, str],
        partition: int,
        here: int | None,
        there: int | None,
        decision: Decision,
        log: Log | None,
    ) -> PartitionReadiness:
        assert self._checkpoints is not None, "the checkpoints are opened first"
        written_at, remembered = self._written_at.get(key), self._checkpoints.memory.get(key, {}).get(partition)
        age = None if written_at is None else time.time() - written_at
        if age is not None and age > _COMMITTED_WITHIN and (remembered is None or remembered.last != there):
            age = None  # the target has refused what was remembered
        patience = _LATE_ROUNDS * self._question.interval + _LATE
        return PartitionReadiness(partition, here, there, cost(decision, there, log, age, patience))

    def _group(self, group: str, topic: str, parts: list[PartitionReadiness]) -> GroupReadiness:
        ordered = tuple(sorted(parts, key=lambda part: part.partition))
        state = worst(part.cost.state for part in ordered)
        way_out = advice(state, group, topic, self._target.endpoint)
        return GroupReadiness(group, topic, ordered, self._written_at.get((group, topic)), way_out)


async def _unreachable(source: Cluster) -> str:
    """Return why the source does not answer; empty if it does."""
    try:
        await source.refresh()
    except AuthenticationFailed:
        # The cluster is there. A wrong password must not look like a disaster.
        raise
    except OUTAGE as error:
        return describe(error)
    return ""


def _is_any_ahead(committed: Committed, maps: Maps) -> bool:
    """Return True if a group has read records that are not in the map."""
    return any(
        (topic, partition) in maps and row.offset > maps[topic, partition].end
        for offsets in committed.values()
        for topic, part in offsets.topics.items()
        for partition, row in part.rows().items()
    )


async def _logs(target: Cluster, ways: Routes) -> dict[TopicPartition, Log]:
    return await _ends(target, {(topic, number) for topic, way in ways.items() for number in way.sources})


async def _ends(target: Cluster, places: set[TopicPartition]) -> dict[TopicPartition, Log]:
    starts = await known_offsets(target, places, EARLIEST)
    ends = await known_offsets(target, places, LATEST)
    return {key: Log(min(starts[key], end), end) for key, end in ends.items() if key in starts}
