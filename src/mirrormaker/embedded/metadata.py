"""Metadata requests of version 0, which brokers of every Kafka version from 0.8 to 4 answer."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _VERSION, _CORRELATION = 3, 0, 1
_TIMEOUT = 2.0  # seconds for one answer; callers ask again while a broker starts


@dataclass(frozen=True)
class Partition:
    """Leader and replicas of one partition, as one broker knows them. The leader is -1 if there is none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """The brokers and topics that one broker knows."""

    brokers: frozenset[int]
    topics: dict[str, dict[int, Partition]]


def ask(port: int) -> Metadata | None:
    """Return the metadata of the broker at a port, or None if it does not answer."""
    request = struct.pack(">hhihi", _METADATA, _VERSION, _CORRELATION, -1, 0)  # -1: no client id, 0: all topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                return _Reader(answer.read(size)).metadata()
    except (OSError, struct.error):
        return None


class _Reader:
    """Decodes an answer of version 0."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 4  # after the correlation id

    def metadata(self) -> Metadata:
        brokers = frozenset(self._broker() for _ in range(self._take("i")))
        topics = dict(self._topic() for _ in range(self._take("i")))
        return Metadata(brokers, topics)

    def _take(self, kind: str) -> int:
        value: int
        (value,) = struct.unpack_from(">" + kind, self._body, self._at)
        self._at += struct.calcsize(">" + kind)
        return value

    def _text(self) -> str:
        size = self._take("h")
        self._at += size
        return self._body[self._at - size : self._at].decode()

    def _broker(self) -> int:
        number = self._take("i")
        self._text()
        self._take("i")
        return number

    def _topic(self) -> tuple[str, dict[int, Partition]]:
        self._take("h")
        return self._text(), dict(self._partition() for _ in range(self._take("i")))

    def _partition(self) -> tuple[int, Partition]:
        self._take("h")
        number, leader = self._take("i"), self._take("i")
        return number, Partition(leader, self._numbers(), self._numbers())

    def _numbers(self) -> tuple[int, ...]:
        return tuple(self._take("i") for _ in range(self._take("i")))
