"""Produce, byte for byte as kafka-python writes and reads it, in every version that we speak."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.protocol.produce import Appended
from tests.support.strategies import ProduceAnswer, Record, as_uuid, produce_answers, produce_topics, write_batch

VERSIONS = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
versions = st.sampled_from(VERSIONS)

Topics = list[tuple[str, bytes, list[tuple[int, bytes]]]]


def our_request(version: int, topics: Topics, acks: int = -1, timeout_ms: int = 5000) -> bytes:
    return b"".join(map(bytes, produce.request(version, topics, acks=acks, timeout_ms=timeout_ms)))


def their_request(version: int, topics: Topics, acks: int = -1, timeout_ms: int = 5000) -> bytes:
    topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.TopicProduceData.PartitionProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                name=name,
                topic_id=as_uuid(topic_id),
                partition_data=[partition(index=number, records=data) for number, data in partitions],
            )
            for name, topic_id, partitions in topics
        ],
    )
    encoded: bytes = request.encode(version=version)
    return encoded


def their_answer(version: int, answer: ProduceAnswer) -> bytes:
    topic = ProduceResponse.TopicProduceResponse
    row = topic.PartitionProduceResponse

    def partition(part: Appended) -> Any:
        tags: dict[str, Any] = {}
        if answer.current_leader is not None:
            leader, epoch = answer.current_leader
            tags["current_leader"] = row.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return row(
            index=part.partition,
            error_code=part.error,
            base_offset=part.base_offset,
            log_append_time_ms=-1,
            log_start_offset=5,
            record_errors=[
                row.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text)
                for i, text in answer.record_errors
            ],
            error_message=part.message,
            **tags,
        )

    node = ProduceResponse.NodeEndpoint
    response = ProduceResponse(
        responses=[
            topic(name=name, topic_id=as_uuid(topic_id), partition_responses=[partition(p) for p in parts])
            for name, topic_id, parts in answer.topics
        ],
        throttle_time_ms=3,
        node_endpoints=[node(node_id=n, host=h, port=p, rack=r) for n, h, p, r in answer.endpoints],
    )
    encoded: bytes = response.encode(version=version)
    return encoded


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_kafka_python_would_send(version: int) -> None:
    batch = write_batch([Record(0, b"k", b"v" * 500)], producer_id=1, producer_epoch=0, base_sequence=0).data
    topics = [("orders", bytes(range(16)), [(0, batch), (200, batch * 40)]), ("zahlungen-äöü", bytes(16), [(1, batch)])]
    assert our_request(version, topics) == their_request(version, topics)


@given(versions, produce_topics, st.sampled_from([-1, 1]), st.integers(0, (1 << 31) - 1))
def test_any_request_is_what_kafka_python_would_send(version: int, topics: Topics, acks: int, timeout_ms: int) -> None:
    assert our_request(version, topics, acks, timeout_ms) == their_request(version, topics, acks, timeout_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_leave_in_the_buffers_that_they_came_in(version: int) -> None:
    first, second = memoryview(bytearray(b"first")), memoryview(bytearray(b"second"))
    parts = produce.request(version, [("t", bytes(16), [(0, first), (1, second)])], acks=-1, timeout_ms=1)
    assert [part for part in parts if part is first or part is second] == [first, second]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_holds_what_the_broker_said(version: int) -> None:
    rows = [Appended("", 0, 0, 1234, None), Appended("", 1, 87, -1, "one or more records have been rejected")]
    answer = ProduceAnswer(
        [("orders", bytes(range(16)), rows), ("empty", bytes(16), [])],
        [(0, "no key in a compacted topic"), (1, None)],
        (2, 9),
        [(2, "host", 9092, "rack")],
    )
    assert produce.answer(version, memoryview(their_answer(version, answer))) == answer.expected(version)


@given(versions, produce_answers)
def test_any_answer_holds_what_the_broker_said(version: int, answer: ProduceAnswer) -> None:
    assert produce.answer(version, memoryview(their_answer(version, answer))) == answer.expected(version)


@given(versions, produce_answers, st.data())
def test_an_answer_that_ends_too_early_is_refused(version: int, answer: ProduceAnswer, data: st.DataObject) -> None:
    whole = their_answer(version, answer)
    kept = data.draw(st.integers(0, len(whole) - 1))
    try:
        found = produce.answer(version, memoryview(whole[:kept]))
    except BadFrame:
        return
    # What comes after the last partition is nothing that we look at.
    assert found == answer.expected(version)


@given(versions, st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(version: int, garbage: bytes) -> None:
    with contextlib.suppress(BadFrame):
        produce.answer(version, memoryview(garbage))


@given(versions, produce_answers, st.data())
def test_a_damaged_answer_is_refused_or_read(version: int, answer: ProduceAnswer, data: st.DataObject) -> None:
    damaged = bytearray(their_answer(version, answer))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadFrame):
        produce.answer(version, memoryview(damaged))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_billions_without_the_bytes_for_it_is_refused_at_once(version: int) -> None:
    count = b"\xff\xff\xff\xff\x07" if produce.is_flexible(version) else b"\x7f\xff\xff\xff"
    with pytest.raises(BadFrame):
        produce.answer(version, memoryview(count))
