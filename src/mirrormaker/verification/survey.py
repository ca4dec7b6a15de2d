"""Ask both clusters what there is to compare, and how far the mirror is.

The committed positions are read first, then the ends of the target's logs, then those of the source's. So everything
that a position covers is on the target by then, and a source log that ends at its position is mirrored completely. A
position names both: the source offset before which everything is mirrored, and the target offset before which it lies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from mirrormaker.errors import OUTAGE, CannotTell, ClusterError, describe
from mirrormaker.model.fingerprint import used_handler
from mirrormaker.model.ledger import unpack
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.verification.plan import (
    TARGET,
    CommittedOffset,
    CompareLimits,
    PartitionRange,
    TopicPlan,
    Window,
)
from mirrormaker.wire.client.cluster import Cluster, Endpoint, topic_id
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.client.groups import GroupCoordinator
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, wait_for_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import DescribeConfigsRequest, ListOffsetsRequest, ProduceRequest
from mirrormaker.zookeeper.lookup import ZooKeeperLookup, endpoint_of

T = TypeVar("T")

_CLEANUP_POLICY, _TIMESTAMP_TYPE = "cleanup.policy", "message.timestamp.type"
# The versions of ProduceRequest from which on records have timestamps (Kafka 0.10) and headers (0.11).
_WITH_TIMESTAMPS, _WITH_HEADERS = 2, 3


class _Facts(NamedTuple):
    """The answers of the clusters, from which all plans are made."""

    committed: list[dict[TopicPartition, CommittedOffset]]  # by source
    ranges: dict[int, dict[TopicPartition, PartitionRange]]  # by side
    # By source, then the target's: settings of each topic; None if the cluster does not tell them.
    topic_settings: list[dict[str, Mapping[str, str] | None]]
    produce_version: int  # of ProduceRequest on the target


class Survey:
    """Connections to all clusters, and what they tell. Runs an event loop of its own between Spark's blocking calls."""

    def __init__(self, sources: Sequence[SourceSettings], target: TargetSettings, window: Window) -> None:
        self._settings, self._target_settings, self.window = sources, target, window
        self._sources = [Cluster(settings.endpoint) for settings in sources]
        self._target = Cluster(target.endpoint)
        self.notes: list[str] = []
        self._loop = asyncio.new_event_loop()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines below to its end."""
        return self._loop.run_until_complete(task)

    def close(self) -> None:
        """Close all connections."""
        for cluster in (*self._sources, self._target):
            cluster.close()
        self.run(asyncio.sleep(0))
        self._loop.close()

    @property
    def endpoints(self) -> dict[int, tuple[Endpoint, bool]]:
        """Return how tasks reach each side, and True if only committed records count there."""
        sources = zip(self._sources, self._settings, strict=True)
        endpoints = {side: (cluster.endpoint, s.read_committed) for side, (cluster, s) in enumerate(sources)}
        return endpoints | {TARGET: (self._target.endpoint, True)}

    async def connect(self) -> None:
        """Connect to all clusters. Raise CannotTell if one cannot be reached."""
        for settings, cluster in zip(self._settings, self._sources, strict=True):
            await _connect("source", cluster, settings)
        await _connect("target", self._target, self._target_settings)

    def names(self, topic_filter: Filter, matcher: Matcher, only: Sequence[str]) -> list[str]:
        """Return the topics of all sources that the filter chooses; of these `only` some, if any are named."""
        chosen = {t.name for cluster in self._sources for t in topic_filter.chosen(cluster.topics.values(), matcher)}
        unknown = [name for name in only if name not in chosen]
        if unknown:
            raise CannotTell(f"topic {unknown[0]}: it is not on the source, or the filter leaves it out")
        return sorted(chosen & set(only) if only else chosen)

    async def plans(self, names: Sequence[str]) -> list[TopicPlan]:
        """Return what there is to compare of each topic."""
        try:
            facts = await self._ask(names)
        except (ClusterError, *OUTAGE) as error:
            raise CannotTell(describe(error)) from error
        return [self._plan(name, facts) for name in names]

    async def refresh_log_starts(self, plan: TopicPlan) -> TopicPlan:
        """Return the same plan with the present log start offsets, which retention may have moved."""
        parts = (*plan.sources, *plan.targets)
        starts: dict[tuple[int, int], int] = {}
        try:
            for side in {part.side for part in parts}:
                cluster = self._target if side == TARGET else self._sources[side]
                keys = [(part.topic, part.partition) for part in parts if part.side == side]
                offsets = await wait_for_offsets(cluster, keys, EARLIEST)
                starts |= {(side, partition): offset for (_, partition), offset in offsets.items()}
        except (ClusterError, *OUTAGE) as error:
            raise CannotTell(describe(error)) from error

        def refreshed(parts: Sequence[PartitionRange]) -> tuple[PartitionRange, ...]:
            return tuple(replace(part, log_start=starts[part.side, part.partition]) for part in parts)

        return replace(plan, sources=refreshed(plan.sources), targets=refreshed(plan.targets))

    # -- questions to the clusters

    async def _ask(self, names: Sequence[str]) -> _Facts:
        """Ask in the order that the module's docstring explains."""
        committed = [await self._committed(side, set(names)) for side in range(len(self._sources))]
        await self._target.refresh()
        ranges = {TARGET: await self._ranges(TARGET, self._target, names, True)}
        for side, cluster in enumerate(self._sources):
            await cluster.refresh()
            ranges[side] = await self._ranges(side, cluster, names, self._settings[side].read_committed)
        topic_settings = [
            await _topic_settings(cluster, settings, names)
            for cluster, settings in zip(self._sources, self._settings, strict=True)
        ]
        topic_settings.append(await _topic_settings(self._target, self._target_settings, names))
        connection = await self._target.connection(next(iter(self._target.brokers)))
        return _Facts(committed, ranges, topic_settings, connection.best_version(ProduceRequest))

    async def _committed(self, side: int, names: set[str]) -> dict[TopicPartition, CommittedOffset]:
        """Return how far the mirror is with each partition of these topics."""
        cluster, settings = self._sources[side], self._settings[side]
        found: dict[TopicPartition, CommittedOffset] = {}
        for key, (offset, metadata) in (await self._group_offsets(cluster, settings, names)).items():
            if key[0] not in names:
                continue
            position = unpack(*key, offset, metadata)
            if position is not None:
                if position.target_cluster != self._target.id:
                    raise CannotTell(
                        f"group {settings.group_id} mirrors {key[0]}-{key[1]} to cluster {position.target_cluster},"
                        f" and the target is {self._target.id} ({self._target.endpoint}): name the target of this group"
                    )
                if position.topic_id not in ("", topic_id(cluster, key[0])):
                    # The topic was deleted and created again. Nothing of the new one is mirrored yet.
                    continue
                if position.target_topic_id not in ("", topic_id(self._target, key[0])):
                    if key[0] in self._target.topics:
                        self.notes.append(f"{key[0]} was created again on the target since it was mirrored")
                    position = None
            found[key] = CommittedOffset(offset, position)
        return found

    async def _group_offsets(
        self, cluster: Cluster, settings: SourceSettings, names: set[str]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Return the offsets that the group has committed to Kafka, or else those of an old consumer in ZooKeeper."""
        partitions = {(name, p) for name in names if name in cluster.topics for p in cluster.topics[name].partitions}
        committed, failed = await GroupCoordinator(cluster, settings.group_id).committed(lambda: partitions)
        for error in failed.values():
            raise error
        if not committed and settings.zookeeper:
            old = await ZooKeeperLookup.of(settings).group(settings.group_id)
            return {key: (offset, "") for key, offset in old.offsets.items()}
        return committed

    async def _ranges(
        self, side: int, cluster: Cluster, names: Sequence[str], read_committed: bool
    ) -> dict[TopicPartition, PartitionRange]:
        keys = [(name, p) for name in names if name in cluster.topics for p in sorted(cluster.topics[name].partitions)]
        starts = await wait_for_offsets(cluster, keys, EARLIEST)
        since: dict[TopicPartition, int] = {}
        if self.window.since is not None and await _finds_timestamps(cluster):
            since = await wait_for_offsets(cluster, keys, self.window.since, read_committed)
        ends = await wait_for_offsets(cluster, keys, LATEST, read_committed)
        ranges = {}
        for key in keys:
            log_start, end = starts[key], ends[key]
            first = since.get(key, 0)
            # Brokers answer -1 if all records are older.
            start = end if first < 0 else min(end, max(log_start, first))
            ranges[key] = PartitionRange(side, *key, log_start, start, end, end)
        return ranges

    # -- one topic's plan

    def _plan(self, name: str, facts: _Facts) -> TopicPlan:
        targets = [part for part in facts.ranges[TARGET].values() if part.topic == name]
        sources = [
            part for side in range(len(self._sources)) for part in facts.ranges[side].values() if part.topic == name
        ]
        by_key = self._by_key(sources, len(targets))
        limits = CompareLimits()
        limited_sources: list[PartitionRange] = []
        notes: list[str] = []
        for part in sources:
            places = [target.partition for target in targets] if part.side in by_key else [part.partition]
            committed = facts.committed[part.side].get((name, part.partition))
            limited_sources.append(limits.limit_source(part, places, committed))
            if committed is not None and committed.position is not None and used_handler(committed.position):
                notes.append("mirrored with a message handler: records that it changed are different")
        notes += self._notes_on_positions(name, sources, facts)
        settings = [s for s in (by_name.get(name, {}) for by_name in facts.topic_settings) if s is not None]
        tells_settings = len(settings) == len(facts.topic_settings)
        if not tells_settings:
            notes.append(
                "brokers do not tell its settings, so it may be compacted: a missing record is not seen if a later one"
                " has the same key"
            )
        keeps_timestamps, keeps_headers = (facts.produce_version >= v for v in (_WITH_TIMESTAMPS, _WITH_HEADERS))
        if not keeps_headers:
            lacks, version = ("headers", "0.11") if keeps_timestamps else ("headers and timestamps", "0.10")
            notes.append(f"{lacks} are not compared: the target does not keep them (before Kafka {version})")
        return TopicPlan(
            name=name,
            by_key=by_key,
            sources=tuple(limited_sources),
            targets=tuple(map(limits.limit_target, targets)),
            arrival_limits=limits.arrival_limits,
            keeps_timestamps=keeps_timestamps,
            keeps_headers=keeps_headers,
            log_append_time=(facts.topic_settings[-1].get(name) or {}).get(_TIMESTAMP_TYPE) == "LogAppendTime",
            compacted=not tells_settings or any("compact" in s.get(_CLEANUP_POLICY, "") for s in settings),
            starts_at_latest=any(self._settings[part.side].auto_offset_reset == "latest" for part in sources),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _notes_on_positions(self, name: str, sources: Sequence[PartitionRange], facts: _Facts) -> list[str]:
        notes = []
        for side, settings in enumerate(self._settings):
            parts = [part for part in sources if part.side == side]
            missing = sum(
                (name, part.partition) not in facts.committed[side] and part.end > part.start for part in parts
            )
            if missing:
                notes.append(
                    f"group {settings.group_id} has no committed offset for {missing} of {len(parts)} partitions:"
                    " their last records may not be mirrored yet"
                )
        return notes

    def _by_key(self, sources: Sequence[PartitionRange], target_count: int) -> frozenset[int]:
        """Return the sources whose records the mirror sends to the partition of their key."""
        if not target_count:
            return frozenset()
        counts = Counter(part.side for part in sources)
        partition_by = self._target_settings.partition_by
        return frozenset(
            side
            for side, count in counts.items()
            if partition_by == "key" or (partition_by is None and count != target_count)
        )


async def _connect(which: str, cluster: Cluster, settings: SourceSettings | TargetSettings) -> None:
    key = "bootstrap.servers" if settings.endpoint.bootstrap else "found through zookeeper.connect"
    cluster.endpoint = await endpoint_of(settings)
    try:
        await cluster.refresh()
    except (OSError, asyncio.TimeoutError) as error:
        raise CannotTell(f"the {which} cluster cannot be reached: {error} ({key} in {settings.path})") from error


async def _finds_timestamps(cluster: Cluster) -> bool:
    """Return True if the brokers can find offsets by the timestamps of records (Kafka 0.10.1 and later)."""
    connection = await cluster.connection(next(iter(cluster.brokers)))
    return connection.best_version(ListOffsetsRequest) > 0


async def _topic_settings(
    cluster: Cluster, settings: SourceSettings | TargetSettings, names: Sequence[str]
) -> dict[str, Mapping[str, str] | None]:
    """Return cleanup policy and timestamp type of each existing topic; None for a topic of which nobody tells."""
    existing = [name for name in names if name in cluster.topics]
    if existing and await cluster.knows(DescribeConfigsRequest):
        results = await describe_configs(cluster, TOPIC, existing, (_CLEANUP_POLICY, _TIMESTAMP_TYPE))
        return {
            r.resource_name: None if r.error_code else {s.name: s.value or "" for s in r.configs or ()} for r in results
        }
    if existing and settings.zookeeper:
        return {**await ZooKeeperLookup.of(settings).topic_settings(existing)}
    return dict.fromkeys(existing)
