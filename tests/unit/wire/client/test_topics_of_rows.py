"""A topic of rows is created as safe as the cluster's offsets topic."""

from __future__ import annotations

import asyncio

import pytest
from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from kafka.protocol.metadata import MetadataResponse

from mirrormaker.wire.client import keyed_topic
from mirrormaker.wire.client.keyed_topic import OFFSETS_TOPIC
from tests.support.scripted_broker import METADATA, ScriptedBroker, metadata

TOPIC = "rows"


class Creating(ScriptedBroker):
    """A cluster whose offsets topic has `copies` replicas, or does not exist yet. `created` is the topic that it was asked for."""

    def __init__(self, brokers: int, copies: int, in_sync: str) -> None:
        answers = {
            METADATA: self._metadata,
            CreateTopicsRequest.API_KEY: self._create,
            DescribeConfigsRequest.API_KEY: self._configs,
        }
        super().__init__(answers)
        self.brokers, self.copies, self.in_sync = brokers, copies, in_sync
        self.created: CreateTopicsRequest.CreatableTopic | None = None

    def _metadata(self, _version: int, _body: bytes) -> MetadataResponse:
        topics = {OFFSETS_TOPIC: 2} if self.copies else {}
        answer = metadata(
            dict.fromkeys(range(1, self.brokers + 1), self.port), topics | ({TOPIC: 1} if self.created else {})
        )
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.replica_nodes = list(range(1, (self.copies or 1) + 1))
        return answer

    def _create(self, version: int, body: bytes) -> CreateTopicsResponse:
        (self.created,) = CreateTopicsRequest.decode(body, version=version).topics
        row = CreateTopicsResponse.CreatableTopicResult(name=TOPIC, error_code=0, error_message=None)
        return CreateTopicsResponse(throttle_time_ms=0, topics=[row])

    def _configs(self, version: int, body: bytes) -> DescribeConfigsResponse:
        (asked,) = DescribeConfigsRequest.decode(body, version=version).resources
        known = {OFFSETS_TOPIC: {"min.insync.replicas": self.in_sync}, TOPIC: {"cleanup.policy": "compact"}}
        kind = DescribeConfigsResponse.DescribeConfigsResult
        configs = [
            kind.DescribeConfigsResourceResult(
                name=name, value=known[asked.resource_name][name], read_only=False, is_default=False, config_source=1,
                is_sensitive=False, synonyms=[], config_type=0, documentation=None,
            )
            for name in asked.configuration_keys
        ]  # fmt: skip
        row = kind(
            error_code=0, error_message=None, resource_type=2, resource_name=asked.resource_name, configs=configs
        )
        return DescribeConfigsResponse(throttle_time_ms=0, results=[row])


async def _ensure(broker: Creating) -> tuple[str, int, dict[str, str]]:
    """Return the policy of the topic, and the replication and settings that it was created with."""
    async with broker.running() as cluster:
        policy = await keyed_topic.ensure(cluster, TOPIC)
    assert broker.created is not None
    return policy, broker.created.replication_factor, {row.name: row.value for row in broker.created.configs}


@pytest.mark.parametrize(("copies", "in_sync"), [(3, "2"), (2, "1"), (5, "3")])
def test_it_has_the_replication_of_the_offsets_topic(copies: int, in_sync: str) -> None:
    policy, replication, config = asyncio.run(_ensure(Creating(6, copies, in_sync)))
    assert (policy, replication) == ("compact", copies)
    assert config == {"cleanup.policy": "compact", "segment.bytes": str(64 << 20), "min.insync.replicas": in_sync}


@pytest.mark.parametrize(("brokers", "replication"), [(1, 1), (2, 2), (6, 3)])
def test_without_an_offsets_topic_it_has_three_replicas_at_most(brokers: int, replication: int) -> None:
    policy, found, config = asyncio.run(_ensure(Creating(brokers, 0, "2")))
    assert (policy, found) == ("compact", replication)
    assert config == {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}, "the brokers' default counts"
