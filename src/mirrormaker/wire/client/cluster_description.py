"""The description of a cluster by one of its brokers: the brokers, and the topics with their partitions and leaders.

The answer lists every partition of a cluster, and must not take a second: it is decoded here, and not by kafka-python's schema.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache

from mirrormaker.errors import BadFrame
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from mirrormaker.wire.protocol.answer_checks import check_address, check_topic_name
from mirrormaker.wire.protocol.codec import Reader, read_varint
from mirrormaker.wire.protocol.messages import ApiMessage, MetadataRequest
from mirrormaker.wire.protocol.schema_decoder import read_text

# Partitions of a whole cluster, and each topic counts as three of them. It is read in less than a second of CPU time.
# KRaft is made for 200,000 partitions at most: they can be those of 64,000 topics.
MOST_PARTITIONS = 3 << 17
_WORK_OF_TOPIC = 3

_NO_TOPIC_ID = bytes(16)
_INT, _SHORT, _BOOL = (struct.Struct(layout) for layout in (">i", ">h", ">?"))
_ID_AND_BOOL = struct.Struct(">16s?")
# Error code, number, leader, and from version 7 on the leader epoch.
_PARTITION_0, _PARTITION_7 = struct.Struct(">hii"), struct.Struct(">hiii")
_NODE = 4  # bytes of a node id


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's leader by node id, its epoch, and the number of replicas."""

    leader: int
    leader_epoch: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions; the id is all zeros where brokers have none (before Kafka 2.8)."""

    name: str
    id: bytes
    internal: bool
    partitions: dict[int, Partition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Description:
    """A broker's description of its cluster. `refused` are topics that it does not describe, and the error codes."""

    error: int
    id: str
    controller: int
    brokers: dict[int, tuple[str, int]]
    topics: dict[str, Topic]
    refused: dict[str, int]


class DescriptionReader:
    """Reads descriptions. One of the same bytes as the last one is not read again: thousands of partitions take a while."""

    def __init__(self) -> None:
        self._last: tuple[int, bytes, Description] | None = None

    def __call__(self, _request: ApiMessage, data: memoryview, version: int) -> Description:
        raw = bytes(data)
        if self._last is None or self._last[:2] != (version, raw):
            self._last = version, raw, decode_description(raw, version)
        return self._last[2]


def decode_description(data: bytes, version: int) -> Description:
    """Decode an answer to Metadata; raise BadFrame if the bytes are malformed, or describe what no cluster can be."""
    reader = Reader(memoryview(data), MetadataRequest.flexible_version_q(version), MOST_PARTITIONS)
    try:
        return _read_description(reader, version)
    except BadFrame as error:
        raise BadFrame(
            f"the answer to {MetadataRequest.name} (version {version}) cannot be decoded: {error}"
        ) from error


def _read_description(reader: Reader, version: int) -> Description:
    if version >= 3:
        reader.take(_INT)  # throttle time
    brokers = _read_brokers(reader, version)
    cluster_id = read_text(reader) if version >= 2 else None
    (controller,) = reader.take(_INT) if version >= 1 else (-1,)
    names: set[str] = set()
    topics: dict[str, Topic] = {}
    refused: dict[str, int] = {}
    count = reader.count()
    reader.begin_elements((_WORK_OF_TOPIC - 1) * count)
    for _ in range(count):
        error, name, topic_id, is_internal, partitions = _read_topic(reader, version)
        names.add(name)
        is_usable = error in (0, LEADER_NOT_AVAILABLE)
        if is_usable:
            check_topic_name(name)
        if is_usable and partitions:
            topics[name] = Topic(name, topic_id, is_internal, partitions)
        elif error not in (0, UNKNOWN_TOPIC_OR_PARTITION) and name:
            refused[name] = error
    if len(names) < count:
        raise BadFrame("some topics occur twice")
    if 8 <= version <= 10:
        reader.take(_INT)  # authorized operations
    (error,) = reader.take(_SHORT) if version >= 13 else (0,)
    reader.skip_tags()
    return Description(error, cluster_id or "", controller, brokers, topics, refused)


