"""Produce and ListOffsets requests on a blocking socket: cheap enough not to disturb a measurement."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from itertools import repeat

from kafka.record.default_records import DefaultRecordBatchBuilder

_PRODUCE, _LIST_OFFSETS = 0, 2
_TIMEOUT = 30.0  # seconds for an answer; a busy broker takes a fraction of one


class RequestFailed(Exception):
    """A broker refused a request, or closed the connection."""


class RawConnection:
    """A connection to one broker. Answers come in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        """Send a request without waiting for its answer."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Return the next answer, without its length and correlation id."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)[4:]

    def ask(self, request: bytes) -> bytes:
        """Send a request and return its answer."""
        self.send(request)
        return self.receive()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RequestFailed("the broker closed the connection")
            data += part
        return bytes(data)


def record_batch(values: Iterable[bytes], keys: Sequence[bytes] | None = None) -> bytes:
    """Return an uncompressed record batch with these values, and with these keys or none."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    now = time.time_ns() // 1_000_000
    for number, (value, key) in enumerate(zip(values, keys or repeat(None), strict=False)):
        builder.append(number, now, key, value, [])
    return bytes(builder.build())


def produce_request(topic: str, batches: dict[int, bytes]) -> bytes:
    """Return a Produce request (version 3, acks=1) with one record batch for each partition."""
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + _string(topic) + struct.pack(">i", len(batches))
    for partition, data in batches.items():
        body += struct.pack(">ii", partition, len(data)) + data
    return _request(_PRODUCE, 3, body)


def check_produced(answer: bytes) -> None:
    """Raise `RequestFailed` if a partition did not accept its record batch."""
    for partition, error, _offset in _rows(answer, struct.Struct(">ihqq"), offset_at=2):
        if error:
            raise RequestFailed(f"partition {partition} refused a record batch with error code {error}")


def produce_many(
    connections: Sequence[RawConnection], requests: Sequence[bytes], total: int, in_flight: int
) -> Iterable[int]:
    """Send `total` Produce requests, beginning again after the last of `requests`; yield the number of each.

    `in_flight` requests are sent ahead of their answers, on all connections together. Every answer is checked.
    """
    for number in range(total + in_flight):
        connection = connections[number % len(connections)]
        if number >= in_flight:
            check_produced(connection.receive())
        if number < total:
            connection.send(requests[number % len(requests)])
        yield number


def list_end_offsets_request(topic: str, partitions: int) -> bytes:
    """Return a ListOffsets request (version 1) for the end offset of each partition."""
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
    return _request(_LIST_OFFSETS, 1, body)


def listed_end_offsets(answer: bytes) -> list[int]:
    """Return the end offset of each partition from an answer, -1 for a partition with an error."""
    return [offset for _, _, offset in _rows(answer, struct.Struct(">ihqq"), offset_at=3)]


def _rows(answer: bytes, row: struct.Struct, offset_at: int) -> Iterable[tuple[int, int, int]]:
    """Yield partition, error code and offset from an answer about one topic."""
    (name_size,) = struct.unpack_from(">h", answer, 4)
    start = 4 + 2 + name_size
    (count,) = struct.unpack_from(">i", answer, start)
    for number in range(count):
        fields = row.unpack_from(answer, start + 4 + number * row.size)
        yield fields[0], fields[1], fields[offset_at]


def _request(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, 0) + _string("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
