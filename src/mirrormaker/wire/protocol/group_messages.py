"""Requests about the offsets of many consumer groups: OffsetFetch and OffsetCommit of young brokers, and share groups.

kafka-python takes a second for the offsets of a thousand groups, and has no classes for share groups. Offsets of a topic stay
bytes until someone asks for them: two answers of the same bytes hold the same offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol.codec import Reader, TopicPartition, varint
from mirrormaker.wire.protocol.offset_rows import METADATA_AT, PLAIN_ROW, TAGS_AT, row_places

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
DESCRIBE_SHARE_OFFSETS, ALTER_SHARE_OFFSETS = 90, 91
# OffsetFetch asks for several groups from version 8 on (Kafka 3.0); OffsetCommit is flexible from version 8 on (Kafka 2.4).
# Version 10 of both has topic ids in place of names.
FETCH_VERSIONS, COMMIT_VERSIONS, SHARE_VERSIONS = (8, 9), (8, 9), (0, 0)

# Partitions of one answer, and each topic counts as four of them: it takes longer, and more memory.
MOST_ROWS, _WORK_OF_TOPIC = 1 << 20, 4
_MOST_IN_TOPIC = 1 << 18  # partitions: more than a cluster can have
_LONGEST_NAME = 255  # characters of a topic's name
_ROW, _COMMIT_ROW = struct.Struct(">iqi"), struct.Struct(">iqi")
_SHARE_ROW = struct.Struct(">iq")
_INT, _SHORT = struct.Struct(">i"), struct.Struct(">h")
_PLAIN = np.dtype(
    [("partition", ">i4"), ("offset", ">i8"), ("epoch", ">i4"), ("metadata", "u1"), ("error", ">i2"), ("tags", "u1")]
)
_UUID_BYTES = 16


class CommittedRow(NamedTuple):
    """A partition's committed offset, -1 if there is none, and what the application keeps with it."""

    offset: int
    metadata: str
    error: int = 0


class CommitRow(NamedTuple):
    """An offset to commit."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


class TopicOffsets:
    """The committed offsets of one group in one topic, as they came. Equal bytes mean equal offsets."""

    __slots__ = ("_count", "_is_plain", "raw")

    def __init__(self, raw: bytes, count: int, is_plain: bool) -> None:
        self.raw, self._count, self._is_plain = raw, count, is_plain

    def rows(self) -> dict[int, CommittedRow]:
        """Return the partitions. An application can commit any negative number, such as -5: that is no offset."""
        found: dict[int, CommittedRow]
        if self._is_plain:
            table = np.frombuffer(self.raw, _PLAIN, self._count)
            columns = (table[name].tolist() for name in ("partition", "offset", "error"))
            found = {
                partition: CommittedRow(max(-1, offset), "", error)
                for partition, offset, error in zip(*columns, strict=True)
            }
        else:
            found = {}
            raw = self.raw
            for at, begin, end in row_places(Reader(memoryview(raw), True, MOST_ROWS), self._count):
                partition, offset, _epoch = _ROW.unpack_from(raw, at)
                (error,) = _SHORT.unpack_from(raw, end)
                found[partition] = CommittedRow(max(-1, offset), str(raw[begin:end], "utf-8", "replace"), error)
        if len(found) != self._count or min(found, default=0) < 0:
            raise BadFrame("the answer to OffsetFetch names a partition twice, or one that cannot be")
        return found

    @classmethod
    def of(cls, rows: Mapping[int, CommittedRow]) -> TopicOffsets:
        """Return rows as an answer has them."""
        raw = bytearray()
        for partition, row in rows.items():
            text = row.metadata.encode()
            raw += _ROW.pack(partition, row.offset, -1) + varint(len(text) + 1) + text + _SHORT.pack(row.error) + b"\0"
        return cls(bytes(raw), len(rows), False)


class GroupOffsets(NamedTuple):
    """The committed offsets of one group, by topic; `error` is the group's own error code."""

    topics: dict[str, TopicOffsets]
    error: int = 0