def _read_brokers(reader: Reader, version: int) -> dict[int, tuple[str, int]]:
    brokers: dict[int, tuple[str, int]] = {}
    for _ in range(reader.count()):
        (node,), host, (port,) = reader.take(_INT), read_text(reader) or "", reader.take(_INT)
        if version >= 1:
            read_text(reader)  # rack
        reader.skip_tags()
        check_address(node, host, port)
        if node in brokers:
            raise BadFrame("some brokers occur twice")
        brokers[node] = host, port
    return brokers


def _read_topic(reader: Reader, version: int) -> tuple[int, str, bytes, bool, dict[int, Partition]]:
    """Return the error code of a topic, its name, its id, whether it is internal, and its partitions."""
    (error,), name = reader.take(_SHORT), read_text(reader)
    if name is None:
        raise BadFrame("a topic has no name")
    topic_id, is_internal = _NO_TOPIC_ID, False
    if version >= 10:
        topic_id, is_internal = _ID_AND_BOOL.unpack_from(reader.slice(_ID_AND_BOOL.size))
    elif version >= 1:
        (is_internal,) = _BOOL.unpack_from(reader.slice(_BOOL.size))
    count = reader.count()
    partitions: dict[int, Partition] = {}
    if count:
        read = _read_flexible_partitions if reader.flexible else _read_fixed_partitions
        try:
            read(reader, version, count, partitions)
        except (struct.error, IndexError) as cut:
            raise BadFrame("a response ends in the middle of a partition") from cut
        if len(partitions) < count:
            raise BadFrame(f"some partitions of {name!r} occur twice")
        if list(partitions) != list(range(count)):
            partitions = _in_order(name, partitions)
    if version >= 8:
        reader.take(_INT)  # authorized operations
    reader.skip_tags()
    return error, name, topic_id, is_internal, partitions


def _in_order(name: str, partitions: dict[int, Partition]) -> dict[int, Partition]:
    """Return the partitions by ascending number, up to the first one that is missing.

    While a topic is created or grows, a broker leaves out a partition that never had a leader: those after it wait.
    """
    if min(partitions) < 0:
        raise BadFrame(f"a partition of {name!r} has a negative number")
    present = next((number for number in range(len(partitions)) if number not in partitions), len(partitions))
    return {number: partitions[number] for number in range(present)}


# Thousands of partitions have few leaders and leader epochs: they share the values.
_partition = lru_cache(maxsize=1024)(Partition)


def _read_flexible_partitions(reader: Reader, _version: int, count: int, partitions: dict[int, Partition]) -> None:
    """Add partitions by number, from version 9 on."""
    data, at = reader.data, reader.at
    for _ in range(count):
        _error, number, leader, epoch = _PARTITION_7.unpack_from(data, at)
        # The lists of replicas, replicas in sync and offline replicas. Nearly all of them have a length of one byte.
        replicas, at = _read_list(data, at + _PARTITION_7.size)
        _in_sync, at = _read_list(data, at)
        _offline, at = _read_list(data, at)
        partitions[number] = _partition(leader, max(-1, epoch), replicas)
        if data[at]:
            reader.at = at
            reader.skip_tags()
            at = reader.at
        else:
            at += 1
    reader.at = at


def _read_list(data: memoryview, at: int) -> tuple[int, int]:
    """Return the length of a list of node ids, and the place where it ends."""
    size = data[at]
    if size >= 0x80:
        size, at = read_varint(data, at)
        at -= 1
    if not size:
        raise BadFrame("a partition has no list of replicas")
    return size - 1, at + 1 + _NODE * (size - 1)


def _read_fixed_partitions(reader: Reader, version: int, count: int, partitions: dict[int, Partition]) -> None:
    """Add partitions by number, before version 9."""
    layout, epoch = (_PARTITION_7, ()) if version >= 7 else (_PARTITION_0, (-1,))
    lists = 3 if version >= 5 else 2
    data, at = reader.data, reader.at
    for _ in range(count):
        _error, number, leader, *found = layout.unpack_from(data, at)
        at += layout.size
        lengths = []
        for _ in range(lists):
            (size,) = _INT.unpack_from(data, at)
            if size < 0:
                raise BadFrame("a partition has no list of replicas")
            lengths.append(size)
            at += _INT.size + _NODE * size
        partitions[number] = _partition(leader, max(-1, *found, *epoch), lengths[0])
    if at > len(data):
        raise BadFrame("a response ends in the middle of a partition")
    reader.at = at
