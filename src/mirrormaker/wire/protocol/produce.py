"""The Produce request and response, for every version from 0 (Kafka 0.8) to 13.

They are encoded here and not by kafka-python so that a batch is sent from the buffer that it was received in, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mirrormaker.wire.protocol.codec import MOST_ELEMENTS, Reader, varint

if TYPE_CHECKING:
    from mirrormaker.wire.transport.connection import Connection, Part


API_KEY = 0
VERSIONS = (0, 13)
# From this version on (Kafka 0.11) brokers take record batches. Version 2 takes messages of format 1, versions 0 and 1
# take messages of format 0.
FIRST_WITH_RECORD_BATCHES = 3
# From this version on (Kafka 4.1) requests and responses have topic ids in place of names.
FIRST_WITH_TOPIC_IDS = 13

# Records of one request that a broker refuses by name. It takes less than a second of CPU time to pass over them.
_MOST_RECORD_ERRORS = 3 << 18


def version_for(connection: Connection, topic_ids: Iterable[bytes] = ()) -> int:
    """Return the newest version of Produce that the broker and this module share.

    A topic without an id, created before Kafka 2.8, can only be written by name: that limits the version.
    """
    version = min(connection.versions[API_KEY][1], VERSIONS[1])
    if version >= FIRST_WITH_TOPIC_IDS and not all(map(any, topic_ids)):
        return FIRST_WITH_TOPIC_IDS - 1
    return version


class Appended(NamedTuple):
    """The broker's result for one partition's batch, be it an offset or an error."""

    topic: str | bytes  # the name; in version 13 the topic id
    partition: int
    error: int
    base_offset: int
    message: str | None


def is_flexible(version: int) -> bool:
    """Return True if this version uses varint lengths and tagged fields."""
    return version >= 9


def encode_request(
    version: int, topics: Sequence[tuple[str, bytes, Sequence[tuple[int, Part]]]], *, acks: int, timeout_ms: int
) -> list[Part]:
    """Return the body of a request as a list of buffers. `topics`: (name, topic id, [(partition, its one batch)]) each."""
    flexible = is_flexible(version)
    no_transactional_id = b"\0" if flexible else b"\xff\xff" if version >= FIRST_WITH_RECORD_BATCHES else b""
    no_tags = b"\0" if flexible else b""
    head = bytearray(no_transactional_id)
    head += struct.pack(">hi", acks, timeout_ms)
    head += varint(len(topics) + 1) if flexible else _INT.pack(len(topics))
    parts: list[Part] = []
    for name, topic_id, partitions in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            head += topic_id
        else:
            encoded = name.encode()
            head += varint(len(encoded) + 1) if flexible else struct.pack(">h", len(encoded))
            head += encoded
        head += varint(len(partitions) + 1) if flexible else _INT.pack(len(partitions))
        for partition, batch in partitions:
            head += _INT.pack(partition) + (varint(len(batch) + 1) if flexible else _INT.pack(len(batch)))
            parts += (head, batch)
            head = bytearray(no_tags)
        head += no_tags
    head += no_tags
    if head:
        parts.append(head)
    return parts


def decode_response(version: int, data: memoryview, most: int = MOST_ELEMENTS) -> list[Appended]:
    """Return the result of each partition; raise BadFrame if there are more than `most`."""
    reader = Reader(data, is_flexible(version), _MOST_RECORD_ERRORS)
    results: list[Appended] = []
    for _ in range(reader.count_within(most)):
        topic = bytes(reader.slice(16)) if version >= FIRST_WITH_TOPIC_IDS else reader.string() or ""
        for _ in range(reader.count_within(most - len(results))):
            if version >= 10 and reader.at + _RESPONSE_10_SHORT.size <= len(data):
                # Nearly always there are no record errors, no message and no tagged fields: one read is enough then.
                partition, error, base, _append_time, _log_start, rest = _RESPONSE_10_SHORT.unpack_from(data, reader.at)
                if rest == b"\1\0\0":
                    reader.at += _RESPONSE_10_SHORT.size
                    results.append(Appended(topic, partition, error, base, None))
                    continue
            if version >= 5:
                partition, error, base, _append_time, _log_start = reader.take(_RESPONSE_5)
            elif version >= 2:
                partition, error, base, _append_time = reader.take(_RESPONSE_2)
            else:
                partition, error, base = reader.take(_RESPONSE_0)
            message = None
            if version >= 8:
                text = memoryview(b"")
                for _ in range(reader.count()):
                    reader.take(_INT)  # the index of a record that the broker refuses
                    # There may be very many records without a key for a compacted topic, and all have the same text.
                    text = reader.slice(max(0, reader.short_length())) or text
                    reader.skip_tags()
                message = reader.string() or str(bytes(text), "utf-8", "replace") or None
            reader.skip_tags()
            results.append(Appended(topic, partition, error, base, message))
        reader.skip_tags()
    return results


_INT = struct.Struct(">i")
_RESPONSE_0 = struct.Struct(">ihq")
_RESPONSE_2 = struct.Struct(">ihqq")
_RESPONSE_5 = struct.Struct(">ihqqq")
_RESPONSE_10_SHORT = struct.Struct(">ihqqq3s")
