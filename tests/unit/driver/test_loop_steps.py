"""With 5,000 partitions, the driver's event loop never stands still for long: its work goes in steps of bounded size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_encoding import DriverEnd
from mirrormaker.control.control_messages import Ended, Order, PartitionReport, Released, Report, Take
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver import scheduler as scheduler_module
from mirrormaker.driver.acquire import Acquisition, Parts
from mirrormaker.driver.committer import Committer
from mirrormaker.driver.flow import Flow
from mirrormaker.driver.group_protocol import Generation, Row, decode_assignment, encode_subscription
from mirrormaker.driver.loop_watch import LoopWatch
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.observer import Earlier, ObservedSource, Rows, take_snapshot
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.rebalance_listener import RebalanceListener
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.driver.topic_sync import TopicSync
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import BrokerError, DriverGone
from mirrormaker.mapping.fence_watch import FenceWatch
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.partition_life import Life, Running, Waiting
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.model.topic_filter import Filter, Matcher, python_matcher
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import load
from mirrormaker.status.documents import Status
from mirrormaker.status.event_log import EventLog
from mirrormaker.status.snapshot import FLOWING, WAITING, Snapshot
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import give_way, in_turns
from tests.support.keyed_log import KeyedLog
from tests.support.loop_steps import longest_step
from tests.support.scripted_logs import ScriptedLogs

PARTITIONS = [(f"wide-{number}", partition) for number in range(50) for partition in range(100)]
# Function calls in one step: they take about 10 ms.
MOST = 100_000
nothing: Any = lambda *_: None  # noqa: E731


class Group:
    """A group that has assigned all partitions to this process, and its coordinator."""

    def __init__(self) -> None:
        self.group, self.topics = "mirror", {topic for topic, _ in PARTITIONS}
        self.generation = Generation(assigned=frozenset(PARTITIONS))
        self.committed_rows: dict[TopicPartition, tuple[int, str]] = {}

    async def committed(self) -> tuple[dict[TopicPartition, tuple[int, str]], dict[TopicPartition, Any]]:
        return dict(self.committed_rows), {}

    async def commit(self, rows: Mapping[str, Sequence[Row]], _: Generation) -> dict[TopicPartition, BrokerError]:
        await asyncio.sleep(0)
        for topic, found in rows.items():
            self.committed_rows |= {(topic, row[0]): (row[1], row[3]) for row in found}
        return {}


class Process:
    """The driver's parts that work on partitions, between two empty clusters."""

    def __init__(self, group: Group) -> None:
        self.group, self.control = group, ControlServer()
        source, target = (ScriptedLogs(dict.fromkeys(PARTITIONS, ()), name) for name in ("source", "target"))
        settings = source_settings(load({"bootstrap.servers": "source:9092", "group.id": "mirror"}, "source"))
        routing = Routing(source, target, "target", None, None, False)
        reactions = Reactions(lambda: True, nothing, nothing, nothing)
        self.scheduler = Scheduler(0, 1, self.control, nothing, reactions, "the log")
        membership: Any = group
        self.committer = Committer(membership, self.scheduler, 1.0, nothing)
        starts = StartPositions(source, target, settings, routing, False, nothing)
        parts = Parts(
            source, target, membership, self.scheduler, self.committer, routing, starts, nothing, None, nothing
        )
        self.acquisition = Acquisition(parts, lambda: True, nothing)
        self.control.register(0, self.scheduler)

    async def acquire(self) -> None:
        """Take up all partitions."""
        await self.acquisition.note_first_start()
        self.acquisition.pending = set(PARTITIONS)
        assert set().union(*[found async for found in self.acquisition.acquire()]) == set(PARTITIONS)


def test_five_thousand_partitions_are_taken_up_in_short_steps() -> None:
    group = Group()
    # As new ones, and then from the ledger.
    for _ in range(2):
        assert longest_step(Process(group).acquire()) < MOST
        assert group.committed_rows.keys() == set(PARTITIONS)


