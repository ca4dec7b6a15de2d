"""The decoder of answers: it finds what kafka-python finds in well-formed bytes, and refuses everything else cheaply."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse, SyncGroupResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import codec, messages, schema_decoder
from mirrormaker.wire.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.support.memory import peak

REQUESTS = [getattr(messages, name) for name in messages.__all__ if name.endswith("Request")]
RESPONSES = [messages._RESPONSES[request.API_KEY] for request in REQUESTS]


def versions(response: Any) -> range:
    """Return the versions that the program uses: ApiVersions is asked in version 0 alone."""
    return range(1 if response is ApiVersionsResponse else response.max_version + 1)


def made_up(field: Any, version: int, dice: random.Random) -> Any:
    """Return a random value that the schema allows."""
    if field.nullable_for_version_q(version) and dice.random() < 0.2:
        return None
    if field.is_struct_array():
        return [instance(field.data_class, field.array_of, version, dice) for _ in range(dice.randrange(4))]
    if field.is_array():
        return [number_or_text(field.array_of, dice) for _ in range(dice.randrange(4))]
    if field.is_struct():
        return instance(field.data_class, field, version, dice)
    return number_or_text(field, dice)


def number_or_text(field: Any, dice: random.Random) -> Any:
    bits = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "int64": 63}
    if field.type_str in bits:
        number = dice.getrandbits(bits[field.type_str])
        return number if field.type_str == "uint16" or dice.random() < 0.5 else -number
    return {
        "bool": dice.random() < 0.5,
        "float64": float(dice.randrange(1000)),
        "string": dice.choice(["", "a", "größe", "x" * 200]),
        "bytes": dice.randbytes(dice.choice([0, 1, 200])),
        "records": b"",
        "uuid": dice.choice([None, uuid.UUID(int=dice.getrandbits(128))]),
        "bitfield": dice.choice([None, {1, 5, 31}, set()]),
    }[field.type_str]


def instance(kind: Any, structure: Any, version: int, dice: random.Random) -> Any:
    fields = structure.untagged_fields(version)
    return kind(version=version, **{field.name: made_up(field, version, dice) for field in fields})


@pytest.mark.parametrize("response", RESPONSES, ids=lambda response: str(response.name))
def test_well_formed_answers_are_decoded_as_kafka_python_decodes_them(response: Any) -> None:
    dice = random.Random(response.name)
    for version in versions(response):
        for _ in range(20):
            data = bytes(instance(response, response._struct, version, dice).encode(version=version))
            ours = schema_decoder.decode(response, memoryview(data), version)
            theirs = response.decode(data, version=version)
            assert ours.to_dict(meta="all", json=False) == theirs.to_dict(meta="all", json=False)


@pytest.mark.parametrize("message", [ConsumerProtocolSubscription, ConsumerProtocolAssignment])
def test_the_consumer_protocol_is_decoded_as_kafka_python_decodes_it(message: Any) -> None:
    dice = random.Random(1)
    for version in range(message.max_version + 1):
        data = bytes(instance(message, message._struct, version, dice).encode(version=version))
        assert schema_decoder.decode_versioned(message, data) == message.decode(data)


def test_a_version_from_the_future_is_read_as_the_newest_known_one() -> None:
    newest = ConsumerProtocolSubscription.max_version
    known = ConsumerProtocolSubscription(version=newest, topics=["a"], user_data=b"", owned_partitions=[]).encode()
    future = (newest + 5).to_bytes(2, "big") + known[2:] + b"more"
    assert schema_decoder.decode_versioned(ConsumerProtocolSubscription, future).topics == ["a"]


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(BadFrame):
        schema_decoder.decode_versioned(ConsumerProtocolAssignment, b"\xff\xff" + bytes(20))


# -- damaged bytes


def test_a_varint_is_read_up_to_its_fifth_byte_and_no_further() -> None:
    with pytest.raises(BadFrame, match="more than 5 bytes"):
        schema_decoder.decode(MetadataResponse, memoryview(bytes(4) + b"\xff" * 160_000), 12)


def test_tagged_fields_do_not_copy_the_rest_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many structures has an unknown tagged field: the work grows with the number of structures alone."""
    copied = 0
    whole = codec.Reader.slice

    def counted(self: codec.Reader, size: int) -> memoryview:
        nonlocal copied
        copied += size
        return whole(self, size)

    monkeypatch.setattr(codec.Reader, "slice", counted)
    structures, tagged = 5000, bytes((0, 18, 0, 0, 0, 4, 1, 99, 3, 1, 2, 3))
    # Error code, the array of requests with a tagged field each, throttle time, no tagged fields.
    data = b"\0\0" + codec.varint(structures + 1) + tagged * structures + bytes(4) + b"\0"
    answer = schema_decoder.decode(ApiVersionsResponse, memoryview(data), 3)
    assert len(answer.api_keys) == structures
    assert copied == 3 * structures


