"""Which source cluster a failover is about, and the rows of the map that it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirrormaker.errors import ClusterError
from mirrormaker.kafka_errors import TOPIC_AUTHORIZATION_FAILED
from mirrormaker.mapping.flow_choice import find_map, undo
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map_format import BlockKey, Fence, pack_key
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.keyed_topic import KeyedWriter
from tests.support.keyed_log import KeyedLog


def play(scenario: Callable[[KeyedLog, Cluster], Awaitable[None]], topic: str = TOPIC) -> None:
    async def run() -> None:
        log = KeyedLog(topic)
        async with log.running() as cluster:
            await cluster.refresh()
            await scenario(log, cluster)

    asyncio.run(run())


async def mirrored(cluster: Cluster, *rows: tuple[str, str]) -> None:
    """Store blocks of source clusters and topics."""
    packed = [(pack_key(BlockKey(source, topic, 0, 0)), b"block") for source, topic in rows]
    await KeyedWriter(cluster, TOPIC).write(packed)


def test_the_only_source_with_chosen_topics_is_meant() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await mirrored(cluster, ("east", "orders"), ("west", "users"))
        assert (await find_map(cluster, "", lambda name: name == "users")).source_id == "west"
        assert (await find_map(cluster, "east")).source_id == "east"

    play(scenario)


def test_several_sources_are_named_with_the_option_that_chooses() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await mirrored(cluster, ("east", "orders"), ("west", "users"))
        with pytest.raises(ClusterError, match=r"2 source clusters .* name one with --source\.id: east, west"):
            await find_map(cluster, "")

    play(scenario)


def test_a_map_without_the_chosen_topics_names_those_that_it_has() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await mirrored(cluster, ("east", "orders"))
        with pytest.raises(ClusterError, match="of the chosen topics; it has orders"):
            await find_map(cluster, "", lambda name: False)

    play(scenario)


@pytest.mark.parametrize("source_id", ["", "east"])
def test_a_target_without_a_map_is_named(source_id: str) -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match=f"has no offset map \\(topic {TOPIC}\\)"):
            await find_map(cluster, source_id)

    play(scenario, "another")


def test_a_fence_that_may_not_be_written_names_the_command_that_grants_it() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        log.errors = [TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(ClusterError, match=f"kafka-acls .*--operation Write --topic {TOPIC}"):
            await MapTopic(cluster, "east").write_fence(Fence(0, "me"))

    play(scenario)


def test_only_a_closed_flow_can_be_opened() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        topic = MapTopic(cluster, "east")
        with pytest.raises(ClusterError, match="no failover has closed the flow from east: there is nothing to undo"):
            await undo(topic)
        await topic.write_fence(Fence(5, "me"))
        assert await undo(topic) == Fence(5, "me")
        await topic.refresh()
        assert topic.fence is None

    play(scenario)
