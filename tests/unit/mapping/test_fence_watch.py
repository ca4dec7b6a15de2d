"""A fence in the offset map: a mirror that starts refuses, one that runs notices, and looking costs next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from mirrormaker.errors import FlowClosed
from mirrormaker.events.event import Event
from mirrormaker.events.map_events import FenceReadable, FenceUnreadable, OffsetMapUnwritten
from mirrormaker.events.partition_events import Waiting
from mirrormaker.mapping import fence_watch, map_keeper
from mirrormaker.mapping.fence_watch import FenceGuard, FenceWatch
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.offset_map_format import BlockKey, Fence, pack_key
from mirrormaker.model.position import MARKED_EPOCH, Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.keyed_topic import KeyedWriter
from mirrormaker.wire.protocol.fetch import FetchedPartition
from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import move_batch, times
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


def test_a_damaged_base_offset_hides_no_fence() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await KeyedWriter(cluster, TOPIC).write([(b"other", b"row")])
        watch = FenceWatch(cluster, US, 0)
        assert await watch.look() is None
        await MapTopic(cluster, US).write_fence(FENCE)
        # An answer that ends where the watch stands looks like one without news, and one far behind like a new topic.
        for offset in 0, 1000:
            log.damage = times(1, move_batch(0, offset))
            before = fetched(log)
            assert await watch.look() == FENCE
            assert fetched(log) == before + 3, "the damaged answer, the fence, and nothing"
            assert not watch.is_replaced
            watch = FenceWatch(cluster, US, 1)

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


@pytest.mark.parametrize("with_map", [True, False], ids=["with a map", "without a map"])
def test_a_mirror_that_cannot_look_for_a_fence_says_so_once_and_when_it_can_again(
    monkeypatch: pytest.MonkeyPatch, with_map: bool
) -> None:
    for module, name in ((map_keeper, "_FENCE_EVERY"), (fence_watch, "_LOOK_EVERY"), (fence_watch, "_TELL_AFTER")):
        monkeypatch.setattr(module, name, 0.02)

    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await KeyedWriter(cluster, TOPIC).write([(b"other", b"row")])
        events: list[Event] = []
        watcher = keeper_of(cluster, events) if with_map else FenceGuard(cluster, lambda: US, events.append)
        await (watcher.open() if isinstance(watcher, MapKeeper) else watcher.wait())
        failing(log, 29, 0.5)  # TOPIC_AUTHORIZATION_FAILED
        running = asyncio.create_task(watcher.run())
        async with asyncio.timeout(10):
            while not any(isinstance(event, FenceReadable) for event in events):
                await asyncio.sleep(0.01)
        running.cancel()
        told = [event for event in events if isinstance(event, FenceUnreadable | FenceReadable)]
        assert [type(event) for event in told] == [FenceUnreadable, FenceReadable]
        assert "kafka-acls" in str(told[0]) and TOPIC in str(told[0])

    play(scenario)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_keeper, "_PATIENCE", 0.2)
    monkeypatch.setattr(fence_watch, "_AGAIN_AFTER", 0.02)
    monkeypatch.setattr(fence_watch, "_LOOK_EVERY", 0.02)


def failing(log: KeyedLog, error: int, seconds: float) -> None:
    """Answer Fetch requests with an error, and later as before."""
    answer = log.answers[FETCH]

    def refused(version: int, _body: bytes) -> bytes:
        part = FetchedPartition(TOPIC, 0, error, -1, -1, -1, np.empty((0, 2), np.int64), None, memoryview(b""))
        return bytes(encode_fetch_answer(version, FetchAnswer(0, [(TOPIC, bytes(16), [part])], None, [])))

    log.answers[FETCH] = refused
    asyncio.get_running_loop().call_later(seconds, log.answers.__setitem__, FETCH, answer)


@pytest.mark.usefixtures("quick")
def test_a_mirror_waits_until_it_can_read_whether_its_flow_is_closed() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await MapTopic(cluster, US).write_fence(FENCE)
        events: list[Event] = []
        guard = FenceGuard(cluster, lambda: US, events.append)
        failing(log, 56, 0.6)  # KAFKA_STORAGE_ERROR
        with pytest.raises(FlowClosed):
            await keeper_of(cluster, events).open(guard.wait)
        (event,) = events
        assert isinstance(event, Waiting) and "closed this flow" in event.reason and TOPIC in event.reason

    play(scenario)


@pytest.mark.usefixtures("quick")
def test_a_mirror_waits_while_the_topic_with_the_fence_is_damaged() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await MapTopic(cluster, US).write_fence(FENCE)
        events: list[Event] = []
        log.damage = times(12, move_batch(0, -1))  # three answers end one attempt
        with pytest.raises(FlowClosed):
            await FenceGuard(cluster, lambda: US, events.append).wait()
        assert [type(event) for event in events] == [Waiting]
        assert fetched(log) == 12 + 2

    play(scenario)


@pytest.mark.usefixtures("quick")
def test_the_map_is_opened_once_it_can_be_read() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await KeyedWriter(cluster, TOPIC).write([(b"other", b"row")])
        events: list[Event] = []
        keeper = keeper_of(cluster, events)
        failing(log, 56, 0.6)
        await keeper.open(FenceGuard(cluster, lambda: US, events.append).wait)
        assert not keeper.reason
        assert [type(event) for event in events] == [Waiting]

    play(scenario)


@pytest.mark.usefixtures("quick")
def test_a_mirror_that_may_not_read_the_topic_goes_on_without_it() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        await MapTopic(cluster, US).write_fence(FENCE)
        events: list[Event] = []
        failing(log, 29, 60)  # TOPIC_AUTHORIZATION_FAILED
        await keeper_of(cluster, events).open(FenceGuard(cluster, lambda: US, events.append).wait)
        assert [type(event) for event in events] == [OffsetMapUnwritten]

    play(scenario)


@pytest.mark.usefixtures("quick")
def test_a_mirror_without_an_offset_map_reads_the_fence_too() -> None:
    async def scenario(log: KeyedLog, cluster: Cluster) -> None:
        guard = FenceGuard(cluster, lambda: US, lambda _: None)
        assert await guard.wait()
        running = asyncio.create_task(guard.run())
        await asyncio.sleep(0.1)
        assert not running.done()
        await MapTopic(cluster, US).write_fence(FENCE)
        with pytest.raises(FlowClosed):
            await asyncio.wait_for(running, 5)
        with pytest.raises(FlowClosed):
            await FenceGuard(cluster, lambda: US, lambda _: None).wait()

    play(scenario)


@pytest.mark.usefixtures("quick")
def test_without_the_topic_there_is_no_fence() -> None:
    async def run() -> None:
        log = KeyedLog("another")
        async with log.running() as cluster:
            await cluster.refresh()
            guard = FenceGuard(cluster, lambda: US, lambda _: None)
            assert not await guard.wait()
            assert not any(key == FETCH for key, _ in log.heard)

    asyncio.run(run())
