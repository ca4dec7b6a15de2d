"""kafka-python's decoder behind our adapter: damaged bytes are BadFrame and nothing else."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import OffsetCommitResponse
from kafka.protocol.metadata import MetadataResponse

import mirrormaker
from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import messages
from mirrormaker.wire.protocol.messages import (
    MOST_WORK_OF_GROUP,
    ApiMessage,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    MetadataRequest,
    decode_assignment,
    decode_response,
    decode_subscription,
    longest_answer,
    shares_of_members,
)

VERSIONS = range(MetadataRequest.max_version + 1)
TOPICS, PARTITIONS = ("orders", "größe"), (0, 1)

broker, topic = MetadataResponse.MetadataResponseBroker, MetadataResponse.MetadataResponseTopic
partition = topic.MetadataResponsePartition
ANSWER = MetadataResponse(
    throttle_time_ms=0,
    cluster_id="a-cluster",
    controller_id=1,
    brokers=[broker(node_id=n, host=f"host{n}", port=9092, rack=None) for n in (1, 2)],
    topics=[
        topic(
            error_code=0,
            name=name,
            topic_id=uuid.UUID(int=7),
            is_internal=False,
            partitions=[
                partition(
                    error_code=0,
                    partition_index=n,
                    leader_id=1,
                    leader_epoch=3,
                    replica_nodes=[1, 2],
                    isr_nodes=[1],
                    offline_replicas=[],
                )
                for n in PARTITIONS
            ],
        )
        for name in TOPICS
    ],
)
ENCODED = {version: bytes(ANSWER.encode(version=version)) for version in VERSIONS}
entry = ConsumerProtocolSubscription.TopicPartition
SUBSCRIPTION = ConsumerProtocolSubscription(
    version=1, topics=TOPICS, user_data=b"ours", owned_partitions=[entry(topic=TOPICS[0], partitions=PARTITIONS)]
).encode()
ASSIGNMENT = ConsumerProtocolAssignment(
    version=1,
    assigned_partitions=[ConsumerProtocolAssignment.TopicPartition(topic=TOPICS[0], partitions=PARTITIONS)],
    user_data=b"",
).encode()


def damage(data: st.DataObject, whole: bytes) -> bytes:
    """Change some bytes anywhere, or cut off the end."""
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    return bytes(damaged)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_decoded_in_every_version(version: int) -> None:
    answer = decode_response(MetadataRequest, memoryview(ENCODED[version]), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "host1", 9092), (2, "host2", 9092)]
    assert {t.name: [p.partition_index for p in t.partitions] for t in answer.topics} == {t: [0, 1] for t in TOPICS}


@given(st.data(), st.sampled_from(VERSIONS))
def test_a_damaged_answer_is_decoded_or_a_bad_frame(data: st.DataObject, version: int) -> None:
    try:
        decode_response(MetadataRequest, memoryview(damage(data, ENCODED[version])), version)
    except BadFrame as error:
        assert str(error).startswith(f"the answer to MetadataRequest (version {version}) cannot be decoded: ")


REQUESTS = [
    value for name, value in vars(messages).items() if name.endswith("Request") and issubclass(value, ApiMessage)
]


@given(st.data(), st.binary(max_size=60))
@pytest.mark.parametrize("request_type", REQUESTS, ids=lambda kind: str(kind.name))
def test_any_bytes_are_an_answer_or_a_bad_frame(request_type: Any, data: st.DataObject, noise: bytes) -> None:
    version = data.draw(st.integers(0, request_type.max_version))
    try:
        decode_response(request_type, noise, version)
    except BadFrame as error:
        assert request_type.name in str(error)


def test_a_cut_answer_is_a_bad_frame() -> None:
    for version in VERSIONS:
        with pytest.raises(BadFrame):
            decode_response(MetadataRequest, ENCODED[version][:20], version)


@given(st.data())
def test_damaged_bytes_of_a_group_member_are_decoded_or_a_bad_frame(data: st.DataObject) -> None:
    assert decode_subscription(SUBSCRIPTION).topics == list(TOPICS)
    assert decode_assignment(ASSIGNMENT).assigned_partitions[0].partitions == list(PARTITIONS)
    for decode, whole in ((decode_subscription, SUBSCRIPTION), (decode_assignment, ASSIGNMENT)):
        try:
            decode(damage(data, whole))
        except BadFrame as error:
            assert str(error).startswith("a group member's ")


def test_a_member_may_cost_as_much_work_as_it_is_given() -> None:
    topics = [f"topic-{number}" for number in range(20_000)]
    given = ConsumerProtocolSubscription(version=1, topics=topics, user_data=b"", owned_partitions=[]).encode()
    assert len(decode_subscription(given, 40_100).topics) == len(topics)
    with pytest.raises(BadFrame, match="more than a broker can have"):
        decode_subscription(given, 39_900)
    rows = [entry(topic="orders", partitions=list(range(20_000)))]
    given = ConsumerProtocolAssignment(version=1, assigned_partitions=rows, user_data=b"").encode()
    assert len(decode_assignment(given, 40_100).assigned_partitions[0].partitions) == 20_000
    with pytest.raises(BadFrame, match="more than a broker can have"):
        decode_assignment(given, 39_900)


@given(st.lists(st.integers(0, MOST_WORK_OF_GROUP), max_size=50))
def test_members_share_the_work_that_a_group_may_be(sizes: list[int]) -> None:
    shares = shares_of_members(sizes)
    assert sum(map(min, shares, sizes)) <= MOST_WORK_OF_GROUP
    if sum(sizes) <= MOST_WORK_OF_GROUP:
        assert all(share >= size for share, size in zip(shares, sizes, strict=True)), "none is refused"
    # Nobody gets less than an equal part, however much others want.
    assert all(share >= MOST_WORK_OF_GROUP // len(sizes) for share in shares)


@given(
    st.lists(st.text(max_size=200), max_size=20),
    st.lists(st.integers(0, 1 << 20), max_size=50),
    st.binary(max_size=300),
)
def test_a_byte_of_a_subscription_is_at_most_one_unit_of_work(
    topics: list[str], numbers: list[int], data: bytes
) -> None:
    owned = [ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers) for topic in topics]
    given = bytes(
        ConsumerProtocolSubscription(version=1, topics=topics, user_data=data, owned_partitions=owned).encode()
    )
    assert decode_subscription(given, len(given)).topics == topics


LONG_NAME = "x" * 249


def test_the_largest_honest_answers_are_not_too_long() -> None:
    """A commit has a thousand partitions at most: they can be those of a thousand topics."""
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    part = topic.OffsetCommitResponsePartition
    rows = [topic(name=LONG_NAME, partitions=[part(partition_index=0, error_code=0)])] * 1000
    answer = OffsetCommitResponse(throttle_time_ms=0, topics=rows)
    for version in range(answer.max_version + 1):
        assert len(bytes(answer.encode(version=version))) < longest_answer(OffsetCommitResponse.API_KEY)


@pytest.mark.parametrize("key", [0, 8, 22, 69, 90, 91])
def test_an_answer_about_few_things_may_not_be_long(key: int) -> None:
    """Its decoder costs a second for each 10 MB or so."""
    assert longest_answer(key) <= 64 << 20


def test_no_other_module_imports_kafka_pythons_messages() -> None:
    root = Path(mirrormaker.__file__).parent
    users = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if "kafka.protocol" in path.read_text()}
    assert users == {"wire/protocol/messages.py"}
