"""Brokers that refuse to list groups or to tell and take their offsets: each code stays with the groups that it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from kafka.protocol.admin import ListGroupsResponse
from kafka.protocol.consumer import OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse

from mirrormaker.errors import OUTAGE
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
from tests.support.scripted_broker import METADATA, ScriptedBroker, metadata
from tests.support.whole_refusals import WHOLE_ANSWERS

ALL_CODES = [code for code in (*CODES, 9999) if code]
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
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
