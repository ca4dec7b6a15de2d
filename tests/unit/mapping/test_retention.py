"""Blocks of the offset map whose records the target's retention has deleted."""

from __future__ import annotations

import asyncio

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.mapping.map_topic import TOPIC, MapTopic
from mirrormaker.model import offset_map
from mirrormaker.model.offset_runs import NotedRun, Translated
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster
from tests.support.keyed_log import KeyedLog
from tests.support.scripted_broker import metadata

START = Position("orders", 0, 0, 0, "", Identity(1, 0), "", "", 1, (Cut(0, 0, 0),))
HERE = ("", 0)


class KeptLogs(KeyedLog):
    """A target that has the offset map's topic, and a topic whose log begins at `log_start`."""

    def __init__(self) -> None:
        super().__init__(TOPIC)
        self.log_start, self.error = 0, 0

    def _metadata(self, _version: int, _body: bytes) -> MetadataResponse:
        return metadata({1: self.port}, {TOPIC: 1, "orders": 1})

    def _list_offsets(self, version: int, body: bytes) -> ListOffsetsResponse:
        asked = ListOffsetsRequest.decode(body, version=version)
        if [topic.name for topic in asked.topics] != ["orders"]:
            return super()._list_offsets(version, body)
        row = ListOffsetsResponse.ListOffsetsTopicResponse
        part = row.ListOffsetsPartitionResponse(
            partition_index=0, error_code=self.error, timestamp=-1, offset=-1 if self.error else self.log_start
        )
        return ListOffsetsResponse(throttle_time_ms=0, topics=[row(name="orders", partitions=[part])])


async def _mirrored(target: Cluster) -> MapKeeper:
    """Return a keeper that has stored twenty transactions, each of two records and a marker, two in a block."""
    await target.refresh()
    keeper = MapKeeper(target, target, "mirror", lambda _: None)
    await keeper.open()
    await keeper.begin([START])
    for offset in range(0, 60, 3):
        count = offset // 3 * 2
        moved = START.advanced(offset + 3, 0, [Cut(0, count + 2, count + 2)])
        keeper.note(moved, PartitionReport(moved, 1, "flowing", runs=((HERE, (NotedRun(offset, count, 2, count),)),)))
    await keeper.write_all()
    return keeper


async def _stored(keeper: MapKeeper, target: Cluster) -> offset_map.PartitionMap:
    topic = MapTopic(target, keeper.source_id)
    await topic.refresh()
    return topic.read(START.key)


def test_blocks_below_the_start_of_the_targets_log_get_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "BLOCK_RUNS", 2)

    async def play() -> None:
        log = KeptLogs()
        async with log.running() as target:
            keeper = await _mirrored(target)
            before = await _stored(keeper, target)
            assert before.first == 0 and len(before.blocks) > 9
            await keeper.clean()
            await keeper.write_all()
            assert (await _stored(keeper, target)).first == 0, "the log begins with the first record"
            log.log_start = 21  # in the sixth block, which has target offsets 20 to 23
            await keeper.clean()
            # The partition does not move: its next commit may be far away, and the row goes with that of others.
            await keeper.write_all()
            after = await _stored(keeper, target)
            assert [block.start for block in after.blocks] == [block.start for block in before.blocks][5:]
            assert after.translate(HERE, 29) == Translated(0, 20)
            assert [after.translate(HERE, at).offset for at in range(30, 60, 3)] == list(range(20, 40, 2))
            log.log_start = 1000
            await keeper.clean()
            await keeper.write_all()
            after = await _stored(keeper, target)
            assert len(after.blocks) == 1 and after.end == 60, "the last block stays"

    asyncio.run(play())


def test_blocks_stay_while_the_leader_does_not_tell_where_its_log_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "BLOCK_RUNS", 2)

    async def play() -> None:
        log = KeptLogs()
        async with log.running() as target:
            keeper = await _mirrored(target)
            log.log_start, log.error = 1000, 6  # NOT_LEADER_OR_FOLLOWER
            await keeper.clean()
            await keeper.write_all()
            assert (await _stored(keeper, target)).first == 0

    asyncio.run(play())
