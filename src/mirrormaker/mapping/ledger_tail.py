"""The end of a stored map, from the mirror's ledger: a run that only became longer is stored a few seconds late."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from mirrormaker.errors import OUTAGE, EntryError, MirrorError
from mirrormaker.model.ledger import unpack
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import fetch_offsets, find_coordinators
from mirrormaker.wire.protocol.codec import TopicPartition


async def lengthen(maps: Mapping[TopicPartition, PartitionMap], source: Cluster, group: str) -> None:
    """Lengthen maps, in memory, up to the positions that the mirror's group has committed.

    Maps stay as they are if the positions cannot be read: they are right, and a few seconds old.
    """
    with contextlib.suppress(*OUTAGE, MirrorError):
        nodes = await find_coordinators(source, [group] if group and maps else [])
        found = (await fetch_offsets(source, nodes, stable=False)).get(group)
        if found is None or isinstance(found, Exception):
            return
        for topic, offsets in found.topics.items():
            for partition, row in offsets.rows().items():
                known = maps.get((topic, partition))
                if known is not None and known.blocks and row.offset > known.end:
                    _go_on(known, topic, partition, row.offset, row.metadata)


def _go_on(known: PartitionMap, topic: str, partition: int, offset: int, metadata: str) -> None:
    with contextlib.suppress(EntryError):
        position = unpack(topic, partition, offset, metadata)
        if position is not None and position.identity == known.blocks[-1].identity:
            known.begin(position)
