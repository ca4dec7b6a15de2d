"""The Fetch request and response, for every version from 0 (Kafka 0.8) to 18, with or without a fetch session.

They are decoded here and not by kafka-python so that records stay views into the received bytes, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mirrormaker.wire.protocol.codec import Reader, varint

if TYPE_CHECKING:
    from mirrormaker.wire.transport.connection import Connection


API_KEY = 1
VERSIONS = (0, 18)
# From this version on (Kafka 0.10.1) a request limits the size of the whole response, and the broker returns the first
# batch whole even if it is larger than the limits.
FIRST_WITH_MAX_BYTES = 3
# From this version on (Kafka 1.1) a broker can remember the partitions of a request in a session (KIP-227): the next
# request names changes only, and so does the response.
FIRST_WITH_SESSIONS = 7
# From this version on (Kafka 3.1) requests and responses have topic ids in place of names.
FIRST_WITH_TOPIC_IDS = 13
NO_SESSION = (0, -1)  # session id and epoch of a request that does not ask for a session


def version_for(connection: Connection, topic_ids: Iterable[bytes] = ()) -> int:
    """Return the newest version of Fetch that the broker and this module share.

    A topic without an id, created before Kafka 2.8, can only be fetched by name: that limits the version.
    """
    version = min(connection.versions[API_KEY][1], VERSIONS[1])
    if version >= FIRST_WITH_TOPIC_IDS and not all(map(any, topic_ids)):
        return FIRST_WITH_TOPIC_IDS - 1
    return version


# A row for each transaction: producer id and first offset.
AbortedTransactions = npt.NDArray[np.int64]

# Partitions in a response, unless the caller knows how many there can be: more than any broker leads. Each decoded
# partition takes several times its bytes.
_MOST_PARTITIONS = 1 << 17
# Aborted transactions in a response. One with tagged fields counts as several: it takes longer.
_MOST_ABORTED, _WORK_OF_TAGGED = 1 << 20, 4


class PartitionToFetch(NamedTuple):
    """One partition in a Fetch request."""

    partition: int
    offset: int
    leader_epoch: int = -1
    # The epoch of the last record that was read: it lets the broker notice that its log was truncated since then.
    last_fetched_epoch: int = -1
    max_bytes: int = 1 << 20


class FetchedPartition(NamedTuple):
    """One partition in a Fetch response."""

    topic: str | bytes  # the name; from version 13 on the topic id
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: AbortedTransactions
    # (epoch, end offset) if the broker's log was truncated: records that were read from that offset on are gone.
    diverging_epoch: tuple[int, int] | None
    records: memoryview


def is_flexible(version: int) -> bool:
    """Return True if this version uses varint lengths and tagged fields."""
    return version >= 12


def encode_request(
    version: int,
    topics: Iterable[tuple[str, bytes, Sequence[PartitionToFetch]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Iterable[tuple[str, bytes, Sequence[int]]] = (),
) -> bytes:
    """Return the body of a request for `topics`: (name, topic id, partitions) each.

    `session` is the session's id and epoch. The broker removes the partitions in `forgotten` from the session:
    (name, topic id, partition numbers) each.
    """
    flexible = is_flexible(version)
    out = bytearray()
    if version < 15:
        out += struct.pack(">i", -1)  # replica id: none, this is a consumer
    out += struct.pack(">ii", max_wait_ms, min_bytes)
    if version >= FIRST_WITH_MAX_BYTES:
        out += _INT.pack(max_bytes)
    if version >= 4:
        out += struct.pack(">b", read_committed)
    if version >= FIRST_WITH_SESSIONS:
        out += struct.pack(">ii", *session)
    topics = list(topics)
    out += _count(len(topics), flexible)
    for name, topic_id, partitions in topics:
        out += topic_id if version >= FIRST_WITH_TOPIC_IDS else _string(name, flexible)
        out += _count(len(partitions), flexible)
        for part in partitions:
            if version >= 12:
                out += _PARTITION_12.pack(
                    part.partition, part.leader_epoch, part.offset, part.last_fetched_epoch, -1, part.max_bytes, 0
                )
            elif version >= 9:
                out += _PARTITION_9.pack(part.partition, part.leader_epoch, part.offset, -1, part.max_bytes)
            elif version >= 5:
                out += _PARTITION_5.pack(part.partition, part.offset, -1, part.max_bytes)
            else:
                out += _PARTITION_0.pack(part.partition, part.offset, part.max_bytes)
        if flexible:
            out += b"\0"
    if version >= FIRST_WITH_SESSIONS:
        forgotten = list(forgotten)
        out += _count(len(forgotten), flexible)
        for name, topic_id, numbers in forgotten:
            out += topic_id if version >= FIRST_WITH_TOPIC_IDS else _string(name, flexible)
            out += _count(len(numbers), flexible) + struct.pack(f">{len(numbers)}i", *numbers)
            if flexible:
                out += b"\0"
    if version >= 11:
        out += _string("", flexible)  # rack
    if flexible:
        out += b"\0"
    return bytes(out)


def session_id(version: int, data: memoryview) -> int:
    """Return the session that the broker has for this request; 0 if it has none."""
    return Reader(data, is_flexible(version)).take(_HEAD_7)[2] if version >= FIRST_WITH_SESSIONS else 0


def decode_response(version: int, data: memoryview, most: int = _MOST_PARTITIONS) -> tuple[int, list[FetchedPartition]]:
    """Return the error code of the whole request, and the partitions. Their records are views into `data`.

    Raise BadFrame if there are more than `most` partitions.
    """
    reader = Reader(data, is_flexible(version), _MOST_ABORTED)
    error = 0
    if version >= FIRST_WITH_SESSIONS:
        _throttle_ms, error, _session_id = reader.take(_HEAD_7)
    elif version >= 1:
        reader.take(_INT)  # throttle time
    partitions: list[FetchedPartition] = []
    for _ in range(reader.count_within(most)):
        topic = bytes(reader.slice(16)) if version >= FIRST_WITH_TOPIC_IDS else reader.string() or ""
        for _ in range(reader.count_within(most - len(partitions))):
            partitions.append(_decode_partition(reader, topic, version))
        reader.skip_tags()
    return error, partitions


def _decode_partition(reader: Reader, topic: str | bytes, version: int) -> FetchedPartition:
    if version >= 5:
        partition, error, high_watermark, stable, log_start = reader.take(_RESPONSE_5)
    elif version >= 4:
        partition, error, high_watermark, stable = reader.take(_RESPONSE_4)
        log_start = -1
    else:
        partition, error, high_watermark = reader.take(_RESPONSE_0)
        stable, log_start = high_watermark, -1
    aborted_count = reader.length() if version >= 4 else 0
    aborted = _decode_aborted(reader, aborted_count) if aborted_count > 0 else _NONE_ABORTED
    if version >= 11:
        reader.take(_INT)  # preferred read replica
    size = reader.length()
    records = reader.slice(size) if size > 0 else _NO_RECORDS
    diverging_epoch = None
    for tag, field in reader.tags():
        if tag == 0:
            epoch, end = field.take(_EPOCH_END)
            diverging_epoch = (epoch, end)
    return FetchedPartition(
        topic, partition, error, high_watermark, stable, log_start, aborted, diverging_epoch, records
    )


def _decode_aborted(reader: Reader, count: int) -> AbortedTransactions:
    """Decode aborted transactions into 16 bytes each."""
    reader.begin_elements(count)
    start, size = reader.at, _ABORTED.size + reader.flexible
    rows = np.frombuffer(reader.slice(count * size), np.uint8).reshape(count, size)
    if reader.flexible and rows[:, -1].any():
        return _decode_tagged_aborted(reader, start, count)
    numbers = np.ascontiguousarray(rows[:, : _ABORTED.size]).view(">i8")
    return numbers.astype(np.int64)


def _decode_tagged_aborted(reader: Reader, start: int, count: int) -> AbortedTransactions:
    """Decode aborted transactions that have tagged fields, which no broker has written so far."""
    reader.at = start
    reader.begin_elements((_WORK_OF_TAGGED - 1) * count)
    aborted = np.empty((count, 2), np.int64)
    for number in range(count):
        aborted[number] = reader.take(_ABORTED)
        reader.skip_tags()
    return aborted


def _count(number: int, flexible: bool) -> bytes:
    return varint(number + 1) if flexible else struct.pack(">i", number)


def _string(text: str, flexible: bool) -> bytes:
    data = text.encode()
    return (varint(len(data) + 1) if flexible else struct.pack(">h", len(data))) + data


_INT = struct.Struct(">i")
_HEAD_7 = struct.Struct(">ihi")
_PARTITION_0 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqib")
_RESPONSE_0 = struct.Struct(">ihq")
_RESPONSE_4 = struct.Struct(">ihqq")
_RESPONSE_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_NONE_ABORTED: AbortedTransactions = np.empty((0, 2), np.int64)
_NO_RECORDS = memoryview(b"")
