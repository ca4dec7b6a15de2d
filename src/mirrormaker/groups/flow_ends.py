"""How far a flow is: the ledger and the end offsets of the source, the offset map, and the logs of the target.

The source may be gone. Then the map and the target's logs have to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from mirrormaker.errors import OUTAGE, BrokerError, ClusterError, DataError, EntryError, describe
from mirrormaker.kafka_errors import GROUP_AUTHORIZATION_FAILED, OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.map_topic import MapTopic
from mirrormaker.model.group_sync import Log
from mirrormaker.model.ledger import unpack
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.position import Identity, Position
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.groups import GroupCoordinator
from mirrormaker.wire.client.log_fetch import fetch_log
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, find_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import DescribeGroupsRequest
from mirrormaker.wire.records.batch import Batches

T = TypeVar("T")

_FETCH_BYTES = 1 << 20  # of one answer
_MOST_BYTES = 32 << 20  # of one target partition: behind the mirrored records there may be many of other writers
_AT_ONCE = 16  # target partitions that are read at a time


@dataclass(frozen=True)
class PartitionEnd:
    """One source partition: how much of it the target has."""

    topic: str
    partition: int
    # Everything before this source offset is on the target.
    mirrored: int
    # Offsets of the source from there on; None if the source was not asked, or did not answer.
    missing: int | None
    # Records that the target had acknowledged, and that its log no longer has at its end.
    lost: int = 0
    # Records that the target has, and that the map does not know yet.
    unmapped: int = 0
    # The last mirrored record's, in milliseconds since 1970; -1 if it is not known.
    timestamp: int = -1
    # Why something of this is not known; empty if everything is.
    trouble: str = ""

    @property
    def is_complete(self) -> bool:
        """Return True if nothing is known to be missing."""
        return not (self.missing or self.lost or self.trouble)


@dataclass
class SourceSide:
    """The source's answers: its end offsets, and the mirror's own group, which is the ledger."""

    ends: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]
    ledger: Mapping[TopicPartition, Position]
    troubles: Mapping[TopicPartition, str] = field(default_factory=dict)

    def missing(self, key: TopicPartition, known: PartitionMap) -> int | None:
        """Return how many offsets of a partition are not mirrored; None if the source does not tell its end."""
        if key not in self.ends:
            return None
        return max(0, self.ends[key] - self.mirrored(key, known))

    def mirrored(self, key: TopicPartition, known: PartitionMap) -> int:
        """Return the offset before which everything is mirrored: the ledger's or the map's, whichever is further."""
        position = self.ledger.get(key)
        if position is None and not known.blocks:
            return self.starts.get(key, 0)
        return max(known.end, position.offset if position is not None else 0)


async def read_source(
    source: Cluster,
    group: str,
    target_id: str,
    keys: Collection[TopicPartition],
    known: Collection[TopicPartition],
    *,
    read_committed: bool,
) -> SourceSide:
    """Return the source's side of these partitions; `known` are those that the map has."""
    ledger = await _read_ledger(source, group, target_id, keys)
    ends, failed = await find_offsets(source, keys, LATEST, read_committed)
    for (topic, _), error in failed.items():
        if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
            raise ClusterError(denied(source.endpoint, "Describe", "topic", topic))
    untouched = [key for key in keys if key not in ledger and key not in known]
    starts = (await find_offsets(source, untouched, EARLIEST))[0] if untouched else {}
    troubles = {key: f"the source does not tell its end: {describe(error)}" for key, error in failed.items()}
    return SourceSide(ends, starts, ledger, troubles)


async def _read_ledger(
    source: Cluster, group: str, target_id: str, keys: Collection[TopicPartition]
) -> dict[TopicPartition, Position]:
    try:
        committed, _ = await GroupCoordinator(source, group).committed(lambda: keys)
    except BrokerError as error:
        if error.code == GROUP_AUTHORIZATION_FAILED:
            raise ClusterError(denied(source.endpoint, "Describe", "group", group)) from error
        raise
    found: dict[TopicPartition, Position] = {}
    for key, (offset, metadata) in committed.items():
        try:
            position = unpack(*key, offset, metadata)
        except EntryError:
            continue
        if position is not None and position.target_cluster in ("", target_id):
            found[key] = position
    return found


async def mirror_members(source: Cluster, group: str) -> int:
    """Return how many mirrors are members of the group."""
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    answer = await GroupCoordinator(source, group).ask(request, newest=5)
    return sum(len(row.members) for row in answer.groups)


