"""The rows that a mirror stores: every identity stays known, whatever becomes of its blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map_format import FenceKey, IdentityKey, pack_key, unpack_key
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster
from tests.support.keyed_log import KeyedLog

OLD, NEW = Identity(7, 0), Identity(8, MARKED_EPOCH)
START = Position("orders", 0, 10, -1, "aa" * 16, OLD, "there", "", 1, (Cut(0, 0, 50),))


def play(scenario: Callable[[KeyedLog, MapKeeper, MapTopic], Awaitable[None]]) -> None:
    async def run() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as cluster:
            await cluster.refresh()
            keeper = new_keeper(cluster)
            await keeper.open()
            await scenario(log, keeper, MapTopic(cluster, keeper.source_id))

    asyncio.run(run())


def new_keeper(cluster: Cluster) -> MapKeeper:
    return MapKeeper(cluster, cluster, "group mirror", lambda event: None)


def test_keys_of_every_kind_come_back() -> None:
    for key in (IdentityKey("c", NEW), IdentityKey("c", Identity(0, 0)), FenceKey("c")):
        assert unpack_key(pack_key(key)) == key
    assert unpack_key(pack_key(IdentityKey("c", NEW))[:-1]) is None


def test_an_identity_outlives_its_block() -> None:
    async def scenario(log: KeyedLog, keeper: MapKeeper, topic: MapTopic) -> None:
        await keeper.begin([START])
        await keeper.write([START.key])
        # The source topic was created again: the blocks mean other records now, but the target still has the old ones.
        await keeper.begin([replace(START, topic_id="bb" * 16, identity=NEW)])
        await keeper.write([START.key])
        await topic.refresh()
        assert [block.identity for block in topic.read(START.key).blocks] == [NEW]
        assert topic.identities == {OLD, NEW}

    play(scenario)


def test_an_identity_is_stored_once() -> None:
    async def scenario(log: KeyedLog, keeper: MapKeeper, topic: MapTopic) -> None:
        await keeper.begin([START])
        await keeper.write([START.key])
        before = log.end
        assert before == 2, "the identity, and its block"
        await keeper.begin([replace(START, offset=20, cuts=(Cut(0, 5, 60),))])
        await keeper.write([START.key])
        assert log.end == before + 1
        # The next process knows it from the topic.
        successor = new_keeper(topic.target)
        await successor.open()
        await successor.begin([replace(START, offset=30, cuts=(Cut(0, 6, 90),))])
        await successor.write([START.key])
        assert log.end == before + 2

    play(scenario)


def test_an_identity_that_the_map_lacks_is_stored_though_its_partition_does_not_move() -> None:
    async def scenario(log: KeyedLog, keeper: MapKeeper, topic: MapTopic) -> None:
        await keeper.begin([START])
        await keeper.write([])  # the next commit, of other partitions
        await topic.refresh()
        assert topic.identities == {OLD}

    play(scenario)


def test_a_map_that_ends_before_the_ledger_is_completed_though_its_partition_does_not_move() -> None:
    async def scenario(log: KeyedLog, keeper: MapKeeper, topic: MapTopic) -> None:
        await keeper.begin([START])
        await keeper.write([START.key])
        successor = new_keeper(topic.target)
        await successor.open()
        await successor.begin([replace(START, offset=30, cuts=(Cut(0, 20, 70),))])
        await successor.write([])
        await topic.refresh()
        assert topic.read(START.key).end == 30

    play(scenario)
