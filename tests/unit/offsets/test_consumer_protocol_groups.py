"""Answers about a group of Kafka 4's own protocol that are too large."""

from __future__ import annotations

import struct

import pytest

from mirrormaker.errors import BadFrame
from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.wire.protocol.codec import MOST_ELEMENTS, varint
from tests.support.memory import peak

_GROUP = b"\0\0\0\2g\2s" + bytes(8) + b"\2a"
_MEMBER = b"\2m\0\0" + bytes(4) + b"\2c\2h"
_NO_TOPICS = b"\1\0\1\0\1\0\0"
_ID = bytes(16)


def answer(members: bytes, count: int, groups: int = 1) -> bytes:
    """Return an answer with members, of which it says that there are so many."""
    group = _GROUP + varint(count + 1) + members + bytes(5)
    return bytes(4) + varint(groups + 1) + group * groups + b"\0"


def member(partitions: int) -> bytes:
    numbers = b"".join(struct.pack(">i", number) for number in range(partitions))
    return _MEMBER + b"\1\0" + b"\2" + _ID + b"\2t" + varint(partitions + 1) + numbers + b"\0\0" + b"\1\0\0"


def test_the_partitions_of_each_member_are_read() -> None:
    found = consumer_protocol_groups.read(memoryview(answer(_MEMBER + _NO_TOPICS + member(3), 2)))
    assert found == {("t", number): "c-m" for number in range(3)}
    assert consumer_protocol_groups.read(memoryview(answer(b"", 0))) == {}


_COUNTLESS = {
    "groups": answer(b"", 0, 300_000),
    "members": answer((_MEMBER + _NO_TOPICS) * 300_000, 300_000),
    "subscribed topics": answer(_MEMBER + varint(300_001) + b"\2t" * 300_000 + _NO_TOPICS[1:], 1),
    "assigned topics": answer(
        _MEMBER + b"\1\0" + varint(300_001) + (_ID + b"\2t\1\0") * 300_000 + b"\0" + b"\1\0\0", 1
    ),
    "partitions": answer(member(300_000), 1),
}


@pytest.mark.parametrize("data", _COUNTLESS.values(), ids=_COUNTLESS)
def test_countless_elements_are_refused_before_they_take_memory(data: bytes) -> None:
    """The partitions of an answer took 46 times its bytes."""

    def run() -> None:
        with pytest.raises(BadFrame):
            consumer_protocol_groups.read(memoryview(data))

    assert peak(run) < 1 << 20


def test_the_most_partitions_of_a_group_fit_into_memory() -> None:
    data = answer(member(MOST_ELEMENTS // 8), 1)
    assert peak(lambda: consumer_protocol_groups.read(memoryview(data))) < (64 << 20) // 8


@pytest.mark.parametrize("at", [1, 3, 5], ids=["subscribed topics", "assigned topics", "target"])
def test_a_list_that_is_null_is_refused(at: int) -> None:
    lists = {1: b"\0\0\1\0\1\0\0", 3: b"\1\0\0\0\1\0\0", 5: b"\1\0\1\0\0\0\0"}[at]
    with pytest.raises(BadFrame):
        consumer_protocol_groups.read(memoryview(answer(_MEMBER + lists, 1)))
