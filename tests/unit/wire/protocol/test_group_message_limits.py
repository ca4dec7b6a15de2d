"""Answers about the offsets of many groups that are too large, or name a thing twice."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import group_messages as wire
from mirrormaker.wire.protocol.codec import MOST_ELEMENTS, varint
from mirrormaker.wire.protocol.group_messages import CommitRow, CommittedRow, GroupOffsets, TopicOffsets
from tests.support.memory import peak

Decode = Callable[[memoryview, list[CommitRow]], Any]


def share_code(partition: int) -> bytes:
    return struct.pack(">ih", partition, 0) + b"\0\0"


def commit_code(partition: int) -> bytes:
    return struct.pack(">ih", partition, 0) + b"\0"


# Of each answer with error codes: its decoder, its head, the id of a topic, and a partition.
COMMIT = (wire.decode_offset_commit, bytes(4), b"", commit_code)
SHARE = (wire.decode_alter_share_offsets, bytes(7), bytes(16), share_code)


@pytest.mark.parametrize(("decode", "head", "topic_id", "code"), [COMMIT, SHARE], ids=["commit", "share groups"])
def test_error_codes_are_those_of_the_partitions_that_were_asked_for(
    decode: Decode, head: bytes, topic_id: bytes, code: Callable[[int], bytes]
) -> None:
    rows = [CommitRow("t", 0, 5), CommitRow("t", 1, 5)]

    def read(*topics: list[int]) -> dict[tuple[str, int], int]:
        parts = [varint(len(numbers) + 1) + b"".join(map(code, numbers)) + b"\0" for numbers in topics]
        raw = head + varint(len(topics) + 1) + b"".join(b"\2t" + topic_id + part for part in parts) + b"\0"
        found: dict[tuple[str, int], int] = decode(memoryview(raw), rows)
        return found

    assert read([0, 1]) == read([1], [0]) == {("t", 0): 0, ("t", 1): 0}
    for twice in ([[0, 0]], [[0], [0]], [[0, 1], [1]], [[0, 1, 1]], [[0, 1], [], []]):
        with pytest.raises(BadFrame):
            read(*twice)
    with pytest.raises(BadFrame):
        decode(memoryview(head + varint(2) + b"\2t" + topic_id + b"\0\0\0"), rows)
    with pytest.raises(BadFrame):
        decode(memoryview(head + b"\0\0"), [])


@pytest.mark.parametrize(("decode", "head", "topic_id", "code"), [COMMIT, SHARE], ids=["commit", "share groups"])
def test_countless_error_codes_are_refused_before_they_take_memory(
    decode: Decode, head: bytes, topic_id: bytes, code: Callable[[int], bytes]
) -> None:
    count = 300_000
    topics = varint(count + 1) + (b"\2t" + topic_id + b"\1\0") * count
    partitions = b"\2\2t" + topic_id + varint(count + 1) + code(7) * count + b"\0"
    for body in (topics, partitions):
        raw = memoryview(head + body + b"\0")

        def run(raw: memoryview = raw) -> None:
            with pytest.raises(BadFrame, match="at most 2"):
                decode(raw, [CommitRow("t", 0, 5), CommitRow("t", 1, 5)])

        assert peak(run) < 1 << 20


def share_offsets(groups: dict[str, dict[str, list[int]]]) -> bytes:
    raw = bytes(4) + varint(len(groups) + 1)
    for group, topics in groups.items():
        raw += varint(len(group) + 1) + group.encode() + varint(len(topics) + 1)
        for topic, numbers in topics.items():
            rows = b"".join(struct.pack(">iqih", number, 7, 0, 0) + b"\0\0" for number in numbers)
            raw += varint(len(topic) + 1) + topic.encode() + bytes(16) + varint(len(numbers) + 1) + rows + b"\0"
        raw += bytes(4)
    return raw + b"\0"


def test_start_offsets_of_share_groups_are_read() -> None:
    found = wire.decode_describe_share_offsets(memoryview(share_offsets({"a": {"t": [0, 3]}, "b": {}})), ["a", "b"])
    assert found["a"].topics["t"].rows() == {0: CommittedRow(7, ""), 3: CommittedRow(7, "")}
    assert found["b"] == GroupOffsets({}, 0)


def test_an_answer_about_share_groups_names_nothing_twice() -> None:
    with pytest.raises(BadFrame, match="a partition twice"):
        wire.decode_describe_share_offsets(memoryview(share_offsets({"a": {"t": [0, 0]}})), ["a"])
    topic = b"\2t" + bytes(16) + b"\1\0"
    with pytest.raises(BadFrame, match="a topic of a group twice"):
        wire.decode_describe_share_offsets(memoryview(bytes(4) + b"\2\2a\3" + topic * 2 + bytes(5)), ["a"])
    with pytest.raises(BadFrame, match="at most 1"):
        wire.decode_describe_share_offsets(memoryview(share_offsets({"a": {}, "b": {}})), ["a"])
    twice = bytes(4) + b"\3" + b"\2a\1\0\0\0\0" * 2 + b"\0"
    with pytest.raises(BadFrame, match="not about the groups"):
        wire.decode_describe_share_offsets(memoryview(twice), ["a", "b"])


@pytest.mark.parametrize(
    "raw",
    [
        bytes(4) + varint(140_001) + b"".join(b"\6%05x\1\0\0\0\0" % number for number in range(140_000)),
        bytes(4)
        + b"\2\2a"
        + varint(140_001)
        + b"".join(b"\6%05x%b\1\0" % (number, bytes(16)) for number in range(140_000)),
        bytes(4)
        + b"\2\2a\2\2t"
        + bytes(16)
        + varint(140_001)
        + b"".join(struct.pack(">iqih", number, 7, 0, 0) + b"\0\0" for number in range(140_000)),
    ],
    ids=["groups", "topics", "partitions"],
)
def test_countless_offsets_of_share_groups_are_refused_before_they_take_memory(raw: bytes) -> None:
    whole = memoryview(raw + bytes(9))

    def run() -> None:
        with pytest.raises(BadFrame):
            wire.decode_describe_share_offsets(whole, ["a", "b"])

    assert peak(run) < 1 << 20


def test_the_most_start_offsets_of_share_groups_fit_into_memory() -> None:
    count = MOST_ELEMENTS // 8
    frame = share_offsets({"a": {"t": list(range(count))}})
    assert peak(lambda: wire.decode_describe_share_offsets(memoryview(frame), ["a"])) < (64 << 20) // 8


def test_countless_topics_of_a_group_are_refused_before_they_take_memory() -> None:
    """A topic takes longer than a partition, and more memory: a million topics of no partition took 4 s and 140 MB."""
    most = wire.MOST_ROWS // 4
    topics = b"".join(b"\6" + format(number, "05x").encode() + b"\1\0" for number in range(most // 8))
    fits = bytes(4) + b"\2\2g" + varint(most // 8 + 1) + topics + bytes(4)
    assert peak(lambda: wire.decode_offset_fetch(memoryview(fits), ["g"])) < (64 << 20) // 8
    with pytest.raises(BadFrame, match="more than a broker can have"):
        wire.decode_offset_fetch(memoryview(bytes(4) + b"\2\2g" + varint(most + 2) + topics), ["g"])


def test_more_groups_than_were_asked_for_are_refused() -> None:
    raw = bytes(4) + varint(300_001) + b"\2a\1\0\0\0" * 300_000 + b"\0"

    def run() -> None:
        with pytest.raises(BadFrame, match="at most 2"):
            wire.decode_offset_fetch(memoryview(raw), ["a", "b"])

    assert peak(run) < 1 << 20
    with pytest.raises(BadFrame, match="not about the groups"):
        wire.decode_offset_fetch(memoryview(bytes(4) + b"\3" + b"\2a\1\0\0\0" * 2 + b"\0"), ["a", "b"])


def test_a_topic_has_no_more_partitions_than_a_cluster() -> None:
    """The rows of a million partitions took 200 MB."""
    most = 1 << 18
    rows = TopicOffsets.of({number: CommittedRow(1 << 40, "") for number in range(most // 8)}).raw
    head = bytes(4) + b"\2\2g\2\2t"
    fits = wire.decode_offset_fetch(memoryview(head + varint(most // 8 + 1) + rows + bytes(5)), ["g"])
    assert peak(fits["g"].topics["t"].rows) < (64 << 20) // 8
    with pytest.raises(BadFrame, match=f"at most {most}"):
        wire.decode_offset_fetch(memoryview(head + varint(most + 2) + rows + bytes(5)), ["g"])
