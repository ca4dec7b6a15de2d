"""The last look at consumer groups in a failover: where each goes on at the target, and the offsets that are still to write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.failover_report import GroupStart
from mirrormaker.groups.flow_ends import read_logs
from mirrormaker.groups.group_survey import Answers, Survey, as_remembered, known_offsets, look, offsets_of
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.left_out import left_out
from mirrormaker.groups.offset_writer import OffsetWriter
from mirrormaker.groups.planning import Entry, Look, Planner
from mirrormaker.groups.readiness_gone import gone_groups
from mirrormaker.groups.routes import Route, routes
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.groups.unmoved import add_unmapped, unread
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.group_sync import Aim, Decision, Log, Part, Presence, State, advice, aim, decide
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import list_groups
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, find_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import GroupOffsets

# Attempts to read and write, and seconds between them: the first group of a cluster waits until the offsets topic is there,
# and groups wait while their coordinators move.
_ROUNDS, _PAUSE = 20, 0.5
_NOTHING = GroupOffsets({})


class _Look(NamedTuple):
    survey: Survey
    entries: Mapping[tuple[str, str], Entry]
    # Groups whose offsets could not be read on the source, with the error.
    unread: Answers


class LastSync:
    """Plans, writes and reads back. The mirror has stopped, so nobody else writes these offsets."""

    def __init__(
        self,
        source: Cluster | None,
        target: Cluster,
        settings: SyncSettings,
        maps: Mapping[TopicPartition, PartitionMap],
    ) -> None:
        """`source` None: it is gone, and the checkpoints of the mirror tell where each group was.

        `maps` are those of the chosen topics, and of others that write to the same topics of the target.
        """
        self._source, self._target, self._settings, self._maps = source, target, settings, maps
        self._places = {(place[0] or key[0], place[1]) for key, known in maps.items() for place in known.places}
        self._topics = {topic for topic, _ in maps if settings.is_mirrored(topic)}
        self._writer = OffsetWriter(target, commits=settings.commits)
        self._rows: dict[tuple[str, str, int], Checkpoint] = {}  # the last one of each group and partition
        self._checkpoints = Checkpoints(target, settings.alias, self._see)
        self._has_checkpoints = False

    @property
    def trouble(self) -> str:
        """Return why nothing is known of groups; empty if all is well."""
        if self._source is not None or self._has_checkpoints:
            return ""
        return (
            f"{self._target.endpoint} has no topic {self._checkpoints.topic}: the mirror did not keep groups in step (--groups), or"
            " it has another source.cluster.alias; consumers start where their auto.offset.reset says"
        )

    async def run(self, *, is_dry: bool) -> list[GroupStart]:
        """Write what is still to write, unless `is_dry`; return where each group goes on."""
        try:
            if is_dry or self._source is None:
                self._has_checkpoints = await self._checkpoints.open()
            else:
                await self._checkpoints.start()
                self._has_checkpoints = True
            return self._starts(await self._bring_up_to_date(is_dry=is_dry), is_closed=not is_dry)
        except BrokerError as error:
            if error.code != TOPIC_AUTHORIZATION_FAILED:
                raise
            names = ("Describe", "Read") if is_dry else ("Create", "Describe", "Read", "Write")
            raise ClusterError(denied(self._target.endpoint, names, "topic", self._checkpoints.topic)) from error

    async def _bring_up_to_date(self, *, is_dry: bool) -> _Look:
        for attempt in range(_ROUNDS):
            if attempt:
                await asyncio.sleep(_PAUSE)
            found = await self._look()
            changed = [(*key, entry) for key, entry in found.entries.items() if _has_news(entry) and not is_dry]
            if changed:
                await self._writer.write(found.survey, self._checkpoints, changed)
            # The next look reads back, or tries again where a coordinator was moving. What was refused stays so.
            if not found.survey.is_moving and not any(_may_be_written(entry) for *_, entry in changed):
                break
        return found

    async def _look(self) -> _Look:
        if self._has_checkpoints:
            await self._checkpoints.refresh()
        logs = await read_logs(self._target, self._places)
        if self._source is None:
            return await self._look_at_checkpoints(logs)
        remembered = {group for group, _ in self._checkpoints.memory if self._settings.is_chosen(group)}
        survey = (await look(self._source, self._target, self._settings.is_chosen, remembered)).readable()
        starts, _ = await find_offsets(self._source, self._maps, EARLIEST)
        horizons = Horizons()
        ways = {topic: way for topic, way in routes(self._maps).items() if not self._topics.isdisjoint(way.topics)}
        shared = set().union(*(way.shared for way in ways.values()))
        horizons.note({key: log.end for key, log in logs.items()}, await known_offsets(self._source, shared, LATEST))
        planner, found = Planner(is_writing=self._settings.commits), Look(self._maps, logs, starts, horizons)
        for _ in planner.plan(survey, ways, found, self._checkpoints.memory, everything=True):
            await asyncio.sleep(0)
        memory = {
            key: rows for key, rows in self._checkpoints.memory.items() if key[0] in remembered and key[1] in ways
        }
        _, hidden = await gone_groups(self._source, survey, memory, planner.entries.keys())
        entries = {
            (group, topic): entry
            for (group, topic), entry in planner.entries.items()
            if self._reads_chosen(survey.source_offsets[group], ways[topic])
        }
        add_unmapped(entries, survey, self._maps, self._topics)
        return _Look(survey, entries, {**survey.source_offsets, **hidden, **planner.troubles})

    def _reads_chosen(self, offsets: GroupOffsets | Exception, way: Route) -> bool:
        """Return False for a group that only reads other topics which write to the same topic of the target."""
        return isinstance(offsets, Exception) or any(
            name in self._topics and name in offsets.topics for name in way.topics
        )

    # -- without the source

    async def _look_at_checkpoints(self, logs: Mapping[TopicPartition, Log]) -> _Look:
        """Take the last offsets of groups on the source from the checkpoints, and translate them with the map as it is now."""
        rows = self._chosen_rows()
        names = {group for group, _ in rows}
        there = {name: group for name, group in (await list_groups(self._target)).items() if name in names}
        offsets = await offsets_of(self._target, there, stable=False)
        here = {name: as_remembered(name, self._checkpoints.is_share.get(name), there.get(name)) for name in names}
        survey = Survey(here, there, {}, offsets).readable()
        entries: dict[tuple[str, str], Entry] = {}
        for (group, topic), found in rows.items():
            on_target = survey.target_offsets.get(group, _NOTHING)
            if isinstance(on_target, Exception) or on_target.error:
                continue
            committed = on_target.topics[topic].rows() if topic in on_target.topics else {}
            entry = entries[group, topic] = Entry(presence=survey.presence(group))
            for row in found:
                current = committed[row.partition].offset if row.partition in committed else -1
                known = current if current >= 0 else None
                entry.offsets[row.partition] = (row.upstream, known)
                log = logs.get((topic, row.partition))
                if log is None:
                    state = State.PENDING if (topic, row.partition) in self._places else State.UNMAPPED
                    entry.decisions[row.partition] = Decision(state)
                    continue
                memory = self._checkpoints.memory[group, topic].get(row.partition)
                presence = entry.presence if self._settings.commits else Presence.FREE
                aimed = self._aim(row, log)
                decision = decide(aimed, known if self._settings.commits else row.downstream, memory, presence)
                # Nobody knows how much of the rest the group has read since the mirror last looked at it.
                begin = current if known is not None and decision.commit is None else aimed.offset
                entry.decisions[row.partition] = decision._replace(again=max(0, log.end - begin))
                entry.metadata[row.partition] = row.metadata
        return _Look(survey, entries, {})

    def _aim(self, row: Checkpoint, log: Log) -> Aim:
        known = self._maps.get((row.topic, row.partition))
        if known is not None and known.places == [("", row.partition)]:
            told = known.translate(("", row.partition), row.upstream)
            if row.upstream < known.first:
                # The map began later, or was lost. What the mirror knew before that counts if the map has no earlier place.
                is_kept = told.offset <= row.downstream <= told.latest
                offset, first = (row.downstream, row.upstream) if is_kept else (told.offset, known.first)
                return aim([Part(row.upstream, offset, told.latest, first, known.end)], log)
            # The mirror knew at least as much when it wrote the checkpoint.
            offset, latest = max(told.offset, row.downstream), max(told.latest, row.downstream)
            return aim([Part(row.upstream, offset, latest, known.first, known.end)], log)
        # Several source partitions lead here, so one offset of the source says nothing: what was written counts.
        return aim([Part(row.upstream, row.downstream, row.downstream, 0, row.upstream)], log)

    def _see(self, row: Checkpoint, _timestamp: int) -> None:
        self._rows[row.group, row.topic, row.partition] = row

    def _chosen_rows(self) -> dict[tuple[str, str], list[Checkpoint]]:
        """Return the last checkpoints of chosen groups in the topics of this failover, also where the map lacks them.

        Checkpoints stay when a topic is deleted on both sides.
        """
        topics = {topic for topic, _ in self._places} | set(filter(self._settings.is_mirrored, self._target.topics))
        found: dict[tuple[str, str], list[Checkpoint]] = {}
        for (group, topic, _), row in sorted(self._rows.items()):
            if self._settings.is_chosen(group) and topic in topics:
                found.setdefault((group, topic), []).append(row)
        return found

    # -- the result

    def _starts(self, found: _Look, *, is_closed: bool) -> list[GroupStart]:
        rows: list[GroupStart] = []
        others = left_out(found.survey.source_offsets, self._topics.__contains__)
        for (group, topic), entry in sorted(found.entries.items()):
            if not entry.decisions:
                continue
            # An offset that is still to write after the last write was refused.
            offsets = {
                partition: entry.offsets[partition][1] if decision.commit is None or is_closed else decision.commit
                for partition, decision in sorted(entry.decisions.items())
            }
            state = State.PENDING if _has_news(entry) and entry.state.is_ready else entry.state
            way_out = "" if state.is_ready else advice(state, group, topic, self._target.endpoint)
            if way_out and is_closed:
                # No mirror runs any more.
                way_out = _WITHOUT_MIRROR.get(state, f"{way_out}; then run this command again with --repeat")
            reason = self._writer.reason(group, topic) if way_out else ""
            is_known = all(decision.offset >= 0 for decision in entry.decisions.values())
            again, missing = (entry.again, entry.missing) if is_known else (None, None)
            way_out = f"{reason}; {way_out}" if reason else way_out
            rows.append(GroupStart(group, topic, offsets, state, again, missing, way_out, others.get(group, ())))
        rows += unread(self._source or self._target, found.unread)
        named = {row.group for row in rows if not row.topic}
        return rows + [row for row in unread(self._target, found.survey.target_offsets) if row.group not in named]


_WITHOUT_MIRROR = {
    State.TARGET_SHORT: "run `mirrormaker verify`: the target's log ends before records that it had acknowledged",
    State.PENDING: "run this command again with --repeat",
    State.REFUSED: "set the offset with kafka-consumer-groups --reset-offsets, or run this command again with --repeat",
    State.UNMAPPED: "the offset map lacks this topic, or some of its partitions: consumers start there as auto.offset.reset says",
}


def _has_news(entry: Entry) -> bool:
    return any(decision.commit is not None for decision in entry.decisions.values())


def _may_be_written(entry: Entry) -> bool:
    return any(decision.commit is not None and decision.state.is_followed for decision in entry.decisions.values())
