"""With 5,000 partitions, the driver's event loop never stands still for long: its work goes in steps of bounded size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mirrormaker.control.control_client import ControlClient
from mirrormaker.control.control_messages import PartitionReport, Report, Take
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.acquire import Acquisition, Parts
from mirrormaker.driver.committer import Committer
from mirrormaker.driver.group_protocol import Generation, Row
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Reactions, Scheduler
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.errors import BrokerError, DriverGone
from mirrormaker.mapping.fence_watch import FenceWatch
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import load
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.keyed_log import KeyedLog
from tests.support.loop_steps import longest_step
from tests.support.scripted_logs import ScriptedLogs

PARTITIONS = [(f"wide-{number}", partition) for number in range(50) for partition in range(100)]
# Function calls in one step: they take about 10 ms.
MOST = 100_000


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
        nothing: Any = lambda *_: None  # noqa: E731
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
        assert await self.acquisition.acquire() == set(PARTITIONS)


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
