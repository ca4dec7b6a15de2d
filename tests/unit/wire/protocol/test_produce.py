"""Produce requests and responses, compared byte for byte with kafka-python's, in every version."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.protocol.produce import Appended
from mirrormaker.wire.transport.connection import Connection
from tests.support.answers import ProduceAnswer, as_uuid, encode_produce_answer
from tests.support.batches import Record, write_batch
from tests.support.strategies import produce_answers, produce_topics

VERSIONS = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
versions = st.sampled_from(VERSIONS)

Topics = list[tuple[str, bytes, list[tuple[int, bytes]]]]


def our_request(version: int, topics: Topics, acks: int = -1, timeout_ms: int = 5000) -> bytes:
    return b"".join(map(bytes, produce.encode_request(version, topics, acks=acks, timeout_ms=timeout_ms)))


def kafka_python_request(version: int, topics: Topics, acks: int = -1, timeout_ms: int = 5000) -> bytes:
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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_kafka_python_would_send(version: int) -> None:
    batch = write_batch([Record(0, b"k", b"v" * 500)], producer_id=1, producer_epoch=0, base_sequence=0).data
    topics = [("orders", bytes(range(16)), [(0, batch), (200, batch * 40)]), ("zahlungen-äöü", bytes(16), [(1, batch)])]
    assert our_request(version, topics) == kafka_python_request(version, topics)


@pytest.mark.parametrize(("newest", "ids", "version"), [(13, [b"i" * 16], 13), (13, [bytes(16)], 12), (9, [b""], 9)])
def test_a_topic_without_an_id_is_written_by_its_name(newest: int, ids: list[bytes], version: int) -> None:
    connection = Connection("nowhere", 1, client_id="us")
    connection.versions = {produce.API_KEY: (0, newest)}
    assert produce.version_for(connection, ids) == version


@given(versions, produce_topics, st.sampled_from([-1, 1]), st.integers(0, (1 << 31) - 1))
def test_any_request_is_what_kafka_python_would_send(version: int, topics: Topics, acks: int, timeout_ms: int) -> None:
    assert our_request(version, topics, acks, timeout_ms) == kafka_python_request(version, topics, acks, timeout_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_leave_in_the_buffers_that_they_came_in(version: int) -> None:
    first, second = memoryview(bytearray(b"first")), memoryview(bytearray(b"second"))
    parts = produce.encode_request(version, [("t", bytes(16), [(0, first), (1, second)])], acks=-1, timeout_ms=1)
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
    assert produce.decode_response(version, memoryview(encode_produce_answer(version, answer))) == answer.expected(
        version
    )


@given(versions, produce_answers)
def test_any_answer_holds_what_the_broker_said(version: int, answer: ProduceAnswer) -> None:
    assert produce.decode_response(version, memoryview(encode_produce_answer(version, answer))) == answer.expected(
        version
    )


@given(versions, produce_answers, st.data())
def test_an_answer_that_ends_too_early_is_refused(version: int, answer: ProduceAnswer, data: st.DataObject) -> None:
    whole = encode_produce_answer(version, answer)
    kept = data.draw(st.integers(0, len(whole) - 1))
    try:
        results = produce.decode_response(version, memoryview(whole[:kept]))
    except BadFrame:
        return
    # The bytes behind the last partition are not decoded.
    assert results == answer.expected(version)


@given(versions, st.binary(max_size=300))
def test_garbage_is_refused_and_nothing_else_happens(version: int, garbage: bytes) -> None:
    with contextlib.suppress(BadFrame):
        produce.decode_response(version, memoryview(garbage))


@given(versions, produce_answers, st.data())
def test_a_damaged_answer_is_refused_or_read(version: int, answer: ProduceAnswer, data: st.DataObject) -> None:
    damaged = bytearray(encode_produce_answer(version, answer))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadFrame):
        produce.decode_response(version, memoryview(damaged))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_of_billions_without_the_bytes_for_it_is_refused_at_once(version: int) -> None:
    count = b"\xff\xff\xff\xff\x07" if produce.is_flexible(version) else b"\x7f\xff\xff\xff"
    with pytest.raises(BadFrame):
        produce.decode_response(version, memoryview(count))