@pytest.mark.parametrize("count", [2**31 - 1, 100, -2, -(2**31)])
def test_an_array_with_more_elements_than_bytes_is_refused(count: int) -> None:
    with pytest.raises(BadFrame, match="an array of"):
        schema_decoder.decode(MetadataResponse, memoryview(count.to_bytes(4, "big", signed=True) + bytes(20)), 0)


def test_a_text_that_ends_beyond_the_data_is_refused() -> None:
    data = b"\0\0" + b"\0\0\0\1" + b"\0\x05PLA"
    with pytest.raises(BadFrame):
        schema_decoder.decode(messages._RESPONSES[17], memoryview(data), 0)


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    data = b"\0\0" + b"\0\0\0\1" + b"\0\x02\xff\xfe"
    with pytest.raises(BadFrame, match="UTF-8"):
        schema_decoder.decode(messages._RESPONSES[17], memoryview(data), 0)


def test_null_is_refused_where_the_schema_does_not_allow_it() -> None:
    answer = MetadataResponse(brokers=None, topics=[], cluster_id=None, controller_id=1, throttle_time_ms=0)
    with pytest.raises(BadFrame, match="brokers is null"):
        schema_decoder.decode(MetadataResponse, memoryview(bytes(answer.encode(version=12))), 12)
    row = MetadataResponse.MetadataResponseBroker(node_id=1, host=None, port=9092, rack=None)
    answer = MetadataResponse(brokers=[row], topics=[], cluster_id=None, controller_id=1, throttle_time_ms=0)
    with pytest.raises(BadFrame, match="host is null"):
        schema_decoder.decode(MetadataResponse, memoryview(bytes(answer.encode(version=5))), 5)


def test_null_is_read_where_the_schema_allows_it() -> None:
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    row = topic.OffsetFetchResponsePartition(partition_index=0, committed_offset=-1, metadata=None, error_code=0)
    data = OffsetFetchResponse(topics=[topic(name="a", partitions=[row])]).encode(version=1)
    answer = schema_decoder.decode(OffsetFetchResponse, memoryview(bytes(data)), 1)
    assert answer.topics[0].partitions[0].metadata is None


@pytest.mark.parametrize("response", RESPONSES, ids=lambda response: str(response.name))
def test_damaged_answers_are_decoded_or_bad_frames(response: Any) -> None:
    dice = random.Random(response.name)
    for version in versions(response):
        whole = bytes(instance(response, response._struct, version, dice).encode(version=version))
        for _ in range(50):
            damaged = bytearray(whole)
            for _ in range(dice.randrange(1, 4)):
                damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
            try:
                schema_decoder.decode(response, memoryview(damaged)[: dice.randrange(1, 2 * len(whole))], version)
            except BadFrame:
                continue


def test_bytes_after_the_end_are_ignored() -> None:
    data = bytes(SyncGroupResponse(error_code=0, assignment=b"x").encode(version=0)) + b"more"
    assert schema_decoder.decode(SyncGroupResponse, memoryview(data), 0).assignment == b"x"