def test_five_thousand_partitions_are_handed_out_reported_and_committed_in_short_steps() -> None:
    process = Process(Group())
    asyncio.run(process.acquire())

    async def mirror_a_record_of_each() -> None:
        await process.control.open("127.0.0.1", "127.0.0.1")
        stream = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(take_and_report(process.control))))
        async with asyncio.timeout(60):
            while not process.scheduler.streams_at_work:
                await asyncio.sleep(0.01)
            process.scheduler.place()
            while len(process.scheduler.moved) < len(PARTITIONS):
                await asyncio.sleep(0.01)
        await process.committer.commit_moved()
        process.scheduler.owned.clear()  # the stream leaves without them
        await process.control.close()
        await stream

    assert longest_step(mirror_a_record_of_each()) < MOST
    assert {offset for offset, _ in process.group.committed_rows.values()} == {1}


async def take_and_report(control: ControlServer) -> None:
    """Take all partitions as a stream does, and report that a record of each was mirrored."""
    client = await ControlClient.open(control.address, control.secret, 0, 1, 0, 0)
    takes: list[Take] = []
    while len(takes) < len(PARTITIONS):
        takes += (await client.next_order()).take
    rows = [PartitionReport(take.position.advanced(1, 0, ()), take.tenancy, "flowing") for take in takes]
    await client.report(Report(1, tuple(rows)))
    with contextlib.suppress(DriverGone):
        while True:
            await client.next_order()


def test_the_offset_map_of_five_thousand_partitions_is_stored_and_read_in_short_steps() -> None:
    # pyarrow loads pandas with its first array. In the driver, PySpark has done that long before, in a thread.
    pa.array([b""])

    async def store() -> None:
        log = KeyedLog(TOPIC)
        async with log.running() as target:
            await target.refresh()
            keeper = MapKeeper(target, target, "mirror", lambda _: None)
            await keeper.open()
            await keeper.begin(
                Position(topic, partition, 0, 0, "", Identity(number, 0), "", "", 1, (Cut(partition, 0, 0),))
                for number, (topic, partition) in enumerate(PARTITIONS)
            )
            assert not await keeper.write(PARTITIONS)
            assert log.end == 2 * len(PARTITIONS), "an identity and a block of each"
            log.batches_per_answer = len(log.batches)
            # Another process takes partitions up, and looks for a fence among the rows of this one.
            topic = MapTopic(target, target.id)
            await topic.refresh()
            assert len(topic.partitions) == len(PARTITIONS)
            fences = FenceWatch(target, target.id, 0)
            assert await fences.look() is None

    assert longest_step(store()) < MOST // 2


def test_the_partitions_of_three_processes_are_assigned_in_short_steps() -> None:
    topics = {topic for topic, _ in PARTITIONS}
    claims = {name: PARTITIONS[number::2] for number, name in enumerate(("us", "other"))} | {"new": []}
    members = [
        SimpleNamespace(member_id=name, metadata=encode_subscription(topics, claimed, 4, 1))
        for name, claimed in claims.items()
    ]
    settings: Any = SimpleNamespace(group_id="mirror", session_timeout_ms=10_000, heartbeat_interval_ms=1000)
    source = ScriptedLogs(dict.fromkeys(PARTITIONS, ()), "source")
    assigned: dict[str, int] = {}

    class Leader(Membership):
        """A member that the coordinator takes for the leader of the group."""

        async def _ask(self, request: Any, **_: Any) -> Any:
            if hasattr(request, "protocols"):
                return SimpleNamespace(
                    error_code=0, member_id="us", generation_id=2, leader="us", skip_assignment=False, members=members
                )
            found = {row.member_id: bytes(row.assignment) for row in request.assignments}
            assigned.update({name: len(decode_assignment(data)[0]) for name, data in found.items()})
            return SimpleNamespace(error_code=0, assignment=found["us"])

    async def join() -> None:
        leader = Leader(source, settings, None, 4, lambda: PARTITIONS)
        leader.subscribe(topics)
        await leader._join()
        assert len(leader.generation.assigned) == assigned["us"]

    assert longest_step(join()) < MOST // 2
    # The third process gets its share in the next round, once the others have let go of it.
    assert sorted(assigned) == ["new", "other", "us"] and assigned["us"] + assigned["other"] == 3334