def maps_of(
    topic: MapTopic, keys: Iterable[TopicPartition], ledger: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, PartitionMap]:
    """Return the maps of partitions, as far as the ledger says that their last run has become longer since."""
    found: dict[TopicPartition, PartitionMap] = {}
    for key in keys:
        known, position = topic.read(key), ledger.get(key)
        if position is not None and position.identity.is_numbered and position.offset > known.end:
            known.begin(position)
        found[key] = known
    return found


# -- the target


class Spot(NamedTuple):
    """The end of what a source partition has brought to one target partition."""

    source: TopicPartition
    target: TopicPartition
    offset: int
    identity: Identity


def spots_of(maps: Mapping[TopicPartition, PartitionMap]) -> Iterator[Spot]:
    """Yield the last known places of all partitions on the target."""
    for key, known in maps.items():
        for place in known.places:
            block = next(block for block in reversed(known.blocks) if place in block.lists)
            yield Spot(key, (place[0] or key[0], place[1]), block.lists[place].end_offset, block.identity)


class Found(NamedTuple):
    """The records of a flow at the end of one target partition."""

    timestamp: int = -1
    unmapped: int = 0
    lost: int = 0
    trouble: str = ""


async def read_logs(target: Cluster, keys: Collection[TopicPartition]) -> dict[TopicPartition, Log]:
    """Return where logs of the target begin and end; partitions without an answer are left out."""
    starts, _ = await find_offsets(target, keys, EARLIEST)
    ends, _ = await find_offsets(target, keys, LATEST)
    return {key: Log(min(starts[key], end), end) for key, end in ends.items() if key in starts}


async def look_at_ends(
    target: Cluster, spots: Collection[Spot], logs: Mapping[TopicPartition, Log]
) -> dict[TopicPartition, list[Found]]:
    """Return what the target's logs have of each source partition at and after its last known places."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def look(spot: Spot) -> Found:
        async with slots:
            log = logs.get(spot.target)
            name = f"{spot.target[0]}-{spot.target[1]}"
            if log is None:
                return Found(trouble=f"{name} has no leader on the target")
            try:
                return await _look(target, spot, log)
            except (*OUTAGE, DataError) as error:
                if isinstance(error, BrokerError) and error.code == TOPIC_AUTHORIZATION_FAILED:
                    raise ClusterError(
                        denied(target.endpoint, ("Describe", "Read"), "topic", spot.target[0])
                    ) from error
                return Found(trouble=f"{name} cannot be read on the target: {describe(error)}")

    found: dict[TopicPartition, list[Found]] = {}
    for spot, row in zip(spots, await asyncio.gather(*map(look, spots)), strict=True):
        found.setdefault(spot.source, []).append(row)
    return found


async def _look(target: Cluster, spot: Spot, log: Log) -> Found:
    if log.end < spot.offset:
        return Found(lost=spot.offset - log.end)
    # The last known record too: its time is wanted.
    at, size = max(log.start, spot.offset - 1), 0
    timestamp, unmapped = -1, 0
    while at < log.end and size < _MOST_BYTES:
        try:
            part = await fetch_log(target, spot.target, at, _FETCH_BYTES)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise
            break  # retention has passed this place meanwhile
        if not part.runs:
            break
        size, at = size + part.size, part.end
        for batch in (batch for run in part.runs if isinstance(run, Batches) for batch in run):
            if Identity(batch.producer_id, batch.producer_epoch) == spot.identity and not batch.is_control:
                timestamp = batch.max_timestamp
                after = batch.count if batch.base_offset >= spot.offset else batch.last_offset + 1 - spot.offset
                unmapped += max(0, after)
    return Found(timestamp, unmapped)


def ends_of(
    maps: Mapping[TopicPartition, PartitionMap],
    side: SourceSide | None,
    found: Mapping[TopicPartition, list[Found]],
) -> list[PartitionEnd]:
    """Put both sides together, in the order of topics and partitions."""
    rows: list[PartitionEnd] = []
    for key, known in sorted(maps.items()):
        places = found.get(key, [])
        troubles = [row.trouble for row in places if row.trouble]
        mirrored, missing = known.end, None
        if side is not None:
            mirrored, missing = side.mirrored(key, known), side.missing(key, known)
            troubles += [side.troubles[key]] if key in side.troubles else []
        rows.append(
            PartitionEnd(
                *key,
                mirrored,
                missing,
                sum(row.lost for row in places),
                sum(row.unmapped for row in places),
                max((row.timestamp for row in places), default=-1),
                "; ".join(troubles),
            )
        )
    return rows
