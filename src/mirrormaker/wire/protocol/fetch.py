"""The Fetch request, framed by hand for every version from 0 (Kafka 0.8) to 18, without fetch sessions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mirrormaker.wire.protocol.codec import Reader, varint
from mirrormaker.wire.transport.connection import Connection

API_KEY = 1
VERSIONS = (0, 18)
LIMITS_ALL = (
    3  # from this version (Kafka 0.10.1) on: a limit for the whole answer, and a first batch comes whatever its size
)


def version_for(connection: Connection) -> int:
    """Return the newest version of Fetch that the broker and this module share."""
    return min(connection.versions[API_KEY][1], VERSIONS[1])


class Wanted(NamedTuple):
    """One partition to fetch."""

    partition: int
    offset: int
    leader_epoch: int = -1
    last_epoch: int = -1  # of the last record read: lets the broker notice that its log was truncated since
    max_bytes: int = 1 << 20


class Fetched(NamedTuple):
    """One partition's part of an answer."""

    topic: str | bytes  # name, or id from version 13 on
    partition: int
    error: int
    high_watermark: int
    stable_offset: int
    log_start: int
    aborted: Sequence[tuple[int, int]]  # (producer id, first offset)
    diverging: tuple[int, int] | None  # (epoch, end offset): what was read beyond is gone
    records: memoryview


def is_flexible(version: int) -> bool:
    return version >= 12


def request(
    version: int,
    topics: Iterable[tuple[str, bytes, Sequence[Wanted]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
) -> bytes:
    """The body of a fetch for (topic name, topic id, partitions)."""
    flexible = is_flexible(version)
    out = bytearray()
    if version < 15:
        out += struct.pack(">i", -1)
    out += struct.pack(">ii", max_wait_ms, min_bytes)
    if version >= LIMITS_ALL:
        out += _INT.pack(max_bytes)
    if version >= 4:
        out += struct.pack(">b", read_committed)
    if version >= 7:
        out += struct.pack(">ii", 0, -1)
    topics = list(topics)
    out += _count(len(topics), flexible)
    for name, topic_id, partitions in topics:
        out += topic_id if version >= 13 else _string(name, flexible)
        out += _count(len(partitions), flexible)
        for want in partitions:
            if version >= 12:
                out += _PARTITION_12.pack(
                    want.partition, want.leader_epoch, want.offset, want.last_epoch, -1, want.max_bytes, 0
                )
            elif version >= 9:
                out += _PARTITION_9.pack(want.partition, want.leader_epoch, want.offset, -1, want.max_bytes)
            elif version >= 5:
                out += _PARTITION_5.pack(want.partition, want.offset, -1, want.max_bytes)
            else:
                out += _PARTITION_4.pack(want.partition, want.offset, want.max_bytes)
        if flexible:
            out += b"\0"
    if version >= 7:
        out += _count(0, flexible)
    if version >= 11:
        out += _string("", flexible)
    if flexible:
        out += b"\0"
    return bytes(out)


def answer(version: int, data: memoryview) -> tuple[int, list[Fetched]]:
    """The error for the whole request, and what came for each partition."""
    reader = Reader(data, is_flexible(version))
    error = 0
    if version >= 7:
        _throttle, error, _session = reader.take(_HEAD_7)
    elif version >= 1:
        reader.take(_INT)
    found = []
    for _ in range(reader.length()):
        topic = bytes(reader.slice(16)) if version >= 13 else reader.string() or ""
        for _ in range(reader.length()):
            found.append(_partition(reader, topic, version))
        reader.skip_tags()
    return error, found


def _partition(reader: Reader, topic: str | bytes, version: int) -> Fetched:
    if version >= 5:
        partition, error, high, stable, start = reader.take(_ANSWER_5)
    elif version >= 4:
        partition, error, high, stable = reader.take(_ANSWER_4)
        start = -1
    else:
        partition, error, high = reader.take(_ANSWER_0)
        stable, start = high, -1
    aborted: list[tuple[int, int]] = []
    for _ in range(reader.length() if version >= 4 else 0):
        producer_id, first = reader.take(_ABORTED)
        aborted.append((producer_id, first))
        reader.skip_tags()
    if version >= 11:
        reader.take(_INT)
    records = reader.slice(max(0, reader.length()))
    diverging = None
    for tag, field in reader.tags():
        if tag == 0:
            epoch, end = field.take(_EPOCH_END)
            diverging = (epoch, end)
    return Fetched(topic, partition, error, high, stable, start, aborted, diverging, records)


def _count(number: int, flexible: bool) -> bytes:
    return varint(number + 1) if flexible else struct.pack(">i", number)


def _string(text: str, flexible: bool) -> bytes:
    data = text.encode()
    return (varint(len(data) + 1) if flexible else struct.pack(">h", len(data))) + data


_INT = struct.Struct(">i")
_HEAD_7 = struct.Struct(">ihi")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqib")
_ANSWER_0 = struct.Struct(">ihq")
_ANSWER_4 = struct.Struct(">ihqq")
_ANSWER_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
