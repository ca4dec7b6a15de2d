"""Keeps the offsets of chosen groups in step on the target, every few seconds.

One round: read both sides, translate what has changed, write the memory (`checkpoints`), then commit. The memory comes first:
a process that is killed in between leaves an offset on the target that the memory names as the one before, so it is still
ours. The other way round, the killed process would leave an offset that nobody remembers, and that would count as someone
else's for ever.

Each process does this for the partitions that it mirrors. A target topic whose partitions get records of several source
partitions belongs to the process that mirrors the first of these, also if they are of several topics. It takes the maps of the
others from the target: they are a moment old, which can only make a group read some records again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, describe_any
from mirrormaker.events import event
from mirrormaker.events.group_events import (
    CheckpointsNotCompacted,
    GroupSyncFailed,
    HeartbeatsFailed,
)
from mirrormaker.groups.checkpoints import HEARTBEATS, Checkpoints, Heartbeats
from mirrormaker.groups.group_news import GroupNews
from mirrormaker.groups.group_survey import Survey, known_offsets, look
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.offset_writer import OffsetWriter
from mirrormaker.groups.planning import Entry, Look, Planner
from mirrormaker.groups.routes import Map, Route, Routes, is_plain, written_here
from mirrormaker.groups.sync_figures import figures_of
from mirrormaker.kafka_errors import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.group_sync import Log
from mirrormaker.status.snapshot import GroupFigures
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import in_turns

_STARTS_EVERY = 30.0  # seconds between two looks at log start offsets: retention moves them slowly
_EVERYTHING_EVERY = 60.0  # seconds between two looks at groups that nobody has touched
# Seconds after which an offset is committed again although nothing has moved. Brokers forget it after a week, before Kafka 2.0
# after a day.
_RENEWED_AFTER = 12 * 3600.0
# Seconds between two looks at the maps of other processes; and at most one part in so many of the time is spent on them.
_OTHERS_EVERY, _OTHERS_SHARE = 5.0, 50
_NO_RIGHT = frozenset({TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED})


class Maps(Protocol):
    """The offset maps of the partitions that this process mirrors."""

    def partition(self, key: TopicPartition) -> Map | None:
        """Return the map of a source partition; None if it is not known."""

    async def refresh(self) -> None:
        """Read what other processes have stored."""


@dataclass(frozen=True)
class SyncSettings:
    """How groups are kept in step; times are in seconds."""

    is_chosen: Callable[[str], bool]
    alias: str = ""  # of the source; empty: the id of its cluster
    target_alias: str = ""
    interval: float = 5.0
    has_groups: bool = True  # False: only heartbeats are written
    commits: bool = True  # False: only checkpoints are written
    heartbeat_interval: float = 0.0  # 0: no heartbeats
    # A message handler may send records to other topics and partitions.
    has_handler: bool = False
    # The topics of the source that this flow mirrors, by all its processes.
    is_mirrored: Callable[[str], bool] = lambda name: True


class GroupSync:
    """The loop. `figures` and `planner.entries` are for the status page."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        settings: SyncSettings,
        maps: Maps | None,
        owned: Callable[[], Collection[TopicPartition]],
        report: event.Report,
    ) -> None:
        """`maps` is only needed for groups; `owned` returns the source partitions that this process mirrors."""
        self._source, self._target, self._settings, self._maps = source, target, settings, maps
        self._owned, self._report = owned, report
        self._checkpoints: Checkpoints | None = None
        self.planner = Planner(is_writing=settings.commits)
        self.figures = GroupFigures()
        self._starts: dict[TopicPartition, int] = {}
        self._source_starts: dict[TopicPartition, int] = {}
        self._starts_at = self._everything_at = self._others_at = float("-inf")
        self._others: dict[TopicPartition, Map] = {}
        self._horizons = Horizons()
        self._writer = OffsetWriter(target, commits=settings.commits)
        self._news = GroupNews(target, self._writer, report)

    @property
    def has_groups(self) -> bool:
        """Return True if groups are kept in step; otherwise only heartbeats are written."""
        return self._settings.has_groups

    async def run(self) -> None:
        """Keep groups in step, and write heartbeats, for as long as this runs."""
        if not self.has_groups:
            await self._beat()
        elif self._settings.heartbeat_interval:
            asyncio_task = asyncio.ensure_future(self._beat())
            try:
                await self._run()
            finally:
                asyncio_task.cancel()
        else:
            await self._run()

    async def _run(self) -> None:
        reported = ""
        while True:
            began = time.monotonic()
            try:
                await self.round()
                reported = ""
            except Exception as error:  # whatever it is, it is the trouble of groups alone: records flow on
                reason = self._reason(error)
                self.figures = replace(self.figures, trouble=reason)
                if reason != reported:
                    reported = reason
                    self._report(GroupSyncFailed(reason))
            await asyncio.sleep(max(0.2, self._settings.interval - (time.monotonic() - began)))

    async def _beat(self) -> None:
        alias = self._settings.alias or self._source.id
        beats = Heartbeats(self._target, alias, self._settings.target_alias or self._target.id)
        is_started, reported = False, ""
        while True:
            try:
                if not is_started:
                    await beats.start()
                    is_started = True
                await beats.beat()
                reported = ""
            except Exception as error:  # whatever it is, records and groups go on without heartbeats
                # The mirror itself reports a target that is away.
                is_away = isinstance(error, (*OUTAGE, ClusterError))
                reason = self._missing_right(error) if is_away else describe_any(error)
                if reason and reason != reported:
                    reported = reason
                    self._report(HeartbeatsFailed(reason))
            await asyncio.sleep(self._settings.heartbeat_interval)

    def _missing_right(self, error: BaseException) -> str:
        """Return the command that grants the right without which there are no heartbeats; empty after another error."""
        # A topic that may not be described seems to be missing.
        if not isinstance(error, BrokerError) or _NO_RIGHT.isdisjoint(
            (error.code, self._target.refused.get(HEARTBEATS))
        ):
            return ""
        return denied(self._target.endpoint, ("Create", "Write"), "topic", HEARTBEATS)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED and self._checkpoints:
            return denied(self._target.endpoint, ("Create", "Read", "Write"), "topic", self._checkpoints.topic)
        return describe_any(error)

    # -- one round

    async def round(self) -> None:
        """Read both sides, and write what has changed."""
        began = time.monotonic()
        checkpoints = await self._ready_checkpoints()
        ways, maps = await self._usable_maps()
        survey = await look(self._source, self._target, self._settings.is_chosen)
        await checkpoints.refresh()
        logs = await self._logs(survey, ways)
        seen = Look(maps, logs, self._source_starts, self._horizons)
        everything = began - self._everything_at > _EVERYTHING_EVERY
        if everything:
            self._everything_at = began
        changed: list[tuple[str, str, Entry]] = []
        now = time.time()
        plan = self.planner.plan(
            survey, ways, seen, checkpoints.memory, everything=everything, renewed_before=now - _RENEWED_AFTER
        )
        for step in plan:
            if step is None:
                await asyncio.sleep(0)
                continue
            group, topic, entry = step
            for partition, (_, on_target) in entry.offsets.items():
                if on_target is not None:
                    checkpoints.confirm(group, topic, partition, on_target)
            if any(decision.commit is not None for decision in entry.decisions.values()):
                changed.append((group, topic, entry))
            elif entry.state.is_ready:
                entry.synced_at = now
        if changed and self._settings.has_handler:
            ways = await self._ways_that_stay(ways)
            changed = [row for row in changed if row[1] in ways]
        await self._writer.write(survey, checkpoints, changed)
        await self._news.tell(self.planner.entries, survey.source.keys(), self.planner.troubles)
        self.figures = replace(
            await figures_of(self.planner.entries),
            round_seconds=time.monotonic() - began,
            last_round=time.time(),
        )

    async def _ready_checkpoints(self) -> Checkpoints:
        if self._checkpoints is None:
            alias = self._settings.alias or self._source.id
            if not alias:
                raise ClusterError("the source has no cluster id (before Kafka 0.10.1): set source.cluster.alias")
            checkpoints = Checkpoints(self._target, alias)
            self._checkpoints = checkpoints
            try:
                await checkpoints.start()
            except BaseException:
                self._checkpoints = None
                raise
            if checkpoints.policy and "compact" not in checkpoints.policy.split(","):
                self._report(CheckpointsNotCompacted(checkpoints.topic, checkpoints.policy, str(self._target.endpoint)))
        return self._checkpoints

    async def _usable_maps(self) -> tuple[Routes, dict[TopicPartition, Map]]:
        """Return the routes for which this process commits, and the maps of their source partitions."""
        maps = self._maps
        assert maps is not None, "groups need the offset map"
        own = {key: known for key in self._owned() if (known := maps.partition(key)) is not None}
        topics = self._source.topics
        spread = {key[0] for key, known in own.items() if not is_plain(key, known)}
        # Maps may have such places from a time when there was a handler.
        if self._settings.has_handler or any(place[0] for key in own if key[0] in spread for place in own[key].places):
            spread |= set(filter(self._settings.is_mirrored, topics))
        partitions = {
            name: [(name, number) for number in topics[name].partitions] if name in topics else [] for name in spread
        }
        others = {key for keys in partitions.values() for key in keys} - own.keys()
        if time.monotonic() > self._others_at:
            await self._look_at_others(maps, others)
        found = own | {key: known for key, known in self._others.items() if key in others}
        return written_here(found, own.keys(), partitions), found

    async def _ways_that_stay(self, ways: Routes) -> Routes:
        """Return the routes that are still the same once other processes' maps are read again.

        A message handler may have begun to send records of other partitions to one of these topics: they would lie before the
        places that were just found. A partition's map names a target topic before the first record goes there.
        """
        self._others_at = float("-inf")
        fresh, _ = await self._usable_maps()
        return {topic: way for topic, way in ways.items() if topic in fresh and fresh[topic].keys == way.keys}

    async def _look_at_others(self, maps: Maps, keys: Collection[TopicPartition]) -> None:
        """Read the maps of partitions that other processes mirror."""
        began = time.monotonic()
        self._others = {}
        if keys:
            await maps.refresh()
            async for key in in_turns(keys):
                if (known := maps.partition(key)) is not None:
                    self._others[key] = known
        now = time.monotonic()
        self._others_at = now + max(_OTHERS_EVERY, _OTHERS_SHARE * (now - began))

    async def _logs(self, survey: Survey, ways: Routes) -> dict[TopicPartition, Log]:
        """Return where the logs of the target partitions begin and end in which a chosen group has something."""
        topics = {
            topic
            for offsets in survey.source_offsets.values()
            if not isinstance(offsets, Exception)
            for topic in offsets.topics
        }
        used: dict[str, Route] = {topic: way for topic, way in ways.items() if not topics.isdisjoint(way.topics)}
        places = {(topic, partition) for topic, way in used.items() for partition in way.sources}
        if time.monotonic() - self._starts_at > _STARTS_EVERY or not places <= self._starts.keys():
            keys = set().union(*(way.keys for way in used.values()))
            self._starts = await known_offsets(self._target, places, EARLIEST)
            self._source_starts = await known_offsets(self._source, keys, EARLIEST)
            self._starts_at = time.monotonic()
        ends = await known_offsets(self._target, places, LATEST)
        shared = set().union(*(way.shared for way in used.values()))
        # The ends of the source are read after those of the target: see `Horizons`.
        self._horizons.note(ends, await known_offsets(self._source, shared, LATEST))
        return {key: Log(min(self._starts[key], end), end) for key, end in ends.items() if key in self._starts}
