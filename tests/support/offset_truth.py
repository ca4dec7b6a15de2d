"""The truth about offsets, read from both logs, beside what the stored offset map and the ledger say."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from mirrormaker.embedded import Cluster
from mirrormaker.mapping.map_topic import MapTopic, open_map
from mirrormaker.model.ledger import unpack
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.client.group_offsets import fetch_offsets, find_coordinators
from mirrormaker.wire.client.log_offsets import LATEST, wait_for_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.reading import Read
from tests.support.wire_clients import wire_client

T = TypeVar("T")


class Inexact(NamedTuple):
    """A source offset that is translated to a range on a target partition."""

    partition: int
    offset: int
    told: Translated


class State(NamedTuple):
    """The ledger of a flow, and the offset map of its source, which was read after it."""

    ledger: dict[TopicPartition, Position]
    map: MapTopic


def _ask(work: Callable[[Client, Client], Awaitable[T]], source: Cluster, target: Cluster) -> T:
    async def ask() -> T:
        ours, theirs = wire_client(source.bootstrap), wire_client(target.bootstrap)
        try:
            await ours.refresh()
            await theirs.refresh()
            return await work(ours, theirs)
        finally:
            ours.close()
            theirs.close()

    return asyncio.run(ask())


def stored_map(source: Cluster, target: Cluster) -> MapTopic:
    """Return the offset map of a source cluster as the target has it."""
    return _ask(lambda ours, theirs: open_map(theirs, ours.id), source, target)


def stored_state(source: Cluster, target: Cluster, group: str) -> State:
    """Return the ledger of a mirror's group, and then the offset map of its source."""

    async def read(ours: Client, theirs: Client) -> State:
        found = (await fetch_offsets(ours, await find_coordinators(ours, [group]), stable=False))[group]
        assert not isinstance(found, Exception), found
        positions = [
            unpack(topic, partition, row.offset, row.metadata)
            for topic, offsets in found.topics.items()
            for partition, row in offsets.rows().items()
        ]
        ledger = {position.key: position for position in positions if position is not None}
        return State(ledger, await open_map(theirs, ours.id))

    return _ask(read, source, target)


def log_ends(
    source: Cluster, target: Cluster, topics: Sequence[str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the end offsets of topics on both sides, those of the source first."""

    async def read(ours: Client, theirs: Client) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        return await _ends(ours, topics), await _ends(theirs, topics)

    return _ask(read, source, target)


async def _ends(cluster: Client, topics: Sequence[str]) -> dict[TopicPartition, int]:
    await cluster.refresh(topics)
    keys = [(topic, partition) for topic in topics for partition in cluster.topics[topic].partitions]
    return await wait_for_offsets(cluster, keys, LATEST)


def wrong_translations(
    found: PartitionMap, ours: Sequence[Read], theirs: Mapping[int, Sequence[Read]], end: int, *, once: bool = True
) -> tuple[list[tuple[object, ...]], list[Inexact]]:
    """Translate every source offset of a partition, and back; return the wrong ones, and those that are ranges.

    `ours` are the mirrored records of the source partition. Values are unique. `once`: no record was sent again.
    """
    wrong: list[tuple[object, ...]] = []
    inexact: list[Inexact] = []
    source_of = {row.value: row.offset for row in ours}
    for partition, rows in theirs.items():
        pairs = [(source_of[row.value], row.offset) for row in rows if row.value in source_of]
        assert not once or pairs == sorted(pairs)
        place = ("", partition)
        if place not in found.places:
            wrong += [(partition, "not in the map")] if pairs else []
            continue
        pairs = pairs if once else last_pass(found, pairs)
        if pairs != sorted(pairs):
            wrong.append((partition, "records come again, and the map does not say so"))
            continue
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        for offset in range(end + 2):
            told = found.translate(place, offset)
            at = bisect_left(sources, offset)
            if not told.is_exact:
                inexact.append(Inexact(partition, offset, told))
            if at < len(sources):
                if not told.offset <= targets[at] <= told.latest:
                    wrong.append((partition, offset, told, targets[at]))
            elif targets and told.offset < targets[-1] + 1 and told.is_exact:
                wrong.append((partition, offset, told, "the end"))
        for source, target in pairs:
            back = found.translate_back(place, target)
            if not back.offset <= source <= back.latest:
                wrong.append((partition, source, back, "back"))
    return wrong, inexact


def last_pass(found: PartitionMap, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (source offset, target offset) of the records of a partition to which a mirror did not come again later.

    If a source is compacted while streams are killed, the partition goes on at its position under a new identity. Records from
    after it that the target holds come again, or are gone from the source: then later records have their keys.
    """
    again = [(b.start, b.lists["", 0].first_offset) for a, b in pairwise(found.blocks) if a.identity != b.identity]
    return [pair for pair in pairs if not any(pair[0] >= source and pair[1] < target for source, target in again)]


def disagreements(
    state: State, key: TopicPartition, ours: Sequence[Read], theirs: Mapping[int, Sequence[Read]], *, once: bool
) -> tuple[list[tuple[object, ...]], list[Inexact], PartitionMap]:
    """Return where the map of a partition, or the map and the ledger together, contradict the logs; what both say is a range;
    and the map as it is after both. Mirrors may be dead, or go on meanwhile.
    """
    position, known = state.ledger[key], state.map.read(key)
    if position.identity not in state.map.identities:
        return [(key, "an identity that the map lacks", position.identity)], [], known
    wrong, inexact = wrong_translations(known, _before(ours, known.end), theirs, known.end - 2, once=once)
    if position.offset > known.end and known.blocks and known.blocks[-1].identity == position.identity:
        # A run that only became longer is stored late: the ledger says the same.
        known.begin(position)
        more, inexact = wrong_translations(known, _before(ours, known.end), theirs, known.end - 2, once=once)
        wrong += more
    if known.end < position.offset:
        wrong.append((key, "the map ends before the ledger", known.end, position.offset))
    return wrong, inexact, known


def _before(rows: Sequence[Read], offset: int) -> list[Read]:
    return [row for row in rows if row.offset < offset]