class Streams(ControlServer):
    """Streams that are connected. Their orders are encoded, and wait here until a test takes them."""

    def __init__(self, *connected: int) -> None:
        super().__init__()
        self.connected, self.orders = set(connected), dict[int, list[Order]]()
        self._end = DriverEnd()

    def is_connected(self, flow: int, stream: int) -> bool:
        return stream in self.connected

    def order(self, flow: int, stream: int, order: Order) -> None:
        self._end.orders(order)
        self.orders.setdefault(stream, []).append(order)


async def mirrored_by(*streams: int, keys: Sequence[TopicPartition] = PARTITIONS) -> Scheduler:
    """Return a scheduler whose streams mirror all partitions."""
    control = Streams(*streams)
    scheduler = Scheduler(0, len(streams), control, nothing, Reactions(lambda: True, nothing, nothing, nothing), "log")
    for stream in streams:
        scheduler.stream_arrived(stream)
    async for topic, partition in in_turns(keys):
        position = Position(topic, partition, 0, 0, "", Identity(partition, 0), "", "", 1, (Cut(partition, 0, 0),))
        scheduler.add(OwnedPartition(position, Life(Waiting(True)), committed=position))
    await give_way()
    scheduler.place()
    await until_handed_out(scheduler)
    return scheduler


async def until_handed_out(scheduler: Scheduler) -> None:
    async with asyncio.timeout(60):
        while not all(isinstance(owned.life.state, Running) for owned in scheduler.owned.values()):
            await asyncio.sleep(0.01)
    await give_way()