def test_an_answer_of_countless_elements_is_refused_before_it_is_decoded() -> None:
    """Two million partitions in 40 MB took 7 s and a gigabyte."""
    partition = OffsetFetchResponse.OffsetFetchResponseTopic.OffsetFetchResponsePartition
    topic = OffsetFetchResponse.OffsetFetchResponseTopic

    def answer(topics: int, partitions: int) -> bytes:
        rows = [partition(partition_index=n, committed_offset=1, metadata="", error_code=0) for n in range(partitions)]
        listed = [topic(name=f"t{n}", partitions=rows) for n in range(topics)]
        return bytes(OffsetFetchResponse(version=7, topics=listed, error_code=0).encode(version=7))

    # A structure counts 2, a text or a list 2, adjacent numbers 1.
    work = 10 * (2 + 2 + 2) + 990 * (2 + 1 + 2 + 1)
    taken = schema_decoder.decode(OffsetFetchResponse, memoryview(answer(10, 99)), 7, work)
    assert len(taken.topics) == 10
    with pytest.raises(BadFrame, match="more than a broker can have"):
        schema_decoder.decode(OffsetFetchResponse, memoryview(answer(10, 99)), 7, work - 1)


def test_elements_of_many_fields_may_be_fewer() -> None:
    """131,072 groups took two seconds, and as many partitions half a second."""
    group = DescribeGroupsResponse.DescribedGroup(
        error_code=0, group_id="g", group_state="", protocol_type="", protocol_data="", members=[]
    )
    data = bytes(DescribeGroupsResponse(version=5, groups=[group] * 100).encode(version=5))
    assert len(schema_decoder.decode(DescribeGroupsResponse, memoryview(data), 5, 1500).groups) == 100
    with pytest.raises(BadFrame, match="more than a broker can have"):
        schema_decoder.decode(DescribeGroupsResponse, memoryview(data), 5, 1499)


def test_countless_numbers_are_refused() -> None:
    """Sixteen million numbers in an answer of 64 MB took 600 MB."""
    assert (
        len(schema_decoder.decode_versioned(ConsumerProtocolAssignment, assignment(200_000)).assigned_partitions) == 1
    )
    with pytest.raises(BadFrame, match="more than a broker can have"):
        schema_decoder.decode_versioned(ConsumerProtocolAssignment, assignment(2_000_000))


def assignment(partitions: int) -> bytes:
    topic = ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=list(range(partitions)))
    made = ConsumerProtocolAssignment(version=1, assigned_partitions=[topic], user_data=b"")
    return bytes(made.encode())


def test_countless_tagged_fields_are_refused() -> None:
    reader = codec.Reader(memoryview(codec.varint(1001) + b"\x63\x00" * 1001), True, most_elements=1000)
    with pytest.raises(BadFrame, match="more than a broker can have"):
        reader.skip_tags()


def test_texts_and_bytes_that_take_much_memory_are_refused() -> None:
    """54 MB of groups' names, each with one emoji, took 208 MB; one name of 54 MB took 270 MB."""
    name = ("\U0001f600" + "x" * 30_000).encode()
    group = codec.varint(len(name) + 1) + name + b"\1\0"
    many = bytes(6) + codec.varint(1701) + group * 1700 + b"\0"

    def run() -> None:
        with pytest.raises(BadFrame, match="more than a broker can have"):
            schema_decoder.decode(messages._RESPONSES[16], memoryview(many), 3)

    assert peak(run) < 64 << 20
    with pytest.raises(BadFrame, match="a text has"):
        schema_decoder.decode(messages._RESPONSES[16], memoryview(bytes(6) + b"\2" + codec.varint(1 << 20) + name), 3)
    whole = bytes(SyncGroupResponse(error_code=0, assignment=b"x" * 100_000).encode(version=0))
    assert len(schema_decoder.decode(SyncGroupResponse, memoryview(whole), 0, 1600).assignment) == 100_000
    with pytest.raises(BadFrame, match="more than a broker can have"):
        schema_decoder.decode(SyncGroupResponse, memoryview(whole), 0, 1500)


def test_the_largest_assignment_fits_into_memory() -> None:
    whole = assignment(390_000)
    assert peak(lambda: schema_decoder.decode_versioned(ConsumerProtocolAssignment, whole)) < 32 << 20
    with pytest.raises(BadFrame, match="more than a broker can have"):
        schema_decoder.decode_versioned(ConsumerProtocolAssignment, assignment(400_000))
