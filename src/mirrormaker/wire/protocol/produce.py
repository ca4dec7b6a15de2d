"""The Produce request, framed by hand around the batches' own buffers, for versions 0 (Kafka 0.8) to 13."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from mirrormaker.wire.protocol.codec import Reader, varint
from mirrormaker.wire.transport.connection import Connection, Part

API_KEY = 0
VERSIONS = (0, 13)
TAKES_BATCHES = 3  # from this version (Kafka 0.11) on; before, messages of format 1, and of format 0 before version 2


def version_for(connection: Connection) -> int:
    """Return the newest version of Produce that the broker and this module share."""
    return min(connection.versions[API_KEY][1], VERSIONS[1])


class Appended(NamedTuple):
    """What became of one partition's batch."""

    topic: str | bytes  # name, or id in version 13
    partition: int
    error: int
    base_offset: int
    message: str | None


def is_flexible(version: int) -> bool:
    return version >= 9


def request(
    version: int, topics: Sequence[tuple[str, bytes, Sequence[tuple[int, Part]]]], *, acks: int, timeout_ms: int
) -> list[Part]:
    """The body as a list of buffers, for (topic name, topic id, [(partition, its one batch)])."""
    flexible = is_flexible(version)
    head = bytearray(b"\0" if flexible else b"\xff\xff" if version >= TAKES_BATCHES else b"")  # no transactional id
    head += struct.pack(">hi", acks, timeout_ms)
    head += varint(len(topics) + 1) if flexible else _INT.pack(len(topics))
    parts: list[Part] = []
    end = b"\0" if flexible else b""
    for name, topic_id, partitions in topics:
        if version >= 13:
            head += topic_id
        else:
            encoded = name.encode()
            head += varint(len(encoded) + 1) if flexible else struct.pack(">h", len(encoded))
            head += encoded
        head += varint(len(partitions) + 1) if flexible else _INT.pack(len(partitions))
        for partition, batch in partitions:
            head += _INT.pack(partition) + (varint(len(batch) + 1) if flexible else _INT.pack(len(batch)))
            parts += (head, batch)
            head = bytearray(end)  # the partition's tagged fields follow its records
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    if head:
        parts.append(head)
    return parts


def answer(version: int, data: memoryview) -> list[Appended]:
    reader = Reader(data, is_flexible(version))
    found = []
    for _ in range(reader.length()):
        topic = bytes(reader.slice(16)) if version >= 13 else reader.string() or ""
        for _ in range(reader.length()):
            if version >= 10 and reader.at + _PLAIN.size <= len(data):
                # As it is nearly always: no record errors, no message, no tagged fields.
                partition, error, base, _append_time, _start, none = _PLAIN.unpack_from(data, reader.at)
                if none == b"\1\0\0":
                    reader.at += _PLAIN.size
                    found.append(Appended(topic, partition, error, base, None))
                    continue
            if version >= 5:
                partition, error, base, _append_time, _start = reader.take(_ANSWER_5)
            elif version >= 2:
                partition, error, base, _append_time = reader.take(_ANSWER_2)
            else:
                partition, error, base = reader.take(_ANSWER_0)
            message = None
            if version >= 8:
                for _ in range(reader.length()):
                    reader.take(_INT)
                    message = reader.string() or message
                    reader.skip_tags()
                message = reader.string() or message
            reader.skip_tags()
            found.append(Appended(topic, partition, error, base, message))
        reader.skip_tags()
    return found


_INT = struct.Struct(">i")
_ANSWER_0 = struct.Struct(">ihq")
_ANSWER_2 = struct.Struct(">ihqq")
_PLAIN = struct.Struct(">ihqqq3s")
_ANSWER_5 = struct.Struct(">ihqqq")
