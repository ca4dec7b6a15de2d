"""Fetch requests and responses, compared byte for byte with kafka-python's, in every version."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.protocol.codec import varint
from mirrormaker.wire.protocol.fetch import FetchedPartition, PartitionToFetch
from mirrormaker.wire.transport.connection import Connection
from tests.support.answers import NONE_ABORTED, FetchAnswer, as_uuid, comparable, encode_fetch_answer
from tests.support.memory import peak
from tests.support.strategies import epochs, fetch_answers, fetch_topics, forgotten_topics, int32, limits

Topics = list[tuple[str, bytes, list[PartitionToFetch]]]

VERSIONS = range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1)
versions = st.sampled_from(VERSIONS)


def kafka_python_request(
    version: int,
    topics: Topics,
    limits: dict[str, Any],
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[str, bytes, Sequence[int]]] = (),
) -> bytes:
    topic, partition = FetchRequest.FetchTopic, FetchRequest.FetchTopic.FetchPartition
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=limits["max_wait_ms"],
        min_bytes=limits["min_bytes"],
        max_bytes=limits["max_bytes"],
        isolation_level=int(limits["read_committed"]),
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            topic(
                topic=name,
                topic_id=as_uuid(topic_id),
                partitions=[
                    partition(
                        partition=part.partition,
                        current_leader_epoch=part.leader_epoch,
                        fetch_offset=part.offset,
                        last_fetched_epoch=part.last_fetched_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=part.max_bytes,
                    )
                    for part in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=as_uuid(topic_id), partitions=list(partitions))
            for name, topic_id, partitions in forgotten
        ],
        rack_id="",
    )
    encoded: bytes = request.encode(version=version)
    return encoded


def read(version: int, data: bytes) -> tuple[int, list[tuple[Any, ...]]]:
    """Decode a response into values that can be compared."""
    error, parts = fetch.decode_response(version, memoryview(data))
    return error, [comparable(part) for part in parts]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_kafka_python_would_send(version: int) -> None:
    topics = [
        ("orders", bytes(range(16)), [PartitionToFetch(0, 42, 3, 2, 1 << 20), PartitionToFetch(7, 0)]),
        ("zahlungen-äöü", bytes(16), [PartitionToFetch(1, (1 << 62), max_bytes=1)]),
    ]
    limits: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "read_committed": version % 2 == 0,
    }
    assert fetch.encode_request(version, topics, **limits) == kafka_python_request(version, topics, limits)


@given(versions, fetch_topics, limits)
def test_any_request_is_what_kafka_python_would_send(version: int, topics: Topics, limits: dict[str, Any]) -> None:
    assert fetch.encode_request(version, topics, **limits) == kafka_python_request(version, topics, limits)


@given(versions, fetch_topics, limits, st.tuples(int32, epochs), forgotten_topics)
def test_any_request_in_a_session_is_what_kafka_python_would_send(
    version: int,
    topics: Topics,
    limits: dict[str, Any],
    session: tuple[int, int],
    forgotten: list[tuple[str, bytes, list[int]]],
) -> None:
    encoded = fetch.encode_request(version, topics, session=session, forgotten=forgotten, **limits)
    assert encoded == kafka_python_request(version, topics, limits, session, forgotten)


@given(versions, fetch_answers)
def test_the_session_of_an_answer_is_the_one_that_the_broker_named(version: int, answer: FetchAnswer) -> None:
    encoded = memoryview(encode_fetch_answer(version, answer))
    assert fetch.session_id(version, encoded) == (answer.session if version >= 7 else 0)


def test_an_answer_that_ends_before_its_session_is_refused() -> None:
    with pytest.raises(BadFrame):
        fetch.session_id(7, memoryview(bytes(9)))


@pytest.mark.parametrize(("newest", "ids", "version"), [
    (17, [b"i" * 16], 17),
    (17, [], 17),
    (17, [b"i" * 16, bytes(16)], 12),
    (17, [b""], 12),
    (11, [bytes(16)], 11),
    (99, [b"i" * 16], fetch.VERSIONS[1]),
])  # fmt: skip
def test_a_topic_without_an_id_is_fetched_by_its_name(newest: int, ids: list[bytes], version: int) -> None:
    connection = Connection("nowhere", 1, client_id="us")
    connection.versions = {fetch.API_KEY: (4, newest)}
    assert fetch.version_for(connection, ids) == version


def test_a_request_for_many_partitions_has_a_long_count() -> None:
    """In flexible versions a count of more than 126 takes two bytes."""
    limits: dict[str, Any] = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1, "read_committed": True}
    topics = [("t" * 200, bytes(16), [PartitionToFetch(p, p) for p in range(300)])]
    for version in VERSIONS:
        assert fetch.encode_request(version, topics, **limits) == kafka_python_request(version, topics, limits)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_holds_what_the_broker_said(version: int) -> None:
    part = FetchedPartition("", 3, 0, 100, 90, 10, np.array([(7, 91), (8, 95)]), None, memoryview(b"records"))
    other = FetchedPartition("", 4, 6, -1, -1, -1, NONE_ABORTED, (5, 60), memoryview(b""))
    answer = FetchAnswer(
        0, [("orders", bytes(range(16)), [part, other]), ("empty", bytes(16), [])], (2, 9), [(2, "host", 9092, None)]
    )
    assert read(version, encode_fetch_answer(version, answer)) == answer.expected(version)


@given(versions, fetch_answers)
def test_any_answer_holds_what_the_broker_said(version: int, answer: FetchAnswer) -> None:
    assert read(version, encode_fetch_answer(version, answer)) == answer.expected(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_an_answer_too(version: int) -> None:
    """Brokers write null for aborted transactions and records that they do not have."""
    topic, row = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    nulls = row(partition_index=1, error_code=3, aborted_transactions=None, records=None)
    response = FetchResponse(responses=[topic(topic="t", topic_id=as_uuid(bytes(16)), partitions=[nulls])])
    _, ((_, partition, error, *_, aborted, diverging, records),) = read(version, response.encode(version=version))
    assert (partition, error, aborted, diverging, records) == (1, 3, [], None, b"")


def test_records_are_a_view_into_the_answer() -> None:
    """Batches are stamped in the buffer that received them, without a copy."""
    part = FetchedPartition("", 0, 0, 1, 1, 0, NONE_ABORTED, None, memoryview(b"records"))
    frame = bytearray(encode_fetch_answer(16, FetchAnswer(0, [("t", bytes(16), [part])], None, [])))
    _, (found,) = fetch.decode_response(16, memoryview(frame))
    found.records[:7] = b"STAMPED"
    assert b"STAMPED" in frame


@given(versions, fetch_answers, st.data())
def test_an_answer_that_ends_too_early_is_refused(version: int, answer: FetchAnswer, data: st.DataObject) -> None:
    whole = encode_fetch_answer(version, answer)
    kept = data.draw(st.integers(0, len(whole) - 1))
    try:
        found = read(version, whole[:kept])
    except BadFrame:
        return
    # The bytes behind the last partition are not decoded.
    assert found == answer.expected(version)


@given(versions, st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(version: int, garbage: bytes) -> None:
    with contextlib.suppress(BadFrame):
        fetch.decode_response(version, memoryview(garbage))


@given(versions, fetch_answers, st.data())
def test_a_damaged_answer_is_refused_or_read(version: int, answer: FetchAnswer, data: st.DataObject) -> None:
    damaged = bytearray(encode_fetch_answer(version, answer))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadFrame):
        fetch.decode_response(version, memoryview(damaged))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_billions_without_the_bytes_for_it_is_refused_at_once(version: int) -> None:
    head = b"\0" * (10 if version >= 7 else 4 if version >= 1 else 0)
    count = b"\xff\xff\xff\xff\x07" if fetch.is_flexible(version) else b"\x7f\xff\xff\xff"
    with pytest.raises(BadFrame):
        fetch.decode_response(version, memoryview(head + count))


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_countless_aborted_transactions_take_little_more_memory_than_their_bytes(version: int) -> None:
    """As pairs of Python's numbers they would take eight times as much."""
    count = 100_000
    few = FetchedPartition("", 0, 0, 1, 1, 0, np.array([(7, 8)]), None, memoryview(b""))
    frame = encode_fetch_answer(version, FetchAnswer(0, [("t", bytes(16), [few])], None, []))
    flexible = fetch.is_flexible(version)
    one = (b"\2" if flexible else struct.pack(">i", 1)) + struct.pack(">qq", 7, 8) + b"\0" * flexible
    row = one[1 if flexible else 4 :]
    many = frame.replace(one, (varint(count + 1) if flexible else struct.pack(">i", count)) + row * count)
    assert len(many) > count * len(row)
    found: list[FetchedPartition] = []

    def run() -> None:
        found[:] = fetch.decode_response(version, memoryview(many))[1]

    assert peak(run) < 3 * len(many)
    assert found[0].aborted_transactions.tolist() == [[7, 8]] * count