def encode_offset_fetch(version: int, groups: Sequence[str], *, stable: bool) -> bytes:
    """Return the body of a request for everything that these groups have committed."""
    body = bytearray(varint(len(groups) + 1))
    # No member id, member epoch -1.
    member = b"\0" + _INT.pack(-1) if version >= 9 else b""
    for group in groups:
        # No list of topics means all of them.
        body += _string(group) + member + b"\0\0"
    return bytes(body + bytes((stable,)) + b"\0")


def decode_offset_fetch(data: memoryview, asked: Iterable[str]) -> dict[str, GroupOffsets]:
    """Return the offsets of each group; raise BadFrame if the answer does not fit the request."""
    reader = Reader(data, True, MOST_ROWS)
    reader.take(_INT)  # throttle time
    found: dict[str, GroupOffsets] = {}
    wanted = set(asked)
    for _ in range(reader.count_within(len(wanted))):
        group = reader.string() or ""
        topics: dict[str, TopicOffsets] = {}
        for _topic in range(_count_topics(reader)):
            name = _new_topic(reader, topics)
            topics[name] = _read_topic(reader)
        (error,) = reader.take(_SHORT)
        reader.skip_tags()
        found[group] = GroupOffsets({} if error else topics, error)
    reader.skip_tags()
    if reader.at != len(data):
        raise BadFrame("the answer to OffsetFetch is longer than its fields")
    # There are no more than were asked for, so none can be there twice.
    if found.keys() != wanted:
        raise BadFrame("the answer to OffsetFetch is not about the groups that were asked for")
    return found


def _count_topics(reader: Reader) -> int:
    count = reader.count()
    reader.begin_elements((_WORK_OF_TOPIC - 1) * count)
    return count


def _new_topic(reader: Reader, topics: Container[str]) -> str:
    name = reader.string() or ""
    if name in topics or not 0 < len(name) <= _LONGEST_NAME:
        raise BadFrame("an answer names a topic of a group twice, or one that no cluster can have")
    return name


def _read_topic(reader: Reader) -> TopicOffsets:
    count = reader.count_within(_MOST_IN_TOPIC)
    reader.begin_elements(count)
    start = reader.at
    raw = bytes(reader.data[start : start + count * PLAIN_ROW])
    # An empty metadata has the length 1, a missing one 0. Python does this faster than numpy where rows are few.
    has_metadata, has_tags = raw[METADATA_AT::PLAIN_ROW].strip(b"\0\1"), raw[TAGS_AT::PLAIN_ROW].strip(b"\0")
    is_plain = len(raw) == count * PLAIN_ROW and not has_metadata and not has_tags
    if is_plain:
        reader.at += len(raw)
    else:
        for _ in row_places(reader, count):
            pass
        raw = bytes(reader.data[start : reader.at])
    reader.skip_tags()
    return TopicOffsets(raw, count, is_plain)


def encode_offset_commit(group: str, rows: Sequence[CommitRow]) -> bytes:
    """Return the body of a commit by nobody: no member, generation -1, leader epochs -1."""
    body = bytearray(_string(group) + _INT.pack(-1) + b"\1\0")
    topics = _by_topic(rows)
    body += varint(len(topics) + 1)
    for topic, parts in topics.items():
        body += _string(topic) + varint(len(parts) + 1)
        for row in parts:
            # Consumers of a cluster whose leader epoch is smaller would wait for that epoch for ever.
            body += _COMMIT_ROW.pack(row.partition, row.offset, -1)
            body += _string(row.metadata) if row.metadata else b"\1"
            body += b"\0"
        body += b"\0"
    return bytes(body + b"\0")


def decode_offset_commit(data: memoryview, rows: Sequence[CommitRow]) -> dict[TopicPartition, int]:
    """Return the error code of each partition of a commit; raise BadFrame if the answer is about other ones."""
    reader = Reader(data, True)
    reader.take(_INT)  # throttle time
    codes: list[tuple[TopicPartition, int]] = []
    for _ in range(reader.count_within(len(rows))):
        topic = reader.string() or ""
        for _row in range(reader.count_within(len(rows) - len(codes))):
            (partition,), (error,) = reader.take(_INT), reader.take(_SHORT)
            reader.skip_tags()
            codes.append(((topic, partition), error))
        reader.skip_tags()
    return _checked(codes, rows, "the answer to OffsetCommit is not about the partitions that were committed")


