"""What a partition costs a stream: bytes of memory while it flows, and work when others change."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from mirrormaker.control.control_encoding import DriverEnd, StreamEnd
from mirrormaker.control.control_messages import Order, Take
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.transport.turns import PARTITIONS_IN_ONE_TURN
from mirrormaker.worker.cursor import Cursor
from mirrormaker.worker.stream import Stream
from tests.support.worker_stage import TASK

_PARTITIONS = 500
_MOST_BYTES = 8000  # of one partition


def position(partition: int) -> Position:
    cuts = (Cut(partition, 0, 1000 + partition),)
    return Position(
        "t", partition, 1000 + partition, 0, "ab" * 16, Identity(1000 + partition, 0), "c", "cd" * 16, 1, cuts
    )


def test_a_flowing_partition_takes_a_few_kilobytes_of_its_stream() -> None:
    async def play() -> float:
        stream: Any = Stream(TASK, 0, 0)
        for cluster, topic_id in ((stream.source, "ab"), (stream.target, "cd")):
            cluster.brokers = {1: ("nowhere", 1)}
            partitions = {number: Partition(1, 0, 1) for number in range(_PARTITIONS)}
            cluster.topics = {"t": Topic("t", bytes.fromhex(topic_id * 16), False, partitions)}

        async def takes_zstd() -> bool:
            return True

        stream.metadata.target_takes_zstd = takes_zstd
        stream._fetchers.fetch = lambda cursor: None
        takes = tuple(Take(position(number), True, number) for number in range(_PARTITIONS))
        end, messages = StreamEnd(), DriverEnd().orders(Order(take=takes))
        gc.collect()
        tracemalloc.start()
        try:
            for message in messages:
                for take in end.order(message).take:
                    stream._take(take)
            while not all(cursor.flowing for cursor in stream.cursors.values()):
                await asyncio.sleep(0.01)
            end.reports(stream.reporting.report(stream.cursors.values(), 0))
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / _PARTITIONS
        finally:
            tracemalloc.stop()
            stream._close()

    assert asyncio.run(play()) < _MOST_BYTES


# -- a refresh of the metadata


_TOPICS, _EACH = 50, 40


class Refreshed:
    """A stream with many flowing partitions, whose metadata a test changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = Stream(TASK, 0, 0)
        self.checked: list[str] = []
        self.fetched: list[str] = []
        for cluster in (self.stream.source, self.stream.target):
            cluster.brokers = {1: ("nowhere", 1)}
            for number in range(_TOPICS):
                self.show(cluster, f"t-{number}", bytes([number + 1]) * 16)
            monkeypatch.setattr(cluster, "refresh", self.refresh)
        for name in self.topics:
            for number in range(_EACH):
                where = replace(position(number), topic=name, topic_id="", target_topic_id="")
                cursor = Cursor(self.stream, where, clean=True)
                self.stream.check_topics(cursor)
                cursor.flowing = True
                self.stream.cursors[name, number] = cursor
        check = self.stream.check_topics

        def counted(cursor: Cursor) -> None:
            self.checked.append(cursor.topic)
            check(cursor)

        monkeypatch.setattr(self.stream, "check_topics", counted)
        monkeypatch.setattr(self.stream._fetchers, "fetch", lambda cursor: self.fetched.append(cursor.topic))

    @property
    def topics(self) -> set[str]:
        return {f"t-{number}" for number in range(_TOPICS)}

    def show(self, cluster: Cluster, name: str, topic_id: bytes) -> None:
        cluster.topics[name] = Topic(name, topic_id, False, {number: Partition(1, 0, 1) for number in range(_EACH)})

    async def refresh(self, topics: object = None) -> None:
        return None


def test_a_refresh_that_brings_nothing_new_looks_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        world = Refreshed(monkeypatch)
        metadata = world.stream.metadata
        await metadata.refresh_target(world.topics)
        world.checked.clear()
        await metadata.refresh_target(world.topics)
        assert not world.checked
        world.show(world.stream.target, "t-7", b"n" * 16)
        await metadata.refresh_target(world.topics)
        assert world.checked == ["t-7"] * _EACH
        assert not any(world.stream.cursors["t-7", number].flowing for number in range(_EACH)), "it was created again"
        assert world.stream.cursors["t-8", 0].flowing
        world.checked.clear()
        world.show(world.stream.source, "t-8", b"n" * 16)
        await metadata.refresh_target({"t-9"})
        await metadata.refresh_source({"t-8"})
        assert world.checked == ["t-8"] * _EACH

    asyncio.run(play())


def test_a_refresh_brings_all_partitions_to_their_leaders_in_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world: list[Refreshed] = []

    async def play() -> None:
        world.append(Refreshed(monkeypatch))
        await asyncio.sleep(0)
        steps.clear()
        await world[0].stream.metadata.refresh_source(world[0].topics)

    steps: list[int] = []
    run = asyncio.events.Handle._run

    def counted(handle: asyncio.Handle) -> None:
        before = len(world[0].fetched) if world else 0
        run(handle)
        steps.append(len(world[0].fetched) - before if world else 0)

    monkeypatch.setattr(asyncio.events.Handle, "_run", counted)
    asyncio.run(play())
    assert len(world[0].fetched) == _TOPICS * _EACH
    assert max(steps) <= PARTITIONS_IN_ONE_TURN
