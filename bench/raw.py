"""The two Kafka requests that the bench sends itself, on a blocking socket: cheap enough not to disturb what it measures."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from itertools import repeat

from kafka.record.default_records import DefaultRecordBatchBuilder

_PRODUCE, _LIST_OFFSETS = 0, 2
_PATIENCE = 30.0
"""Seconds for a broker's answer: a loaded one takes a fraction of a second."""


class BrokerError(Exception):
    """A broker refused what the bench asked for."""


class Line:
    """A connection to one broker; answers come in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        self._socket.sendall(request)

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]  # behind the correlation id, which is the same for all

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self._socket.recv(size - len(got))
            if not part:
                raise BrokerError("the broker closed the connection")
            got += part
        return bytes(got)


def batch(values: Iterable[bytes], keys: Sequence[bytes] | None = None) -> bytes:
    """One uncompressed record batch with these values, and these keys or none."""
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


def produce(topic: str, batches: dict[int, bytes]) -> bytes:
    """A produce request (version 3, acks=1) with one batch for each partition."""
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + _string(topic) + struct.pack(">i", len(batches))
    for partition, data in batches.items():
        body += struct.pack(">ii", partition, len(data)) + data
    return _request(_PRODUCE, 3, body)


def check_produced(answer: bytes) -> None:
    """Raise if a partition did not take its batch."""
    for partition, error, _offset in _rows(answer, struct.Struct(">ihqq"), offset_at=2):
        if error:
            raise BrokerError(f"partition {partition} refused a batch: error {error}")


def list_end_offsets(topic: str, partitions: int) -> bytes:
    """A request (version 1) for the end of each partition."""
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
    return _request(_LIST_OFFSETS, 1, body)


def end_offsets(answer: bytes) -> list[int]:
    """The end of each partition, -1 where the broker gives an error instead."""
    return [offset for _, _, offset in _rows(answer, struct.Struct(">ihqq"), offset_at=3)]


def _rows(answer: bytes, row: struct.Struct, offset_at: int) -> Iterable[tuple[int, int, int]]:
    """Partition, error code and offset from an answer about one topic."""
    (name,) = struct.unpack_from(">h", answer, 4)
    start = 4 + 2 + name
    (count,) = struct.unpack_from(">i", answer, start)
    for number in range(count):
        fields = row.unpack_from(answer, start + 4 + number * row.size)
        yield fields[0], fields[1], fields[offset_at]


def _request(api: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api, version, 0) + _string("bench")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