def test_partitions_are_handed_out_to_eight_streams_in_short_steps() -> None:
    async def hand_out() -> None:
        scheduler = await mirrored_by(*range(8))
        shares = [len([o for o in scheduler if o.stream == stream]) for stream in range(8)]
        assert shares == [len(PARTITIONS) // 8] * 8

    assert longest_step(hand_out()) < MOST // 2


def test_half_of_five_thousand_partitions_leave_in_short_steps() -> None:
    staying = frozenset(PARTITIONS[: len(PARTITIONS) // 2])
    flow: Any = Flow.__new__(Flow)

    async def rebalance() -> None:
        flow.scheduler = scheduler = await mirrored_by(0, 1)
        generation = Generation("us", 2, staying, frozenset(PARTITIONS), two_rounds=True)
        flow.membership = SimpleNamespace(generation=generation, rebalance=nothing)
        flow.committer = Committer(flow.membership, scheduler, 1.0, nothing)
        flow.acquisition = SimpleNamespace(pending=set(), assigned=asyncio.Event(), acquire=acquire_nothing)
        flow.goals, flow.offset_map, flow._listener = SimpleNamespace(), None, RebalanceListener(None, nothing)
        flow.ready, flow._report = asyncio.Event(), nothing
        flow._after_join(True)
        following = asyncio.ensure_future(flow._follow_assignments())
        await asyncio.sleep(0.05)
        for stream in (0, 1):
            let_go(scheduler, stream)
        async with asyncio.timeout(60):
            await flow.ready.wait()
        following.cancel()

    async def acquire_nothing() -> AsyncIterator[set[TopicPartition]]:
        yield set()

    assert longest_step(rebalance()) < MOST
    assert flow.scheduler.owned.keys() == staying


def let_go(scheduler: Scheduler, stream: int) -> None:
    """Report in pieces, as a stream does, that it has let go of the partitions that it was asked for."""
    control: Any = scheduler._control
    keys = [key for order in control.orders[stream] for key in order.release]
    assert keys
    for at in range(0, len(keys), 50):
        ended = []
        for key in keys[at : at + 50]:
            state: Any = scheduler.owned[key].life.state
            row = PartitionReport(scheduler.owned[key].position, state.tenancy, "stopped", clean=True)
            ended.append(Ended(row, Released()))
        asyncio.get_running_loop().call_soon(scheduler.stream_reported, stream, Report(1, ended=tuple(ended)))


def test_the_partitions_of_a_stream_that_dies_go_to_the_others_in_short_steps(monkeypatch: Any) -> None:
    async def cover() -> None:
        scheduler = await mirrored_by(0, 1)
        monkeypatch.setattr(scheduler_module, "_COVER_AFTER", -1.0)
        control: Any = scheduler._control
        control.connected.discard(1)
        scheduler.stream_left(1)
        await give_way()
        scheduler.tick()
        await until_handed_out(scheduler)
        assert {owned.stream for owned in scheduler} == {0}

    assert longest_step(cover()) < MOST * 3 // 5


def test_the_status_of_five_thousand_partitions_that_all_move_is_made_in_short_steps() -> None:
    flow: Any = Flow.__new__(Flow)
    flow.source = flow.target = ScriptedLogs({}, "source")
    flow.source.topics = dict.fromkeys(topic for topic, _ in PARTITIONS)
    flow.settings = SimpleNamespace(path="old.properties", group_id="mirror")
    flow.membership = Group()
    flow.topic_sync, flow.undelivered = SimpleNamespace(troubles={}), SimpleNamespace(count=0)
    flow.renumbering, flow.group_sync = SimpleNamespace(lost=()), None
    rows, watch, seen = Rows(), LoopWatch(), list[Snapshot]()

    def snapshot() -> Snapshot:
        source = ObservedSource(flow, Earlier(), "here-0", "")
        seen.append(take_snapshot([source], rows, ("exactly once, in order", "acks=all"), 1 << 20, watch, False))
        return seen[-1]

    async def show() -> None:
        flow.ready = asyncio.Event()
        flow.scheduler = scheduler = await mirrored_by(0, 1)
        status = Status(snapshot, EventLog(), 1000)
        for state in (FLOWING, WAITING):
            await give_way()
            for owned in scheduler:
                owned.state, owned.high_watermark = state, 5
            scheduler.changes += 1
            await give_way()
            status.tick()
            # The display of the progress looks at the same rows.
            assert snapshot().partitions is status.snapshot.partitions
            assert {row.state for row in status.snapshot.partitions} == {state}
        # None of them has a start position.
        scheduler.owned.clear()
        scheduler.changes += 1
        await give_way()
        status.tick()

    assert longest_step(show()) < MOST
    assert {len(found.partitions) for found in seen} == {len(PARTITIONS)}


def test_five_thousand_topics_are_kept_in_step_in_short_steps() -> None:
    keys = [(f"wide-{number}", 0) for number in range(len(PARTITIONS))]
    source, target = TopicsOnly({}, "source"), TopicsOnly({}, "target")
    for cluster in (source, target):
        cluster.topics = {name: Topic(name, bytes(16), False, {0: Partition(1, 0, 1)}) for name, _ in keys}
    settings = source_settings(load({"bootstrap.servers": "source:9092", "group.id": "mirror"}, "source"))
    routing = Routing(source, target, "target", None, None, False)
    starts = StartPositions(source, target, settings, routing, False, nothing)
    topics, permissions = TargetTopics(source, target, nothing), Permissions(source, target)
    subscribed: list[int] = []
    group: Any = SimpleNamespace(subscribe=lambda names: subscribed.append(len(list(names))))

    async def matcher() -> Matcher:
        return python_matcher("wide.*")

    async def look() -> None:
        scheduler = await mirrored_by(0, 1, keys=keys)
        renumbering = Renumbering(
            scheduler, nothing, starts, nothing, nothing, abort_on_send_failure=False, spawn=nothing, fail=nothing
        )
        sync = TopicSync(
            source, target, Filter("wide.*", exclude=False), matcher, group, scheduler, routing, topics, permissions,
            renumbering, nothing, lambda: True,
        )  # fmt: skip
        for _ in range(3):
            await give_way()
            await sync.sync()

    assert longest_step(look()) < MOST
    assert subscribed == [len(keys)] * 3


class TopicsOnly(ScriptedLogs):
    """A cluster that has topics and does not tell permissions."""

    async def lists_permissions(self) -> bool:
        return False
