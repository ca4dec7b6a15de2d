"""A fence in the offset map: a mirror that starts refuses, one that runs notices, and looking costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mirrormaker.errors import FlowClosed
from mirrormaker.events.event import Event
from mirrormaker.mapping import map_keeper
from mirrormaker.mapping.fence_watch import FenceWatch
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map_format import BlockKey, Fence, pack_key
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.keyed_topic import KeyedWriter
from tests.support.keyed_log import KeyedLog
from tests.support.scripted_broker import FETCH

US = "a-cluster"
FENCE = Fence(1_800_000_000_000, "ops@host")
START = Position("orders", 0, 10, -1, "", Identity(7, MARKED_EPOCH), "there", "", 1, (Cut(0, 0, 50),))


def play(scenario: Callable[[KeyedLog, Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as cluster:
            await cluster.refresh()
            await scenario(log, cluster)

    asyncio.run(run())


def fetched(log: KeyedLog) -> int:
    return sum(key == FETCH for key, _ in log.heard)


def keeper_of(cluster: Cluster, events: list[Event] | None = None) -> MapKeeper:
    return MapKeeper(cluster, cluster, "group mirror", (events if events is not None else []).append)


def test_a_fence_is_seen_and_its_removal_too() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        watch, topic = FenceWatch(cluster, US, 0), MapTopic(cluster, US)
        assert await watch.look() is None
        await topic.write_fence(FENCE)
        assert await watch.look() == FENCE
        await topic.write_fence(None)
        assert await watch.look() is None

    play(scenario)


def test_the_fence_of_another_source_does_not_count() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        watch = FenceWatch(cluster, US, 0)
        await MapTopic(cluster, "another").write_fence(FENCE)
        assert await watch.look() is None

    play(scenario)


def test_rows_of_this_process_are_never_read_again() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        watch, writer = FenceWatch(cluster, US, 0), KeyedWriter(cluster, TOPIC)
        rows = [(pack_key(BlockKey(US, "orders", n, 0)), b"x" * 200) for n in range(3000)]
        for offsets in await writer.write(rows):
            watch.wrote(offsets)
        before = fetched(log)
        assert await watch.look() is None
        assert fetched(log) == before + 1, "one request that brings nothing"
        # A row of somebody else in between is found.
        await MapTopic(cluster, US).write_fence(FENCE)
        for offsets in await writer.write(rows[:1]):
            watch.wrote(offsets)
        assert await watch.look() == FENCE

    play(scenario)


def test_a_topic_that_was_created_again_is_read_from_its_beginning() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        watch = FenceWatch(cluster, US, 5000)
        await MapTopic(cluster, US).write_fence(FENCE)
        assert await watch.look() == FENCE

    play(scenario)


def test_a_mirror_does_not_start_behind_a_fence() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await MapTopic(cluster, US).write_fence(FENCE)
        with pytest.raises(FlowClosed, match=r"closed by a failover at 2027-01-15 08:00:00 UTC \(by ops@host\)"):
            await keeper_of(cluster).open()

    play(scenario)


def test_a_running_mirror_ends_and_stores_its_map_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_keeper, "_FENCE_EVERY", 0.01)

    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        keeper = keeper_of(cluster)
        await keeper.open()
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(0.05)
        assert not running.done()
        await MapTopic(cluster, US).write_fence(FENCE)
        with pytest.raises(FlowClosed, match="mirrormaker failover --undo"):
            await asyncio.wait_for(running, 5)
        await keeper.begin([START])
        assert await keeper.write([START.key]) == set()
        topic = MapTopic(cluster, US)
        await topic.refresh()
        assert topic.read(START.key).blocks[-1].identity == START.identity

    play(scenario)


def test_a_process_that_stood_still_looks_before_its_next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        keeper = keeper_of(cluster)
        await keeper.open()
        await MapTopic(cluster, US).write_fence(FENCE)
        await keeper.write([])
        monkeypatch.setattr(map_keeper, "_FENCE_EVERY", -1.0)  # as if it were long ago
        with pytest.raises(FlowClosed):
            await keeper.write([])
        await keeper.write([])  # the last commit of a mirror that ends

    play(scenario)


def test_a_target_that_does_not_answer_is_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_keeper, "_FENCE_EVERY", 0.01)

    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        keeper = keeper_of(cluster)
        await keeper.open()
        del log.answers[FETCH]  # it hangs up
        running = asyncio.create_task(keeper.run())
        await asyncio.sleep(0.2)
        assert not running.done()
        running.cancel()

    play(scenario)