def _checked(
    codes: Sequence[tuple[TopicPartition, int]], rows: Sequence[CommitRow], otherwise: str
) -> dict[TopicPartition, int]:
    """Return codes by partition; raise BadFrame if these are not the partitions of the rows, or one is there twice."""
    found = dict(codes)
    if len(found) < len(codes) or found.keys() != {(row.topic, row.partition) for row in rows}:
        raise BadFrame(otherwise)
    return found


def encode_describe_share_offsets(groups: Sequence[str]) -> bytes:
    """Return the body of a request for the start offsets of share groups, in all topics."""
    body = bytearray(varint(len(groups) + 1))
    for group in groups:
        body += _string(group) + b"\0\0"
    return bytes(body + b"\0")


def decode_describe_share_offsets(data: memoryview, asked: Iterable[str]) -> dict[str, GroupOffsets]:
    """Return the start offsets of each share group, in place of committed offsets."""
    reader = Reader(data, True)
    reader.take(_INT)  # throttle time
    found: dict[str, GroupOffsets] = {}
    wanted = set(asked)
    for _ in range(reader.count_within(len(wanted))):
        group = reader.string() or ""
        topics: dict[str, TopicOffsets] = {}
        for _topic in range(_count_topics(reader)):
            name = _new_topic(reader, topics)
            reader.slice(_UUID_BYTES)
            rows: dict[int, CommittedRow] = {}
            count = reader.count()
            for _row in range(count):
                partition, offset, _epoch = reader.take(_ROW)
                (error,) = reader.take(_SHORT)
                reader.string()  # error message
                reader.skip_tags()
                rows[partition] = CommittedRow(max(-1, offset), "", error)
            reader.skip_tags()
            if len(rows) < count:
                raise BadFrame("the answer to DescribeShareGroupOffsets names a partition twice")
            topics[name] = TopicOffsets.of(rows)
        (error,) = reader.take(_SHORT)
        reader.string()  # error message
        reader.skip_tags()
        found[group] = GroupOffsets({} if error else topics, error)
    if found.keys() != wanted:
        raise BadFrame("the answer to DescribeShareGroupOffsets is not about the groups that were asked for")
    return found


def encode_alter_share_offsets(group: str, rows: Sequence[CommitRow]) -> bytes:
    """Return the body of a request that sets the start offsets of a share group."""
    topics = _by_topic(rows)
    body = bytearray(_string(group) + varint(len(topics) + 1))
    for topic, parts in topics.items():
        body += _string(topic) + varint(len(parts) + 1)
        for row in parts:
            body += _SHARE_ROW.pack(row.partition, row.offset) + b"\0"
        body += b"\0"
    return bytes(body + b"\0")


def decode_alter_share_offsets(data: memoryview, rows: Sequence[CommitRow]) -> dict[TopicPartition, int]:
    """Return the error code of each partition; the group's own error is that of all of them."""
    reader = Reader(data, True)
    reader.take(_INT)  # throttle time
    (error,) = reader.take(_SHORT)
    reader.string()  # error message
    if error:
        return {(row.topic, row.partition): error for row in rows}
    codes: list[tuple[TopicPartition, int]] = []
    for _ in range(reader.count_within(len(rows))):
        topic = reader.string() or ""
        reader.slice(_UUID_BYTES)
        for _row in range(reader.count_within(len(rows) - len(codes))):
            (partition,), (code,) = reader.take(_INT), reader.take(_SHORT)
            reader.string()  # error message
            reader.skip_tags()
            codes.append(((topic, partition), code))
        reader.skip_tags()
    return _checked(codes, rows, "the answer to AlterShareGroupOffsets is not about the partitions that were set")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded) + 1) + encoded


def _by_topic(rows: Sequence[CommitRow]) -> dict[str, list[CommitRow]]:
    topics: dict[str, list[CommitRow]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return topics
