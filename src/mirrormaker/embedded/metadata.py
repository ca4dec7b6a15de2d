"""The oldest Metadata request, which every broker from 0.8 to 4 answers."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _VERSION, _CORRELATION = 3, 0, 1
_PATIENCE = 2.0
"""Seconds for one answer; a starting broker is asked again, so a short one only costs another question."""


@dataclass(frozen=True)
class Partition:
    """Where one partition is led and kept, as a broker sees it; leader -1 if there is none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """The brokers and topics that a broker knows."""

    brokers: frozenset[int]
    topics: dict[str, dict[int, Partition]]


def ask(port: int) -> Metadata | None:
    """The metadata of the broker at a port, None while it does not answer."""
    request = struct.pack(">hhihi", _METADATA, _VERSION, _CORRELATION, -1, 0)  # no client id, all topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                return _Reader(answer.read(size)).metadata()
    except (OSError, struct.error):
        return None


class _Reader:
    """Takes a version 0 answer apart."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 4  # behind the correlation id

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
