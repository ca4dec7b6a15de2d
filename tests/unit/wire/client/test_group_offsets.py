"""Brokers that refuse to list groups or to tell and take their offsets: each code stays with the groups that it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import ListGroupsResponse
from kafka.protocol.consumer import OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse

from mirrormaker.errors import OUTAGE, UnsupportedRequest
from mirrormaker.kafka_errors import CODES
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import (
    alter_share_offsets,
    commit_offsets,
    fetch_offsets,
    fetch_share_offsets,
    find_coordinators,
    list_groups,
)
from mirrormaker.wire.protocol.group_messages import (
    ALTER_SHARE_OFFSETS,
    DESCRIBE_SHARE_OFFSETS,
    CommitRow,
    GroupOffsets,
)
from mirrormaker.wire.protocol.messages import FindCoordinatorRequest, ListGroupsRequest
from tests.support.scripted_broker import API_VERSIONS, FETCH, METADATA, PRODUCE, ScriptedBroker, metadata
from tests.support.whole_refusals import WHOLE_ANSWERS

ALL_CODES = [code for code in (*CODES, 9999) if code]
LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH = 2, 8, 9
FOR_SHARE_GROUPS = {DESCRIBE_SHARE_OFFSETS: 0, ALTER_SHARE_OFFSETS: 0}  # API keys and their newest versions


def _codes(broker: ScriptedBroker, key: int, answer: object) -> Iterator[int]:
    """Yield each code, after the broker was told to answer with it."""
    for code in ALL_CODES:
        broker.answers[key] = answer(code)  # type: ignore[operator]
        yield code


async def _ready(broker: ScriptedBroker, cluster: Cluster) -> None:
    broker.answers[METADATA] = metadata({1: broker.port}, {})
    await cluster.refresh()


def test_a_list_that_a_broker_refuses_is_an_error_and_never_an_empty_list() -> None:
    def refuse(code: int) -> ListGroupsResponse:
        return ListGroupsResponse(throttle_time_ms=0, error_code=code, groups=[])

    async def play() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            for _ in _codes(broker, ListGroupsRequest.API_KEY, refuse):
                # The loop that keeps groups in step catches these, and tries again.
                with pytest.raises(OUTAGE):
                    await list_groups(cluster)

    asyncio.run(play())


def test_a_group_whose_coordinator_is_refused_is_left_out_and_the_others_are_found() -> None:
    row = FindCoordinatorResponse.Coordinator

    def refuse(code: int) -> FindCoordinatorResponse:
        rows = [
            row(key="a", node_id=-1, host="", port=-1, error_code=code, error_message=None),
            row(key="b", node_id=1, host="127.0.0.1", port=9092, error_code=0, error_message=None),
        ]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=rows)

    async def play() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            for _ in _codes(broker, FindCoordinatorRequest.API_KEY, refuse):
                assert await find_coordinators(cluster, ["a", "b"]) == {"b": 1}

    asyncio.run(play())


def test_offsets_that_a_coordinator_does_not_tell_are_the_error_of_their_group() -> None:
    group = OffsetFetchResponse.OffsetFetchResponseGroup

    def refuse(code: int) -> OffsetFetchResponse:
        rows = [
            group(group_id="a", error_code=code, topics=[]),
            group(group_id="b", error_code=0, topics=[]),
        ]
        return OffsetFetchResponse(throttle_time_ms=0, groups=rows)

    async def play() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            for code in _codes(broker, OFFSET_FETCH, refuse):
                found = await fetch_offsets(cluster, {"a": 1, "b": 1}, stable=True)
                assert found == {"a": GroupOffsets({}, code), "b": GroupOffsets({}, 0)}

    asyncio.run(play())


def test_a_coordinator_that_knows_no_offsets_is_the_error_of_its_groups() -> None:
    row = ApiVersionsResponse.ApiVersion
    known = [row(api_key=key, min_version=0, max_version=9) for key in (PRODUCE, FETCH, LIST_OFFSETS, METADATA)]

    async def play() -> None:
        broker = ScriptedBroker({API_VERSIONS: ApiVersionsResponse(error_code=0, api_keys=known)})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            found = await fetch_offsets(cluster, {"a": 1}, stable=True)
            assert isinstance(found["a"], UnsupportedRequest)

    asyncio.run(play())


def test_each_partition_of_a_commit_has_its_own_code() -> None:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    part = topic.OffsetCommitResponsePartition

    def refuse(code: int) -> OffsetCommitResponse:
        parts = [part(partition_index=0, error_code=code), part(partition_index=1, error_code=0)]
        return OffsetCommitResponse(throttle_time_ms=0, topics=[topic(name="t", partitions=parts)])

    async def play() -> None:
        broker = ScriptedBroker({})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            rows = {"a": [CommitRow("t", 0, 5), CommitRow("t", 1, 6)]}
            for code in _codes(broker, OFFSET_COMMIT, refuse):
                assert await commit_offsets(cluster, rows, {"a": 1}) == {"a": {("t", 0): code, ("t", 1): 0}}

    asyncio.run(play())


@pytest.mark.parametrize("newest", [9, 7], ids=["many groups at once", "one group at a time"])
def test_a_negative_offset_of_one_group_keeps_no_other_group_from_being_read(newest: int) -> None:
    """Brokers take any offset that an application commits, such as -5."""

    def answer(version: int, body: bytes) -> OffsetFetchResponse:
        if version < 8:
            request = OffsetFetchRequest.decode(body, version=version)
            return OffsetFetchResponse(
                throttle_time_ms=0, error_code=0, topics=_topics(OffsetFetchResponse, COMMITTED[request.group_id])
            )
        kind = OffsetFetchResponse.OffsetFetchResponseGroup
        groups = [kind(group_id=name, error_code=0, topics=_topics(kind, rows)) for name, rows in COMMITTED.items()]
        return OffsetFetchResponse(throttle_time_ms=0, groups=groups)

    async def play() -> None:
        broker = ScriptedBroker({OFFSET_FETCH: answer}, versions={OFFSET_FETCH: newest})
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            found = await fetch_offsets(cluster, dict.fromkeys(COMMITTED, 1), stable=True)
            rows = {}
            for name, offsets in found.items():
                assert isinstance(offsets, GroupOffsets)
                rows[name] = {number: row.offset for number, row in offsets.topics["t"].rows().items()}
            assert rows == {"ours": {0: 7}, "stranger": {0: -1, 1: 8}}

    asyncio.run(play())


COMMITTED = {"stranger": {0: -5, 1: 8}, "ours": {0: 7}}


def _topics(kind: Any, rows: dict[int, int]) -> list[Any]:
    topic = kind.OffsetFetchResponseTopic if kind is OffsetFetchResponse else kind.OffsetFetchResponseTopics
    part = getattr(topic, "OffsetFetchResponsePartition", None) or topic.OffsetFetchResponsePartitions
    parts = [
        part(partition_index=number, committed_offset=offset, committed_leader_epoch=-1, metadata="", error_code=0)
        for number, offset in rows.items()
    ]
    return [topic(name="t", partitions=parts)]


def test_start_offsets_that_a_coordinator_does_not_tell_are_the_error_of_their_share_group() -> None:
    def refuse(code: int) -> object:
        return lambda version, body: WHOLE_ANSWERS["DescribeShareGroupOffsets"](version, code, body)

    async def play() -> None:
        broker = ScriptedBroker({}, FOR_SHARE_GROUPS)
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            for code in _codes(broker, DESCRIBE_SHARE_OFFSETS, refuse):
                found = await fetch_share_offsets(cluster, {"a": 1, "b": 1})
                assert found == {"a": GroupOffsets({}, code), "b": GroupOffsets({}, code)}

    asyncio.run(play())


def test_the_code_of_a_share_group_is_that_of_each_start_offset() -> None:
    def refuse(code: int) -> object:
        return lambda version, body: WHOLE_ANSWERS["AlterShareGroupOffsets"](version, code, body)

    async def play() -> None:
        broker = ScriptedBroker({}, FOR_SHARE_GROUPS)
        async with broker.running() as cluster:
            await _ready(broker, cluster)
            rows = {"a": [CommitRow("t", 0, 5), CommitRow("t", 1, 6)]}
            for code in _codes(broker, ALTER_SHARE_OFFSETS, refuse):
                assert await alter_share_offsets(cluster, rows, {"a": 1}) == {"a": {("t", 0): code, ("t", 1): code}}

    asyncio.run(play())
