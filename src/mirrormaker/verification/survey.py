"""What is there to compare: one look at both clusters, and at how far the mirror is.

The committed positions are read first, then the target's ends, then the source's. So what a position speaks of is on the target by
then; and if the source ends where its position is, nothing else can be. A position of ours says both: the source offset before
which everything is mirrored, and the target offset before which it lies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mirrormaker.errors import OUTAGE, CannotTell, ClusterError, describe
from mirrormaker.model.fingerprint import used_handler
from mirrormaker.model.ledger import unpack
from mirrormaker.model.position import Position
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.verification.marks import Marks
from mirrormaker.verification.plan import EVERYTHING, TARGET, Part, TopicPlan, Window
from mirrormaker.wire.client.cluster import Cluster, Endpoint, topic_id
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.client.groups import GroupCoordinator
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, wait_for_offsets
from mirrormaker.wire.protocol.messages import DescribeConfigsRequest, ListOffsetsRequest, ProduceRequest
from mirrormaker.zookeeper.lookup import ZooKeeperLookup, endpoint_of

Key = tuple[str, int]
T = TypeVar("T")


_POLICY, _STAMPS = "cleanup.policy", "message.timestamp.type"
_TIMES, _HEADERS = 2, 3  # versions of ProduceRequest: from these on records have timestamps, and headers


async def _connected(which: str, cluster: Cluster, settings: SourceSettings | TargetSettings) -> None:
    key = "bootstrap.servers" if settings.endpoint.bootstrap else "found through zookeeper.connect"
    cluster.endpoint = await endpoint_of(settings)
    try:
        await cluster.refresh()
    except (OSError, asyncio.TimeoutError) as error:
        raise CannotTell(f"the {which} cluster cannot be reached: {error} ({key} in {settings.path})") from error


class Survey:
    """One look at all clusters: makes the plan of each topic."""

    def __init__(self, sources: Sequence[SourceSettings], target: TargetSettings, window: Window = EVERYTHING) -> None:
        self.settings, self.target_settings, self.window = sources, target, window
        self.sources = [Cluster(each.endpoint) for each in sources]
        self.target = Cluster(target.endpoint)
        self.notes: list[str] = []
        self._loop = asyncio.new_event_loop()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Spark's calls block, and Kafka is asked in between."""
        return self._loop.run_until_complete(task)

    def close(self) -> None:
        for cluster in (*self.sources, self.target):
            cluster.close()
        self.run(asyncio.sleep(0))
        self._loop.close()

    @property
    def endpoints(self) -> dict[int, tuple[Endpoint, bool]]:
        """How tasks reach each side, and whether only committed records count there."""
        found = {n: (self.sources[n].endpoint, each.read_committed) for n, each in enumerate(self.settings)}
        return found | {TARGET: (self.target.endpoint, True)}

    async def connect(self) -> None:
        """Reach all clusters; nothing else is started before that."""
        for settings, cluster in zip(self.settings, self.sources, strict=True):
            await _connected("source", cluster, settings)
        await _connected("target", self.target, self.target_settings)

    def names(self, chosen: Filter, judge: Matcher, only: Sequence[str]) -> list[str]:
        """The topics that the filter takes, of all sources."""
        found = {t.name for cluster in self.sources for t in chosen.chosen(cluster.topics.values(), judge)}
        unknown = [name for name in only if name not in found]
        if unknown:
            raise CannotTell(
                f"--topics {unknown[0]}: there is no such topic on the source, or the filter leaves it out"
            )
        return sorted(found & set(only) if only else found)

    async def plans(self, names: Sequence[str]) -> list[TopicPlan]:
        try:
            return await self._plans(names)
        except (ClusterError, *OUTAGE) as error:
            raise CannotTell(describe(error)) from error

    async def _plans(self, names: Sequence[str]) -> list[TopicPlan]:
        positions = [await self._positions(n, set(names)) for n in range(len(self.sources))]
        await self.target.refresh()
        sides = {TARGET: await self._parts(TARGET, self.target, names, True)}
        for side, cluster in enumerate(self.sources):
            await cluster.refresh()
            sides[side] = await self._parts(side, cluster, names, self.settings[side].read_committed)
        policies = [
            await _topic_settings(cluster, each, names)
            for cluster, each in zip(self.sources, self.settings, strict=True)
        ]
        policies.append(await _topic_settings(self.target, self.target_settings, names))
        kept = await _kept(self.target)
        return [self._plan(name, positions, sides, policies, kept) for name in names]

    async def _positions(self, side: int, names: set[str]) -> dict[Key, tuple[int, Position | None]]:
        """How far the mirror is: the offset, and the rest of the position where it is one of ours."""
        cluster, settings = self.sources[side], self.settings[side]
        committed = await self._committed(cluster, settings, names)
        found: dict[Key, tuple[int, Position | None]] = {}
        for key, (offset, metadata) in committed.items():
            if key[0] not in names:
                continue
            position = unpack(*key, offset, metadata)
            if position is not None and position.target_cluster != self.target.id:
                raise CannotTell(
                    f"group {settings.group_id} mirrors {key[0]}-{key[1]} to cluster {position.target_cluster}, and the target"
                    f" is {self.target.id} ({self.target.endpoint}): name the target of this group"
                )
            if position is not None and position.topic_id not in ("", topic_id(cluster, key[0])):
                continue  # of a topic that is gone; its successor is not mirrored yet
            if position is not None and position.target_topic_id not in ("", topic_id(self.target, key[0])):
                if key[0] in self.target.topics:
                    self.notes.append(f"{key[0]} was created again on the target since it was mirrored")
                position = None
            found[key] = offset, position
        return found

    async def _committed(
        self, cluster: Cluster, settings: SourceSettings, names: set[str]
    ) -> dict[Key, tuple[int, str]]:
        """What the group has committed to Kafka; else what an old consumer has left in ZooKeeper."""
        known = {(name, p) for name in names if name in cluster.topics for p in cluster.topics[name].partitions}
        committed = await GroupCoordinator(cluster, settings.group_id).committed(lambda: known)
        if not committed and settings.zookeeper:
            old = await ZooKeeperLookup.of(settings).group(settings.group_id)
            return {key: (offset, "") for key, offset in old.offsets.items()}
        return committed

    async def _parts(self, side: int, cluster: Cluster, names: Sequence[str], committed: bool) -> dict[Key, Part]:
        keys = [(name, p) for name in names if name in cluster.topics for p in sorted(cluster.topics[name].partitions)]
        starts = await wait_for_offsets(cluster, keys, EARLIEST)
        since = {}
        if self.window.since is not None and await _finds_times(cluster):
            since = await wait_for_offsets(cluster, keys, self.window.since, committed)
        ends = await wait_for_offsets(cluster, keys, LATEST, committed)
        return {
            key: Part(side, *key, starts[key], _first(starts[key], since.get(key, 0), ends[key]), ends[key], ends[key])
            for key in keys
        }

    def _plan(
        self,
        name: str,
        positions: Sequence[dict[Key, tuple[int, Position | None]]],
        sides: dict[int, dict[Key, Part]],
        policies: Sequence[dict[str, dict[str, str] | None]],
        kept: int,
    ) -> TopicPlan:
        targets = [part for part in sides[TARGET].values() if part.topic == name]
        sources = [part for side in range(len(self.sources)) for part in sides[side].values() if part.topic == name]
        by_key = self._by_key(sources, len(targets))
        notes: list[str] = []
        placed: list[Part] = []
        marks = Marks()
        for part in sources:
            places = [t.partition for t in targets] if part.side in by_key else [part.partition]
            known = positions[part.side].get((name, part.partition))
            placed.append(marks.note(part, places, known))
            if known and known[1] and used_handler(known[1]):
                notes.append("mirrored with a message handler: records that it changed are different")
        for side, settings in enumerate(self.settings):
            mine = [part for part in sources if part.side == side]
            without = sum((name, part.partition) not in positions[side] and part.end > part.start for part in mine)
            if without:
                notes.append(
                    f"group {settings.group_id} has no committed offset for {without} of {len(mine)} partitions:"
                    " their last records may not be mirrored yet"
                )
        told = [found for found in (policy.get(name, {}) for policy in policies) if found is not None]
        if len(told) < len(policies):
            notes.append(
                "brokers do not tell its settings, so it may be compacted: a missing record is not seen if a later one has the"
                " same key"
            )
        if kept < _HEADERS:
            what, version = ("headers", "0.11") if kept == _TIMES else ("headers and timestamps", "0.10")
            notes.append(f"{what} are not compared: the target does not keep them (before Kafka {version})")
        stamps = (policies[-1].get(name) or {}).get(_STAMPS) == "LogAppendTime"
        return TopicPlan(
            name=name,
            by_key=by_key,
            sources=tuple(placed),
            targets=tuple(map(marks.ended, targets)),
            limits={key: limit for key, limit in marks.limits.items() if marks.by_cuts(key[0])},
            timestamps=kept >= _TIMES and not stamps,
            headers=kept >= _HEADERS,
            compacted=len(told) < len(policies) or any("compact" in found.get(_POLICY, "") for found in told),
            starts_late=any(self.settings[part.side].auto_offset_reset == "latest" for part in sources),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _by_key(self, sources: Sequence[Part], there: int) -> frozenset[int]:
        """As the mirror decides it, for each source."""
        counts = Counter(part.side for part in sources)
        by = self.target_settings.partition_by
        return frozenset(n for n, here in counts.items() if there and (by == "key" or (by is None and here != there)))

    async def log_starts(self, plan: TopicPlan) -> TopicPlan:
        """The same plan, with the starts that retention has moved since."""
        try:
            found = {}
            for side in {part.side for part in (*plan.sources, *plan.targets)}:
                cluster = self.target if side == TARGET else self.sources[side]
                keys = [(p.topic, p.partition) for p in (*plan.sources, *plan.targets) if p.side == side]
                found[side] = await wait_for_offsets(cluster, keys, EARLIEST)
        except (ClusterError, *OUTAGE) as error:
            raise CannotTell(describe(error)) from error

        def moved(part: Part) -> Part:
            return replace(part, log_start=found[part.side][part.topic, part.partition])

        return replace(plan, sources=tuple(map(moved, plan.sources)), targets=tuple(map(moved, plan.targets)))


def _first(start: int, since: int, end: int) -> int:
    """Brokers say -1 where no record is as young as that."""
    return end if since < 0 else min(end, max(start, since))


async def _finds_times(cluster: Cluster) -> bool:
    """Before 0.10.1 brokers know no timestamps of records."""
    connection = await cluster.connection(next(iter(cluster.brokers)))
    return connection.best_version(ListOffsetsRequest) > 0


async def _kept(cluster: Cluster) -> int:
    """What a cluster's records may have, as the version of its ProduceRequest."""
    connection = await cluster.connection(next(iter(cluster.brokers)))
    return connection.best_version(ProduceRequest)


async def _topic_settings(
    cluster: Cluster, settings: SourceSettings | TargetSettings, names: Sequence[str]
) -> dict[str, dict[str, str] | None]:
    """What decides whether records may be gone, or stamped; None, where nobody tells."""
    there = [name for name in names if name in cluster.topics]
    if there and await cluster.knows(DescribeConfigsRequest):
        results = await describe_configs(cluster, TOPIC, there, (_POLICY, _STAMPS))
        return {
            r.resource_name: None if r.error_code else {s.name: s.value or "" for s in r.configs or ()} for r in results
        }
    if there and settings.zookeeper:
        return {**await ZooKeeperLookup.of(settings).topic_settings(there)}
    return dict.fromkeys(there)
