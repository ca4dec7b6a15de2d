"""Offsets of many groups: our codec against kafka-python's, and damaged answers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import group_messages as wire
from mirrormaker.wire.protocol.codec import Reader
from mirrormaker.wire.protocol.group_messages import CommitRow, CommittedRow, GroupOffsets, TopicOffsets
from mirrormaker.wire.protocol.offset_rows import row_places

NAMES = st.text("abcö-._1", min_size=1, max_size=20)
ROWS = st.dictionaries(
    st.integers(0, 2**31 - 1),
    st.builds(
        CommittedRow,
        st.integers(-1, 2**63 - 1),
        st.sampled_from(["", "", "", "x", "größe", "y" * 300]),
        st.sampled_from([0, 0, 88]),
    ),
    max_size=30,
)
GROUPS = st.dictionaries(
    NAMES, st.tuples(st.dictionaries(NAMES, ROWS, max_size=4), st.sampled_from([0, 0, 30])), max_size=5
)


def encoded(groups: dict[str, tuple[dict[str, dict[int, CommittedRow]], int]], version: int, missing: bool) -> bytes:
    """Return an answer as kafka-python writes it; `missing`: null in place of an empty metadata."""
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    part = topic.OffsetFetchResponsePartitions
    answer = OffsetFetchResponse(
        throttle_time_ms=0,
        groups=[
            group(
                group_id=name,
                error_code=error,
                topics=[
                    topic(
                        name=title,
                        partitions=[
                            part(
                                partition_index=number,
                                committed_offset=row.offset,
                                committed_leader_epoch=7,
                                metadata=row.metadata or (None if missing else ""),
                                error_code=row.error,
                            )
                            for number, row in rows.items()
                        ],
                    )
                    for title, rows in topics.items()
                ],
            )
            for name, (topics, error) in groups.items()
        ],
    )
    return bytes(answer.encode(version=version))


@given(GROUPS, st.sampled_from([8, 9]), st.booleans())
def test_an_answer_is_read_as_kafka_python_wrote_it(
    groups: dict[str, tuple[dict[str, dict[int, CommittedRow]], int]], version: int, missing: bool
) -> None:
    found = wire.decode_offset_fetch(memoryview(encoded(groups, version, missing)), groups)
    assert {name: group.error for name, group in found.items()} == {name: error for name, (_, error) in groups.items()}
    for name, (topics, error) in groups.items():
        assert {title: part.rows() for title, part in found[name].topics.items()} == ({} if error else topics)


@given(GROUPS, st.data())
def test_a_damaged_answer_is_refused_or_read_and_nothing_else(
    groups: dict[str, tuple[dict[str, dict[int, CommittedRow]], int]], data: st.DataObject
) -> None:
    raw = bytearray(encoded(groups, 8, False))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        for group in wire.decode_offset_fetch(memoryview(raw), groups).values():
            for topic in group.topics.values():
                topic.rows()
    except BadFrame:
        return


@given(ROWS)
def test_rows_survive_being_made_into_an_answer(rows: dict[int, CommittedRow]) -> None:
    assert TopicOffsets.of(rows).rows() == rows


def test_an_answer_about_other_groups_is_refused() -> None:
    raw = encoded({"a": ({}, 0)}, 8, False)
    with pytest.raises(BadFrame):
        wire.decode_offset_fetch(memoryview(raw), ["a", "b"])
    assert wire.decode_offset_fetch(memoryview(raw), ["a"]) == {"a": GroupOffsets({}, 0)}


@given(st.lists(NAMES, unique=True, max_size=5), st.sampled_from([8, 9]), st.booleans())
def test_a_request_for_all_offsets_is_kafka_pythons(names: list[str], version: int, stable: bool) -> None:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[group(group_id=name, topics=None) for name in names], require_stable=stable)
    assert wire.encode_offset_fetch(version, names, stable=stable) == bytes(request.encode(version=version))


@given(
    NAMES, st.dictionaries(st.tuples(NAMES, st.integers(0, 99)), st.tuples(st.integers(0, 2**60), NAMES | st.just("")))
)
def test_a_commit_is_kafka_pythons(group: str, rows: dict[tuple[str, int], tuple[int, str]]) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    names = dict.fromkeys(name for name, _ in rows)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            topic(
                name=name,
                partitions=[
                    part(partition_index=p, committed_offset=o, committed_leader_epoch=-1, committed_metadata=text)
                    for (t, p), (o, text) in rows.items()
                    if t == name
                ],
            )
            for name in names
        ],
    )
    commit = [CommitRow(t, p, o, text) for (t, p), (o, text) in rows.items()]
    assert wire.encode_offset_commit(group, commit) == bytes(request.encode(version=8))
    row = OffsetCommitResponse.OffsetCommitResponseTopic
    answer = OffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            row(
                name=name,
                partitions=[
                    row.OffsetCommitResponsePartition(partition_index=p, error_code=25) for t, p in rows if t == name
                ],
            )
            for name in names
        ],
    )
    data = memoryview(bytes(answer.encode(version=8)))
    assert wire.decode_offset_commit(data, commit) == dict.fromkeys(rows, 25)
    with pytest.raises(BadFrame):
        wire.decode_offset_commit(data, [*commit, CommitRow("another", 0, 1)])


def test_a_row_with_metadata_costs_no_call_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million rows with a metadata took three seconds."""
    calls = 0
    whole = Reader.take

    def counted(self: Reader, layout: struct.Struct) -> tuple[int, ...]:
        nonlocal calls
        calls += 1
        return whole(self, layout)

    rows = {number: CommittedRow(number, "streams-7") for number in range(5000)}
    data = encoded({"g": ({"t": rows}, 0)}, 8, missing=False)
    monkeypatch.setattr(Reader, "take", counted)
    found = wire.decode_offset_fetch(memoryview(data), ["g"])
    assert found["g"].topics["t"].rows() == rows
    assert calls < 10


