"""The topic of the offset map, as its readers see it: the blocks of every source partition, and fences.

One compacted topic with one partition on the target cluster serves all flows to it. The last value of each key counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.offset_map import Block, PartitionMap, Writing
from mirrormaker.model.offset_map_format import (
    BlockKey,
    Fence,
    FenceKey,
    IdentityKey,
    pack_block,
    pack_fence,
    pack_identity,
    pack_key,
    unpack_block,
    unpack_fence,
    unpack_key,
)
from mirrormaker.model.position import Identity
from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.acls import denied
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import in_turns

# No MirrorMaker mirrors a topic whose name begins like this one.
TOPIC = "__mirrormaker_offsets"
NEEDED_RIGHTS = "it needs the rights Create, Read and Write on that topic"  # a mirror that writes the first row
_MOST_BYTES = 512 << 20  # of the blocks of one source cluster


class MapTopic:
    """The rows that the topic has of one source cluster. Blocks stay packed until somebody asks for them."""

    def __init__(self, target: Cluster, source_id: str) -> None:
        """`source_id` is the id of the source cluster."""
        self.target, self.source_id = target, source_id
        self.fence: Fence | None = None
        # Every identity that mirrors of this source have used since they store them: blocks may be replaced, these stay.
        self.identities: set[Identity] = set()
        self._blocks: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self._size = 0  # bytes of all blocks
        # Maps that were asked for, as long as none of their rows changes.
        self._known: dict[TopicPartition, PartitionMap] = {}
        # The topic's own id: a topic with another one has its name by now. All zeros where brokers have none (before Kafka 2.8).
        self.id = bytes(16)
        # The offset up to which the topic was read.
        self.end = 0
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the rows that were added since the last time. Raise ClusterError if their blocks take more than 512 MB."""
        async with self._reading:
            async for records, end in keyed_topic.scan(self.target, TOPIC, self.end):
                async for record in in_turns(records):
                    self._take(record.key, record.value)
                self.end = end
                if self._size > _MOST_BYTES:
                    raise ClusterError(
                        f"{TOPIC} on {self.target.endpoint} has more than {_MOST_BYTES >> 20} MB of blocks"
                    )

    def wrote(self, rows: Iterable[keyed_topic.Row], offsets: Sequence[range]) -> None:
        """Take in rows that this process has written itself, if they follow what was read: they need not be read again."""
        end = self.end
        for batch in offsets:
            if not batch or batch.start != end:
                return
            end = batch.stop
        for key, value in rows:
            self._take(key, value)
        self.end = end

    def _take(self, packed: bytes, value: bytes | None) -> None:
        key = unpack_key(packed)
        if key is None or key.cluster != self.source_id:
            return
        if isinstance(key, FenceKey):
            self.fence = None if value is None else unpack_fence(value)
        elif isinstance(key, IdentityKey):
            self.identities.add(key.identity)
        else:
            blocks = self._blocks[key.source]
            self._known.pop(key.source, None)
            self._size += len(value or b"") - len(blocks.pop(key.start, b""))
            if value is not None:
                blocks[key.start] = value

    def rows_of(self, key: TopicPartition, writing: Writing) -> list[keyed_topic.Row]:
        """Return the rows that store a partition's changes, with the identities that are not stored yet."""
        now = int(time.time() * 1000)
        identities = dict.fromkeys(block.identity for block in writing.blocks)
        rows: list[keyed_topic.Row] = [
            (pack_key(IdentityKey(self.source_id, identity)), pack_identity(key, now))
            for identity in identities
            if identity not in self.identities
        ]
        for block in writing.blocks:
            rows.append((pack_key(BlockKey(self.source_id, *key, block.start)), pack_block(block, now)))
        rows += [(pack_key(BlockKey(self.source_id, *key, start)), None) for start in sorted(writing.gone)]
        return rows

    def size_of(self, key: TopicPartition) -> int:
        """Return the bytes of a partition's blocks."""
        return sum(map(len, self._blocks.get(key, {}).values()))

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return the source partitions that have blocks."""
        return sorted(key for key, blocks in self._blocks.items() if blocks)

    def read(self, key: TopicPartition) -> PartitionMap:
        """Return the map of a source partition as it is stored; an empty one if nothing is."""
        blocks: list[Block] = []
        for start, value in self._blocks.get(key, {}).items():
            block = unpack_block(BlockKey(self.source_id, *key, start), value)
            if block is not None:
                blocks.append(block)
        return PartitionMap(blocks)

    def known(self, key: TopicPartition) -> PartitionMap:
        """Return the same as `read`, to be looked at again and again, and not to be changed."""
        if key not in self._known:
            self._known[key] = self.read(key)
        return self._known[key]

    async def write_fence(self, fence: Fence | None) -> None:
        """Forbid that a flow from this source goes on, or allow it again."""
        value = None if fence is None else pack_fence(fence)
        try:
            await keyed_topic.KeyedWriter(self.target, TOPIC).write([(pack_key(FenceKey(self.source_id)), value)])
        except BrokerError as error:
            _refuse(self.target, error.code, "Write")
            raise
        self.fence = fence


async def open_map(target: Cluster, source_id: str) -> MapTopic:
    """Return the rows of a source cluster. Raise ClusterError if the target has no map, or does not let us read it."""
    await _find(target)
    if TOPIC not in target.topics:
        raise ClusterError(
            f"{target.endpoint} has no offset map (topic {TOPIC}): no mirror has written one there; {NEEDED_RIGHTS}"
        )
    topic = MapTopic(target, source_id)
    try:
        await topic.refresh()
    except BrokerError as error:
        _refuse(target, error.code)
        raise
    return topic


async def sources_of(target: Cluster) -> dict[str, set[str]]:
    """Return the ids of all source clusters in the map, each with its topics."""
    await _find(target)
    found: dict[str, set[str]] = defaultdict(set)
    if TOPIC in target.topics:
        async for records, _ in keyed_topic.scan(target, TOPIC, 0):
            for record in records:
                key = unpack_key(record.key)
                if isinstance(key, BlockKey) and record.value is not None:
                    found[key.cluster].add(key.topic)
    return found


async def _find(target: Cluster) -> None:
    await target.refresh([TOPIC])
    _refuse(target, target.refused.get(TOPIC, 0))


def _refuse(target: Cluster, code: int, *operations: str) -> None:
    """Raise ClusterError with the command that grants the missing right, if that is the reason."""
    if code == TOPIC_AUTHORIZATION_FAILED:
        raise ClusterError(denied(target.endpoint, operations or ("Describe", "Read"), "topic", TOPIC))
