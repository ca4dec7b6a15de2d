"""Produce requests and responses, compared byte for byte with kafka-python's, in every version."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.protocol.codec import varint
from mirrormaker.wire.protocol.messages import longest_answer
from mirrormaker.wire.protocol.produce import Appended
from mirrormaker.wire.transport.connection import Connection
from tests.support.answers import ProduceAnswer, as_uuid, encode_produce_answer
from tests.support.batches import Record, write_batch
from tests.support.memory import peak
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


@pytest.mark.parametrize("version", VERSIONS)
def test_more_partitions_than_the_request_has_are_refused_before_they_take_memory(version: int) -> None:
    row = Appended("", 0, 0, 7, None)
    together = ProduceAnswer([("t", bytes(16), [row, row])], [], None, [])
    apart = ProduceAnswer([("t", bytes(16), [row])] * 2, [], None, [])
    empty = ProduceAnswer([("t", bytes(16), [])] * 2, [], None, [])
    for answer, rows in ((together, 2), (apart, 2), (empty, 0)):
        frame = memoryview(encode_produce_answer(version, answer))
        assert len(produce.decode_response(version, frame, 2)) == rows
        with pytest.raises(BadFrame, match="at most"):
            produce.decode_response(version, frame, 1)


@pytest.mark.parametrize("topic", [b"\2t\1\0", b"\2t" + varint(2) + bytes(30) + b"\1\0\0\0"], ids=["empty", "of one"])
def test_an_answer_of_countless_topics_is_refused(topic: bytes) -> None:
    many = varint(300_001) + topic * 300_000 + bytes(5)

    def run() -> None:
        for most in (1, 1000):
            with pytest.raises(BadFrame, match="at most"):
                produce.decode_response(12, memoryview(many), most)

    assert peak(run) < 1 << 20


def refusing(records: int) -> bytes:
    """Return an answer in which the broker refuses so many records of one partition."""
    topic = "orders-of-a-shop-that-has-a-long-name"
    text = f"Compacted topic cannot accept message without key in topic partition {topic}-17.".encode()
    row = struct.pack(">i", 7) + varint(len(text) + 1) + text + b"\0"
    head = varint(2) + varint(len(topic) + 1) + topic.encode() + varint(2) + struct.pack(">ihqqq", 17, 87, -1, -1, -1)
    return head + varint(records + 1) + row * records + bytes(8)


def test_a_broker_can_refuse_a_hundred_thousand_records_of_a_request() -> None:
    frame = refusing(90_000)
    assert len(frame) <= longest_answer(produce.API_KEY)
    found: list[Appended] = []

    def run() -> None:
        found[:] = produce.decode_response(12, memoryview(frame), 1)

    assert peak(run) < 1 << 20
    assert [(row.error, (row.message or "")[:9]) for row in found] == [(87, "Compacted")]


def test_countless_refused_records_are_refused() -> None:
    """Each takes a third of a microsecond and more."""
    with pytest.raises(BadFrame, match="more than a broker can have"):
        produce.decode_response(12, memoryview(refusing(800_000)), 1)


@pytest.mark.parametrize("raw", [b"\0", b"\2\2t\0", b"\2\2t\2" + bytes(30) + b"\0\0\0\0"])
def test_a_list_that_is_null_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFrame):
        produce.decode_response(12, memoryview(raw + bytes(3)))


def test_rows_take_little_more_memory_than_a_few_times_their_bytes() -> None:
    rows = [Appended("", n, 0, 1 << 40, None) for n in range(50_000)]
    frame = encode_produce_answer(12, ProduceAnswer([("t", bytes(16), rows)], [], None, []))
    assert peak(lambda: produce.decode_response(12, memoryview(frame), len(rows))) < 6 * len(frame)
