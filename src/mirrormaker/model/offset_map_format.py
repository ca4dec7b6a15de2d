"""The records of the offset map's topic: blocks of runs, fences, and the identities of mirrors.

    key    version 1 | kind 1 | source cluster id | topic | partition i32 | block start i64     (a block)
           version 1 | kind 1 | source cluster id                                                 (a fence)
           version 1 | kind 1 | source cluster id | producer id i64 | producer epoch i16          (an identity)

Texts are a varint of their length and UTF-8. A record without a value deletes the block or the fence; identities stay. Numbers
that cannot be negative are varints; a run takes about four bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mirrormaker.errors import BadFrame, BadVarint
from mirrormaker.model.offset_map import Block
from mirrormaker.model.offset_runs import RunList
from mirrormaker.model.packed_runs import PackedRuns
from mirrormaker.model.position import Identity, Place
from mirrormaker.wire.protocol.codec import MAX_VARINT_64, TopicPartition, read_varint, varint

VERSION = 1
_BLOCK, _FENCE, _IDENTITY = 1, 2, 3
_PREFIX = struct.Struct(">BB")
_PLACE = struct.Struct(">iq")
_HEAD = struct.Struct(">Bqqqh16s16s")  # version, time, end, producer id and epoch, topic ids of source and target
_FENCE_VALUE = struct.Struct(">Bq")
_PRODUCER = struct.Struct(">qh")
_IDENTITY_VALUE = struct.Struct(">Bqi")  # version, time, partition; the topic follows
_DAMAGE = (struct.error, BadFrame, BadVarint, UnicodeDecodeError)
_MOST_LISTS, _MOST_RUNS = 1 << 16, 1 << 20  # of one block: more are damage


class BlockKey(NamedTuple):
    """The key of a block."""

    cluster: str
    topic: str
    partition: int
    start: int

    @property
    def source(self) -> TopicPartition:
        """Return the source partition."""
        return self.topic, self.partition


class FenceKey(NamedTuple):
    """The key of a fence: after a failover, no flow may go on from this source cluster."""

    cluster: str


class IdentityKey(NamedTuple):
    """The key of an identity: batches with it on the target are from a mirror of this source cluster, also without a block."""

    cluster: str
    identity: Identity


class Fence(NamedTuple):
    """When a failover was made, in milliseconds since 1970, and by whom."""

    time: int
    by: str


def pack_key(key: BlockKey | FenceKey | IdentityKey) -> bytes:
    """Return the key of a record."""
    if isinstance(key, FenceKey):
        return _PREFIX.pack(VERSION, _FENCE) + _packed_text(key.cluster)
    if isinstance(key, IdentityKey):
        producer = _PRODUCER.pack(key.identity.producer_id, key.identity.epoch)
        return _PREFIX.pack(VERSION, _IDENTITY) + _packed_text(key.cluster) + producer
    return (
        _PREFIX.pack(VERSION, _BLOCK)
        + _packed_text(key.cluster)
        + _packed_text(key.topic)
        + _PLACE.pack(key.partition, key.start)
    )


def unpack_key(data: bytes) -> BlockKey | FenceKey | IdentityKey | None:
    """Return what a record is about; None if another program, or a newer version, has written it."""
    try:
        version, kind = _PREFIX.unpack_from(data)
        if version != VERSION or kind not in (_BLOCK, _FENCE, _IDENTITY):
            return None
        cluster, at = _text(memoryview(data), _PREFIX.size)
        if kind == _FENCE:
            return FenceKey(cluster)
        if kind == _IDENTITY:
            return IdentityKey(cluster, Identity(*_PRODUCER.unpack_from(data, at)))
        topic, at = _text(memoryview(data), at)
        return BlockKey(cluster, topic, *_PLACE.unpack_from(data, at))
    except _DAMAGE:
        return None


def pack_identity(source: TopicPartition, time: int) -> bytes:
    """Return the value of an identity: the partition that it was allocated for, for people who look at the topic."""
    return _IDENTITY_VALUE.pack(VERSION, time, source[1]) + _packed_text(source[0])


def pack_fence(fence: Fence) -> bytes:
    """Return the value of a fence."""
    return _FENCE_VALUE.pack(VERSION, fence.time) + _packed_text(fence.by)


def unpack_fence(data: bytes) -> Fence:
    """Return a fence; an unreadable one counts all the same."""
    try:
        _, time = _FENCE_VALUE.unpack_from(data)
        return Fence(time, _text(memoryview(data), _FENCE_VALUE.size)[0])
    except _DAMAGE:
        return Fence(0, "?")


def pack_block(block: Block, time: int) -> bytes:
    """Return the value of a block as it is at a time, in milliseconds since 1970."""
    identity = block.identity
    ids = (bytes.fromhex(topic_id or "00" * 16) for topic_id in (block.topic_id, block.target_topic_id))
    out = bytearray(_HEAD.pack(VERSION, time, block.end, identity.producer_id, identity.epoch, *ids))
    out += varint(len(block.lists))
    for (topic, partition), runs in block.lists.items():
        out += _packed_text(topic) + varint(partition)
        for number in (runs.first_offset, runs.next_sequence, runs.end_offset, runs.end_sequence, runs.count):
            out += varint(number)
        out += runs.packed(block.start).data
    return bytes(out)


def unpack_block(key: BlockKey, data: bytes) -> Block | None:
    """Return a block; None if it is damaged or was written by a newer version."""
    try:
        version, time, end, producer_id, epoch, *ids = _HEAD.unpack_from(data)
        if version != VERSION:
            return None
        topic_id, target_topic_id = (found.hex() if any(found) else "" for found in ids)
        block = Block(key.start, end, Identity(producer_id, epoch), topic_id, target_topic_id, {}, time)
        view, at = memoryview(data), _HEAD.size
        lists, at = _number(view, at)
        if lists > _MOST_LISTS:
            return None
        for _ in range(lists):
            place, runs, at = _unpacked_list(view, at, key.start)
            block.lists[place] = runs
        return block
    except _DAMAGE:
        return None


def _unpacked_list(view: memoryview, at: int, source: int) -> tuple[Place, RunList, int]:
    topic, at = _text(view, at)
    partition, at = _number(view, at)
    first_offset, at = _number(view, at)
    next_sequence, at = _number(view, at)
    end_offset, at = _number(view, at)
    end_sequence, at = _number(view, at)
    count, at = _number(view, at)
    if count > _MOST_RUNS:
        raise BadFrame("a block has more runs than a block can have")
    packed = PackedRuns.read(view[at:], count, source, first_offset)
    runs = RunList(first_offset, next_sequence, end_offset, end_sequence, packed)
    return (topic, partition), runs, at + len(packed.data)


def _number(view: memoryview, at: int) -> tuple[int, int]:
    return read_varint(view, at, MAX_VARINT_64)


def _packed_text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


def _text(view: memoryview, at: int) -> tuple[str, int]:
    size, at = read_varint(view, at)
    if at + size > len(view):
        raise BadFrame("a text goes beyond the end of the data")
    return str(view[at : at + size], "utf-8"), at + size