def test_rows_with_tagged_fields_may_be_fewer() -> None:
    """No broker writes them, and they take much longer."""
    row = struct.pack(">iqi", 1, 2, 3) + b"\1\0\0" + b"\1\x63\1a"
    assert [end - begin for _, begin, end in row_places(Reader(memoryview(row * 9), True, 36), 9)] == [0] * 9
    with pytest.raises(BadFrame, match="more than a broker can have"):
        list(row_places(Reader(memoryview(row * 9), True, 35), 9))


@pytest.mark.parametrize("metadata", ["", "kept by the application"])
def test_a_negative_offset_is_no_offset_and_the_others_are_read(metadata: str) -> None:
    """Brokers take any offset that an application commits, such as -5; it must not keep other groups from being read."""
    rows = {0: CommittedRow(-5, metadata), 1: CommittedRow(7, metadata), 2: CommittedRow(-(2**63), metadata, 88)}
    groups = {"stranger": ({"t": rows}, 0), "ours": ({"t": {0: CommittedRow(9, "")}}, 0)}
    found = wire.decode_offset_fetch(memoryview(encoded(groups, 8, False)), groups)
    assert found["stranger"].topics["t"].rows() == {
        0: CommittedRow(-1, metadata),
        1: CommittedRow(7, metadata),
        2: CommittedRow(-1, metadata, 88),
    }
    assert found["ours"].topics["t"].rows() == {0: CommittedRow(9, "")}


@pytest.mark.parametrize("numbers", [(0, 0), (-1, 0)])
@pytest.mark.parametrize("metadata", [b"\1", b"\2x"])
def test_a_partition_that_cannot_be_is_still_refused(numbers: tuple[int, int], metadata: bytes) -> None:
    rows = b"".join(struct.pack(">iqi", number, -5, 0) + metadata + bytes(3) for number in numbers)
    raw = bytes(4) + b"\2\2g\2\2t\3" + rows + bytes(5)
    topic = wire.decode_offset_fetch(memoryview(raw), ["g"])["g"].topics["t"]
    with pytest.raises(BadFrame, match="twice, or one that cannot be"):
        topic.rows()
