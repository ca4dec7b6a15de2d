"""Scripted refusals: each answer decodes in each version that the mirror uses, and carries the code for its topic alone."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kafka.protocol import admin, consumer, metadata, producer

from mirrormaker.kafka_errors import CODES
from mirrormaker.wire.protocol import fetch, group_messages, messages, produce
from tests.support.answers import NONE_ABORTED, FetchAnswer, ProduceAnswer, encode_fetch_answer, encode_produce_answer
from tests.support.refusals import REQUESTS, WHOLE, Exchange, Header, Refusal, Script

CODE = 29
ALL_CODES = [code for code in (*CODES, 9999) if code]
CALM, HIT = "calm", "hit"
IDS = {CALM: uuid.UUID(int=1), HIT: uuid.UUID(int=2)}


def request(api_key: int, version: int, body: bytes, flexible: bool) -> bytes:
    """Return a request as it goes over the wire, without its length."""
    return struct.pack(">hhih", api_key, version, 77, 2) + b"us" + (b"\0" if flexible else b"") + body


def script(name: str, *, topic: str = HIT, times: int | None = None) -> Script:
    """Return a script with one refusal, which knows the names of the topic ids."""
    found = Script()
    found.names = {value.bytes: key for key, value in IDS.items()}
    found.refusals = (Refusal(name, {topic: CODE}, times),)
    return found


def versions(message: Any, oldest: int = 0, newest: int = 99) -> range:
    """Return the versions of a message that kafka-python knows."""
    return range(max(oldest, message.valid_versions[0]), min(newest, message.max_version) + 1)


def answered(kind: Any, version: int, asked: Any, answer: Any, refusals: Script) -> tuple[Exchange, Any]:
    """Send a request through the script, and return the answer that the client decodes."""
    flexible = kind.flexible_version_q(version)
    exchange = Exchange(refusals, request(kind.API_KEY, version, asked.encode(version=version), flexible))
    size = 5 if flexible else 4
    frame = None
    if exchange.forwarded is not None:
        frame = struct.pack(">i", 77) + bytes(size - 4) + answer.encode(version=version)
    given = exchange.answer(frame)
    assert given[:4] == struct.pack(">i", 77)
    return exchange, messages.decode_response(kind, given[size:], version)


def rows(kind: Any, inner: Any, topic_field: str, **fields: Any) -> list[Any]:
    """Return one row with one partition for each topic."""
    return [kind(**{topic_field: name, "partitions": [inner(**fields)]}) for name in (CALM, HIT)]


READS: list[tuple[Any, Any, Any]] = []
_list = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
READS.append(
    (
        messages.ListOffsetsRequest,
        messages.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]),
        consumer.ListOffsetsResponse(
            throttle_time_ms=0,
            topics=rows(
                _list, _list.ListOffsetsPartitionResponse, "name", partition_index=0, error_code=0, timestamp=5, offset=9,
                leader_epoch=1,
            ),
        ),
    )
)  # fmt: skip
_epoch = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
READS.append(
    (
        messages.OffsetForLeaderEpochRequest,
        messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=[]),
        consumer.OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=rows(
                _epoch, _epoch.EpochEndOffset, "topic", error_code=0, partition=0, leader_epoch=1, end_offset=9
            ),
        ),
    )
)
_producers = admin.DescribeProducersResponse.TopicResponse
READS.append(
    (
        messages.DescribeProducersRequest,
        messages.DescribeProducersRequest(topics=[]),
        admin.DescribeProducersResponse(
            throttle_time_ms=0,
            topics=rows(
                _producers, _producers.PartitionResponse, "name", partition_index=0, error_code=0, error_message=None,
                active_producers=[],
            ),
        ),
    )
)  # fmt: skip


@pytest.mark.parametrize(("kind", "asked", "answer"), READS, ids=lambda part: getattr(part, "name", ""))
def test_the_answer_to_a_reading_request_carries_the_code_for_its_topic_alone(
    kind: Any, asked: Any, answer: Any
) -> None:
    for version in versions(kind, 1):
        refusals = script(kind.name.removesuffix("Request"))
        _, given = answered(kind, version, asked, answer, refusals)
        calm, hit = given.topics
        assert calm.partitions[0].error_code == 0
        assert hit.partitions[0].error_code == CODE
        assert refusals.refusals[0].hits == {HIT: 1}


def test_metadata_teach_the_topic_ids_and_leave_out_the_partitions_of_a_refused_topic() -> None:
    topic = metadata.MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=1,
        leader_epoch=1,
        replica_nodes=[1],
        isr_nodes=[1],
        offline_replicas=[],
    )
    topics = [
        topic(error_code=0, name=name, topic_id=IDS[name], is_internal=False, partitions=[partition],
              authorized_operations=set())
        for name in (CALM, HIT)
    ]  # fmt: skip
    answer = metadata.MetadataResponse(
        throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=topics, authorized_operations=set(),
        error_code=0,
    )  # fmt: skip
    for version in range(1, 13):
        refusals = script("Metadata")
        refusals.names = {}
        _, given = answered(messages.MetadataRequest, version, messages.MetadataRequest(topics=[]), answer, refusals)
        assert [(t.error_code, len(t.partitions)) for t in given.topics] == [(0, 1), (CODE, 0)]
        assert refusals.names == ({value.bytes: key for key, value in IDS.items()} if version >= 10 else {})


def test_a_refused_commit_does_not_reach_the_broker_and_the_others_do() -> None:
    kind = messages.OffsetCommitRequest
    topic = kind.OffsetCommitRequestTopic
    row = topic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=1, committed_metadata="", commit_timestamp=1
    )
    asked = kind(
        group_id="g", generation_id_or_member_epoch=1, member_id="m", group_instance_id=None, retention_time_ms=1,
        topics=[topic(name=name, partitions=[row]) for name in (CALM, HIT)],
    )  # fmt: skip
    found = consumer.OffsetCommitResponse.OffsetCommitResponseTopic
    inner = found.OffsetCommitResponsePartition(partition_index=0, error_code=0)
    answer = consumer.OffsetCommitResponse(throttle_time_ms=0, topics=[found(name=CALM, partitions=[inner])])
    for version in versions(kind, newest=8):
        exchange, given = answered(kind, version, asked, answer, script("OffsetCommit"))
        assert {t.name: t.partitions[0].error_code for t in given.topics} == {CALM: 0, HIT: CODE}
        assert exchange.forwarded is not None
        forwarded = kind.decode(exchange.forwarded[exchange.header.size :], version=version)
        assert [t.name for t in forwarded.topics] == [CALM]


@pytest.mark.parametrize("name", ["CreateTopics", "CreatePartitions"])
def test_a_request_about_a_refused_topic_alone_does_not_reach_the_broker(name: str) -> None:
    kind = getattr(messages, f"{name}Request")
    if name == "CreateTopics":
        topic = kind.CreatableTopic(name=HIT, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        asked = kind(topics=[topic], timeout_ms=1, validate_only=False)
    else:
        topic = kind.CreatePartitionsTopic(name=HIT, count=2, assignments=None)
        asked = kind(topics=[topic], timeout_ms=1, validate_only=False)
    for version in versions(kind):
        exchange, given = answered(kind, version, asked, None, script(name))
        assert exchange.forwarded is None
        (row,) = given.topics if name == "CreateTopics" else given.results
        assert (row.name, row.error_code) == (HIT, CODE)


WHOLE_REQUESTS = {
    "FindCoordinator": (messages.FindCoordinatorRequest(key="g", key_type=0), range(4)),
    "Heartbeat": (
        messages.HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None), range(5)
    ),
    "SyncGroup": (
        messages.SyncGroupRequest(
            group_id="g", generation_id=1, member_id="m", group_instance_id=None, protocol_type="consumer",
            protocol_name="range", assignments=[],
        ),
        range(6),
    ),
    "LeaveGroup": (messages.LeaveGroupRequest(group_id="g", member_id="m", members=[]), range(6)),
    "InitProducerId": (
        messages.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
        ),
        range(6),
    ),
    "OffsetFetch": (messages.OffsetFetchRequest(group_id="g", topics=[], require_stable=False), range(2, 8)),
    "ListGroups": (messages.ListGroupsRequest(states_filter=[], types_filter=[]), range(6)),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE_REQUESTS)
def test_a_whole_answer_is_refused_without_the_broker(name: str) -> None:
    asked, known = WHOLE_REQUESTS[name]
    for version in known:
        exchange, given = answered(type(asked), version, asked, None, script(name, topic=WHOLE))
        assert exchange.forwarded is None
        assert given.error_code == CODE


def test_a_whole_answer_about_several_groups_carries_each_code_for_each_of_them() -> None:
    asked = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    for version in range(4, 7):
        _, given = answered(type(asked), version, asked, None, script("FindCoordinator", topic=WHOLE))
        assert [(row.key, row.error_code) for row in given.coordinators] == [("g", CODE), ("h", CODE)]
    for code in ALL_CODES:
        for version in range(8, 10):
            body = group_messages.encode_offset_fetch(version, ["g", "h"], stable=True)
            data = refused_by_hand("OffsetFetch", version, body, code)
            found = group_messages.decode_offset_fetch(data, ["g", "h"])
            assert found == dict.fromkeys("gh", group_messages.GroupOffsets({}, code))


def test_whole_answers_about_share_groups_carry_each_code() -> None:
    rows = [group_messages.CommitRow("t", 0, 5), group_messages.CommitRow("t", 1, 6)]
    for code in ALL_CODES:
        body = group_messages.encode_describe_share_offsets(["g", "h"])
        data = refused_by_hand("DescribeShareGroupOffsets", 0, body, code)
        found = group_messages.decode_describe_share_offsets(data, ["g", "h"])
        assert found == dict.fromkeys("gh", group_messages.GroupOffsets({}, code))
        data = refused_by_hand("AlterShareGroupOffsets", 0, group_messages.encode_alter_share_offsets("g", rows), code)
        assert group_messages.decode_alter_share_offsets(data, rows) == {("t", 0): code, ("t", 1): code}


def refused_by_hand(name: str, version: int, body: bytes, code: int) -> memoryview:
    """Send a request that we frame by hand, and return the body of the refusal."""
    refusals = script(name, topic=WHOLE)
    refusals.refusals[0].codes[WHOLE] = code
    exchange = Exchange(refusals, request(REQUESTS[name], version, body, flexible=True))
    assert exchange.forwarded is None
    return memoryview(exchange.answer(None))[5:]


def test_the_offsets_of_several_groups_carry_each_code_for_its_topic_alone() -> None:
    body = group_messages.encode_offset_fetch(8, ["g"], stable=True)
    topics = consumer.OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics
    inner = topics.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=5, committed_leader_epoch=1, metadata="", error_code=0
    )
    group = consumer.OffsetFetchResponse.OffsetFetchResponseGroup
    given_rows = [topics(name=name, partitions=[inner]) for name in (CALM, HIT)]
    answer = consumer.OffsetFetchResponse(
        throttle_time_ms=0, groups=[group(group_id="g", topics=given_rows, error_code=0)]
    )
    for code in ALL_CODES:
        for version in range(8, 10):
            refusals = script("OffsetFetch")
            refusals.refusals[0].codes[HIT] = code
            exchange = Exchange(refusals, request(REQUESTS["OffsetFetch"], version, body, flexible=True))
            data = exchange.answer(struct.pack(">i", 77) + b"\0" + answer.encode(version=version))[5:]
            found = group_messages.decode_offset_fetch(memoryview(data), ["g"])["g"].topics
            assert {name: row.rows()[0].error for name, row in found.items()} == {CALM: 0, HIT: code}


@pytest.mark.parametrize("code", [CODE, 7])
def test_a_refused_batch_does_not_reach_the_broker_unless_the_code_says_that_it_may_have_been_appended(
    code: int,
) -> None:
    for version in range(3, 14):
        flexible = produce.is_flexible(version)
        topics = [(name, IDS[name].bytes, [(0, memoryview(name.encode() * 9))]) for name in (CALM, HIT)]
        parts = produce.encode_request(version, topics, acks=-1, timeout_ms=5)
        refusals = script("Produce")
        refusals.refusals[0].codes[HIT] = code
        exchange = Exchange(refusals, request(0, version, b"".join(map(bytes, parts)), flexible))
        kept = topics if code == 7 else topics[:1]
        assert exchange.forwarded is not None
        expected = produce.encode_request(version, kept, acks=-1, timeout_ms=5)
        assert exchange.forwarded[exchange.header.size :] == b"".join(map(bytes, expected))
        done = [(name, key, [produce.Appended(name, 0, 0, 40, None)]) for name, key, _ in kept]
        body = encode_produce_answer(version, ProduceAnswer(done, [], None, []))
        size = 5 if flexible else 4
        given = exchange.answer(struct.pack(">i", 77) + bytes(size - 4) + body)
        results = produce.decode_response(version, memoryview(given)[size:])
        names = [name.encode() if version < 13 else IDS[name].bytes for name in (CALM, HIT)]
        found = {t.encode() if isinstance(t, str) else t: (error, base) for t, _, error, base, _ in results}
        assert found == {names[0]: (0, 40), names[1]: (code, -1)}


def test_a_refused_fetch_brings_no_records_of_its_topic_and_does_not_wait() -> None:
    for version in range(4, 19):
        flexible = fetch.is_flexible(version)
        wanted = [(name, IDS[name].bytes, [fetch.PartitionToFetch(0, 5)]) for name in (CALM, HIT)]
        body = fetch.encode_request(version, wanted, max_wait_ms=500, min_bytes=1, max_bytes=9, read_committed=False)
        exchange = Exchange(script("Fetch"), request(1, version, body, flexible))
        assert exchange.forwarded is not None
        forwarded = consumer.FetchRequest.decode(exchange.forwarded[exchange.header.size :], version=version)
        assert forwarded.max_wait_ms == 0
        assert len(forwarded.topics) == 2
        part = fetch.FetchedPartition("", 0, 0, 9, 9, 0, NONE_ABORTED, None, memoryview(b"records"))
        topics = [(name, key, [part]) for name, key, _ in wanted]
        size = 5 if flexible else 4
        encoded = encode_fetch_answer(version, FetchAnswer(0, topics, None, []))
        given = exchange.answer(struct.pack(">i", 77) + bytes(size - 4) + encoded)
        _, parts = fetch.decode_response(version, memoryview(given)[size:])
        assert [(p.error, bytes(p.records)) for p in parts] == [(0, b"records"), (CODE, b"")]


def test_a_refusal_ends_after_so_many_answers() -> None:
    refusals = script("Heartbeat", topic=WHOLE, times=2)
    assert [refusals.code("Heartbeat", WHOLE) for _ in range(3)] == [CODE, CODE, 0]


def test_requests_that_nobody_refuses_pass_unchanged() -> None:
    asked = producer.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    plain = request(REQUESTS["InitProducerId"], 1, asked.encode(version=1), False)
    exchange = Exchange(script("Fetch"), plain)
    assert exchange.forwarded == plain
    assert exchange.answer(b"\0\0\0\x4danswer") == b"\0\0\0\x4danswer"
    assert Header.of(plain).size == 12
