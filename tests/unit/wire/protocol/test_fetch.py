"""Fetch, byte for byte as kafka-python writes and reads it, in every version that we speak."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.protocol.fetch import Fetched, Wanted
from tests.support.strategies import FetchAnswer, as_uuid, fetch_answers, fetch_topics, limits, plain

VERSIONS = range(fetch.VERSIONS[0], fetch.VERSIONS[1] + 1)
versions = st.sampled_from(VERSIONS)


def their_request(version: int, topics: list[tuple[str, bytes, list[Wanted]]], limits: dict[str, Any]) -> bytes:
    topic, partition = FetchRequest.FetchTopic, FetchRequest.FetchTopic.FetchPartition
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=limits["max_wait_ms"],
        min_bytes=limits["min_bytes"],
        max_bytes=limits["max_bytes"],
        isolation_level=int(limits["read_committed"]),
        session_id=0,
        session_epoch=-1,
        topics=[
            topic(
                topic=name,
                topic_id=as_uuid(topic_id),
                partitions=[
                    partition(
                        partition=want.partition,
                        current_leader_epoch=want.leader_epoch,
                        fetch_offset=want.offset,
                        last_fetched_epoch=want.last_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=want.max_bytes,
                    )
                    for want in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    encoded: bytes = request.encode(version=version)
    return encoded


def their_answer(version: int, answer: FetchAnswer) -> bytes:
    topic, row = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData

    def partition(part: Fetched) -> Any:
        tags: dict[str, Any] = {}
        if part.diverging is not None:
            tags["diverging_epoch"] = row.EpochEndOffset(epoch=part.diverging[0], end_offset=part.diverging[1])
        if answer.current_leader is not None:
            leader, epoch = answer.current_leader
            tags["current_leader"] = row.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return row(
            partition_index=part.partition,
            error_code=part.error,
            high_watermark=part.high_watermark,
            last_stable_offset=part.stable_offset,
            log_start_offset=part.log_start,
            aborted_transactions=[row.AbortedTransaction(producer_id=p, first_offset=o) for p, o in part.aborted],
            preferred_read_replica=-1,
            records=bytes(part.records),
            **tags,
        )

    node = FetchResponse.NodeEndpoint
    response = FetchResponse(
        throttle_time_ms=17,
        error_code=answer.error,
        session_id=0,
        responses=[
            topic(topic=name, topic_id=as_uuid(topic_id), partitions=[partition(p) for p in parts])
            for name, topic_id, parts in answer.topics
        ],
        node_endpoints=[node(node_id=n, host=h, port=p, rack=r) for n, h, p, r in answer.endpoints],
    )
    encoded: bytes = response.encode(version=version)
    return encoded


def read(version: int, data: bytes) -> tuple[int, list[tuple[Any, ...]]]:
    error, parts = fetch.answer(version, memoryview(data))
    return error, [plain(part) for part in parts]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_kafka_python_would_send(version: int) -> None:
    topics = [
        ("orders", bytes(range(16)), [Wanted(0, 42, 3, 2, 1 << 20), Wanted(7, 0)]),
        ("zahlungen-äöü", bytes(16), [Wanted(1, (1 << 62), max_bytes=1)]),
    ]
    limits: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "read_committed": version % 2 == 0,
    }
    assert fetch.request(version, topics, **limits) == their_request(version, topics, limits)


@given(versions, fetch_topics, limits)
def test_any_request_is_what_kafka_python_would_send(
    version: int, topics: list[tuple[str, bytes, list[Wanted]]], limits: dict[str, Any]
) -> None:
    assert fetch.request(version, topics, **limits) == their_request(version, topics, limits)


def test_a_request_for_many_partitions_has_a_long_count() -> None:
    """Counts over 127 take two bytes in flexible versions."""
    limits: dict[str, Any] = {"max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1, "read_committed": True}
    topics = [("t" * 200, bytes(16), [Wanted(p, p) for p in range(300)])]
    for version in VERSIONS:
        assert fetch.request(version, topics, **limits) == their_request(version, topics, limits)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_holds_what_the_broker_said(version: int) -> None:
    part = Fetched("", 3, 0, 100, 90, 10, [(7, 91), (8, 95)], None, memoryview(b"records"))
    other = Fetched("", 4, 6, -1, -1, -1, [], (5, 60), memoryview(b""))
    answer = FetchAnswer(
        0, [("orders", bytes(range(16)), [part, other]), ("empty", bytes(16), [])], (2, 9), [(2, "host", 9092, None)]
    )
    assert read(version, their_answer(version, answer)) == answer.expected(version)


@given(versions, fetch_answers)
def test_any_answer_holds_what_the_broker_said(version: int, answer: FetchAnswer) -> None:
    assert read(version, their_answer(version, answer)) == answer.expected(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_an_answer_too(version: int) -> None:
    """Null for the aborted transactions and null for the records, as brokers write what they do not have."""
    topic, row = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    nulls = row(partition_index=1, error_code=3, aborted_transactions=None, records=None)
    response = FetchResponse(responses=[topic(topic="t", topic_id=as_uuid(bytes(16)), partitions=[nulls])])
    _, ((_, partition, error, *_, aborted, diverging, records),) = read(version, response.encode(version=version))
    assert (partition, error, aborted, diverging, records) == (1, 3, [], None, b"")


def test_records_are_a_view_into_the_answer() -> None:
    """Batches are stamped where they were received, without a copy."""
    part = Fetched("", 0, 0, 1, 1, 0, [], None, memoryview(b"records"))
    frame = bytearray(their_answer(16, FetchAnswer(0, [("t", bytes(16), [part])], None, [])))
    _, (found,) = fetch.answer(16, memoryview(frame))
    found.records[:7] = b"STAMPED"
    assert b"STAMPED" in frame


@given(versions, fetch_answers, st.data())
def test_an_answer_that_ends_too_early_is_refused(version: int, answer: FetchAnswer, data: st.DataObject) -> None:
    whole = their_answer(version, answer)
    kept = data.draw(st.integers(0, len(whole) - 1))
    try:
        found = read(version, whole[:kept])
    except BadFrame:
        return
    # What comes after the last partition is nothing that we look at.
    assert found == answer.expected(version)


@given(versions, st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(version: int, garbage: bytes) -> None:
    with contextlib.suppress(BadFrame):
        fetch.answer(version, memoryview(garbage))


@given(versions, fetch_answers, st.data())
def test_a_damaged_answer_is_refused_or_read(version: int, answer: FetchAnswer, data: st.DataObject) -> None:
    damaged = bytearray(their_answer(version, answer))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadFrame):
        fetch.answer(version, memoryview(damaged))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_billions_without_the_bytes_for_it_is_refused_at_once(version: int) -> None:
    head = b"\0" * (10 if version >= 7 else 4 if version >= 1 else 0)
    count = b"\xff\xff\xff\xff\x07" if fetch.is_flexible(version) else b"\x7f\xff\xff\xff"
    with pytest.raises(BadFrame):
        fetch.answer(version, memoryview(head + count))