@pytest.mark.parametrize("tags", [b"\1\x09\3abc", b"\2\0\0\1\1x"])
def test_aborted_transactions_may_have_fields_that_nobody_knows_yet(tags: bytes) -> None:
    two = np.array([(7, 91), (8, 95)])
    part = FetchedPartition("", 0, 0, 100, 90, 10, two, None, memoryview(b"records"))
    frame = encode_fetch_answer(17, FetchAnswer(0, [("t", bytes(16), [part])], None, []))
    plain = struct.pack(">qq", 7, 91)
    assert frame.count(plain + b"\0") == 1
    _, (found,) = fetch.decode_response(17, memoryview(frame.replace(plain + b"\0", plain + tags)))
    assert found.aborted_transactions.tolist() == two.tolist()
    assert bytes(found.records) == b"records"


@pytest.mark.parametrize("version", VERSIONS)
def test_more_partitions_than_there_can_be_are_refused_before_they_take_memory(version: int) -> None:
    part = FetchedPartition("", 0, 0, 1, 1, 0, NONE_ABORTED, None, memoryview(b""))
    two = encode_fetch_answer(version, FetchAnswer(0, [("t", bytes(16), [part, part])], None, []))
    assert len(fetch.decode_response(version, memoryview(two), 2)[1]) == 2
    apart = encode_fetch_answer(version, FetchAnswer(0, [("t", bytes(16), [part])] * 2, None, []))
    assert len(fetch.decode_response(version, memoryview(apart), 2)[1]) == 2
    topics = encode_fetch_answer(version, FetchAnswer(0, [("t", bytes(16), [])] * 2, None, []))
    for frame in (two, apart, topics):
        with pytest.raises(BadFrame, match="at most"):
            fetch.decode_response(version, memoryview(frame), 1)


