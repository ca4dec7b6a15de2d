"""A failover: consumers and producers leave the source cluster and go on at the target.

With the source: wait until everything is mirrored, close the flow, wait until the mirror has stopped, bring the offsets of groups
up to date one last time. The mirror has stopped by then, so this process is the only one that writes them.
Without the source: close the flow, and take everything else from the target.

Closing a flow means to write a fence into the offset map: a mirror that runs stops, and one that starts refuses to.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mirrormaker.errors import OUTAGE, ClusterError, MirrorError, UnsupportedRequest, describe, describe_any
from mirrormaker.groups.failover_groups import LastSync
from mirrormaker.groups.failover_report import FailoverReport, GroupStart
from mirrormaker.groups.flow_ends import (
    SourceSide,
    ends_of,
    look_at_ends,
    maps_of,
    read_logs,
    read_source,
    spots_of,
)
from mirrormaker.groups.mirror_stop import LOOK_EVERY, SHOW_EVERY, Show, members, wait_until_still, wait_until_stopped
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.fence_watch import describe_fence
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import Fence
from mirrormaker.model.topic_filter import Filter, python_matcher
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition


@dataclass(frozen=True)
class FailoverSettings:
    """The choices of the user; times are in seconds."""

    group_id: str  # of the mirror
    topics: Filter
    sync: SyncSettings | None  # None: no groups are chosen
    by: str  # for the fence
    read_committed: bool = False
    deadline: float = 60.0
    is_dry: bool = False
    accepts_missing: bool = False
    # Go on although the flow is closed already: an earlier failover was interrupted.
    is_repeated: bool = False


class Failover:
    """One failover of one flow."""

    def __init__(
        self, source: Cluster | None, target: Cluster, topic: MapTopic, settings: FailoverSettings, show: Show
    ) -> None:
        """`source` None: it is gone, and is never asked. `show` gets lines of progress."""
        self._source, self._target, self._topic, self._settings = source, target, topic, settings
        self._show = show
        self._is_chosen = settings.topics.by_name()
        self._troubles: list[str] = []
        self._groups_trouble = ""
        # Said with an error that comes after the flow was closed.
        self._done = "the flow is closed, and no group was moved: run this command again with --repeat"

    async def run(self) -> FailoverReport:
        """Fail over; return what there is, and what is missing."""
        settings, topic = self._settings, self._topic
        if topic.fence is not None and not (settings.is_dry or settings.is_repeated):
            raise ClusterError(
                f"{describe_fence(topic.fence)}. --dry.run shows how it stands, --repeat goes on with a failover that was"
                " interrupted, --undo opens the flow again"
            )
        self._check_choice()
        has_caught_up = True
        if self._source is not None and not settings.is_dry:
            has_caught_up = await self._wait_for_mirror(self._source)
        if settings.is_dry or not (has_caught_up or settings.accepts_missing):
            return await self._finish(closes=False)
        try:
            await self._close()
            return await self._finish(closes=True)
        except (*OUTAGE, MirrorError) as error:
            if topic.fence is not None:
                raise ClusterError(f"{describe(error)}; {self._done}") from error
            if isinstance(error, MirrorError):
                raise
            raise ClusterError(
                f"{describe(error)}; nobody knows whether the flow is closed: --dry.run shows it"
            ) from error

    async def _finish(self, *, closes: bool) -> FailoverReport:
        """Read both sides, move the groups if the flow is closed now, and report."""
        await self._target.refresh()
        await self._topic.refresh()
        keys = self._keys()
        every = sorted(keys | self._sharing(keys))
        side = await self._read_source(self._source, every) if self._source is not None else None
        maps = maps_of(self._topic, every, side.ledger if side is not None else {})
        groups: list[GroupStart] = []
        if self._settings.sync is not None:
            groups = await self._move_groups(self._settings.sync, maps, closes=closes)
        self._done = "the flow is closed, and the groups were moved as far as possible: --dry.run shows how it stands"
        return await self._report(side, {key: maps[key] for key in sorted(keys)}, groups)

    async def _move_groups(
        self, sync: SyncSettings, maps: Mapping[TopicPartition, PartitionMap], *, closes: bool
    ) -> list[GroupStart]:
        chosen = replace(sync, alias=sync.alias or self._topic.source_id, is_mirrored=self._is_chosen)
        last = LastSync(self._source, self._target, chosen, maps)
        try:
            groups = await last.run(is_dry=not closes)
        except Exception as error:  # whatever it is, the flow is closed, and the topics are worth a table
            if not closes:
                raise
            self._groups_trouble = (
                f"no group was moved, or only some of them: {describe_any(error)}; run this command again with --repeat"
            )
            return []
        self._troubles += filter(None, [last.trouble])
        return groups

    def _sharing(self, keys: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of other topics that a message handler brings into the same topics of the target."""
        targets = {topic for key in keys for topic, _ in self._places(key)}
        others = set(self._topic.partitions) - set(keys)
        return {key for key in others if any(topic in targets for topic, _ in self._places(key))}

    def _places(self, key: TopicPartition) -> set[TopicPartition]:
        return {(place[0] or key[0], place[1]) for place in self._topic.known(key).places}

    def _check_choice(self) -> None:
        """Raise ClusterError for a topic that nobody has, before anything is closed because of a slip of the pen."""
        found = {topic for topic, _ in self._keys()}
        unknown = sorted(set(self._settings.topics.names) - found)
        if unknown or not found:
            names = ", ".join(unknown) or self._settings.topics.pattern
            place = (
                "the offset map has no such topic" if self._source is None else "neither the source nor the map has it"
            )
            raise ClusterError(f"{names}: {place}; nothing was changed")

    def _keys(self) -> set[TopicPartition]:
        """Return the chosen partitions that the map or the source has."""
        keys = {key for key in self._topic.partitions if self._is_chosen(key[0])}
        return keys if self._source is None else keys | self._source_keys(self._source)

    def _source_keys(self, source: Cluster) -> set[TopicPartition]:
        chosen = self._settings.topics.chosen(source.topics.values(), python_matcher(self._settings.topics.pattern))
        return {(topic.name, number) for topic in chosen for number in topic.partitions}

    async def _read_source(self, source: Cluster, keys: Collection[TopicPartition]) -> SourceSide:
        gone = {key for key in keys if key[0] not in source.topics}
        if gone:
            await source.refresh({topic for topic, _ in gone})
        for topic, _ in gone:
            # Of a topic that only shares a topic of the target, the map is enough.
            if self._is_chosen(topic) and source.refused.get(topic) == TOPIC_AUTHORIZATION_FAILED:
                raise ClusterError(denied(source.endpoint, "Describe", "topic", topic))
        on_source, known = set(keys) - gone, set(self._topic.partitions)
        side = await read_source(
            source, self._settings.group_id, self._target.id, on_source, known,
            read_committed=self._settings.read_committed,
        )  # fmt: skip
        # Nothing is missing of a topic that the source no longer has.
        return replace(side, ends={**side.ends, **dict.fromkeys(gone, 0)})

    # -- waiting for the mirror

    async def _wait_for_mirror(self, source: Cluster) -> bool:
        """Wait until everything is mirrored; return False if the deadline comes first."""
        deadline = time.monotonic() + self._settings.deadline
        shown = float("-inf")
        while True:
            await source.refresh()
            keys = self._source_keys(source)
            side = await self._read_source(source, keys)
            await self._topic.refresh()
            missing = self._missing(side, keys)
            if not missing:
                self._show("everything is mirrored")
                return True
            now = time.monotonic()
            if now >= deadline:
                self._give_up(missing)
                return False
            if now - shown >= SHOW_EVERY:
                shown = now
                self._show(await self._progress(source, missing, deadline - now))
            await asyncio.sleep(LOOK_EVERY)

    def _missing(self, side: SourceSide, keys: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
        empty = PartitionMap()
        # The map is read only where the ledger has nothing to say: unpacking it takes its time.
        counts = {key: side.missing(key, empty if key in side.ledger else self._topic.read(key)) for key in keys}
        return {key: count for key, count in counts.items() if count != 0}

    def _give_up(self, missing: Mapping[TopicPartition, int | None]) -> None:
        seconds = f"{self._settings.deadline:g} s"
        if self._settings.accepts_missing:
            self._show(
                f"{_records(missing)} are not mirrored after {seconds}; going on without them (--accept.missing)"
            )
            return
        self._troubles.append(
            f"{_records(missing)} are not mirrored after {seconds}, so nothing was changed. Stop the producers on the source and"
            " try again, allow more time with --deadline.ms, or leave these records behind with --accept.missing"
        )

    async def _progress(self, source: Cluster, missing: Mapping[TopicPartition, int | None], left: float) -> str:
        running = None
        with contextlib.suppress(UnsupportedRequest):
            running = await members(source, self._settings.group_id)
        hint = f"; no mirror runs: group {self._settings.group_id} has no members" if running == 0 else ""
        return f"waiting for the mirror: {_records(missing)} are not on the target yet; {left:.0f} s left{hint}"

    # -- closing the flow

    async def _close(self) -> None:
        if self._topic.fence is None:
            await self._topic.write_fence(Fence(int(time.time() * 1000), self._settings.by))
            self._show(f"the flow is closed: {TOPIC} on {self._target.endpoint} has a fence")
            for note in self._other_topics():
                self._show(note)
        if self._source is None:
            await wait_until_still(self._target, set().union(*map(self._places, self._keys())), self._show)
        elif not await wait_until_stopped(self._source, self._settings.group_id, self._show):
            self._troubles.append(
                f"a mirror is still a member of group {self._settings.group_id} on {self._source.endpoint}: it has not noticed"
                " the fence. Stop it by hand, then run this command again with --repeat"
            )

    def _other_topics(self) -> list[str]:
        """Return a note on the topics that a fence concerns too, although they were not chosen."""
        others = sorted({topic for topic, _ in self._topic.partitions if not self._is_chosen(topic)})
        if not others:
            return []
        names = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        return [f"a fence is for all topics of a source cluster: after it, these are not mirrored either: {names}"]

    # -- the end

    async def _report(
        self, side: SourceSide | None, maps: Mapping[TopicPartition, PartitionMap], groups: list[GroupStart]
    ) -> FailoverReport:
        spots = list(spots_of(maps))
        await self._target.refresh({spot.target[0] for spot in spots})
        logs = await read_logs(self._target, {spot.target for spot in spots})
        found = await look_at_ends(self._target, spots, logs)
        return FailoverReport(
            source_id=self._topic.source_id,
            time=int(time.time() * 1000),
            is_dry=self._settings.is_dry,
            is_closed=self._topic.fence is not None,
            source_answered=side is not None,
            partitions=ends_of(maps, side, found),
            groups=groups,
            chooses_groups=self._settings.sync is not None,
            troubles=self._troubles,
            groups_trouble=self._groups_trouble,
            notes=self._other_topics() if self._settings.is_dry else (),
        )


def _records(missing: Mapping[TopicPartition, int | None]) -> str:
    known = sum(count or 0 for count in missing.values())
    most = max(missing, key=lambda key: missing[key] or 0)
    return f"{known:,} records of {len(missing):,} partitions (most of them in {most[0]}-{most[1]})"