def test_a_response_of_countless_partitions_is_refused() -> None:
    part = FetchedPartition("", 0, 0, 1, 1, 0, NONE_ABORTED, None, memoryview(b""))
    frame = encode_fetch_answer(17, FetchAnswer(0, [("t", bytes(16), [part])], None, []))
    # Behind the count of partitions, which is 1, all the bytes of one partition are repeated.
    at = frame.index(bytes(16) + b"\2") + 16
    body = frame[at + 1 : -2]
    many = frame[:at] + varint(500_001) + body * 500_000 + b"\0\0"

    def run() -> None:
        with pytest.raises(BadFrame, match="at most"):
            fetch.decode_response(17, memoryview(many))

    assert peak(run) < 1 << 20


def test_countless_aborted_transactions_are_refused() -> None:
    """With tagged fields, which no broker writes, they take longer: there may be fewer."""
    few = FetchedPartition("", 0, 0, 1, 1, 0, np.array([(7, 8)]), None, memoryview(b""))
    frame = encode_fetch_answer(17, FetchAnswer(0, [("t", bytes(16), [few])], None, []))
    row = struct.pack(">qq", 7, 8)
    for tag, count, refused in ((b"\0", 1_000_000, 1_100_000), (b"\1\x63\0", 100_000, 300_000)):
        answer = frame.replace(b"\2" + row + b"\0", varint(count + 1) + (row + tag) * count)
        assert len(fetch.decode_response(17, memoryview(answer))[1][0].aborted_transactions) == count
        answer = frame.replace(b"\2" + row + b"\0", varint(refused + 1) + (row + tag) * refused)

        def run(answer: bytes = answer) -> None:
            with pytest.raises(BadFrame, match="more than a broker can have"):
                fetch.decode_response(17, memoryview(answer))

        assert peak(run) < 1 << 20
