"""A round for many groups: it never keeps the driver's event loop for long, and what is quiet is written twice a day."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from mirrormaker.groups import offset_writer, sync
from mirrormaker.groups.checkpoints import Checkpoints
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.sync import GroupSync, SyncSettings
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.client.keyed_topic import KeyedWriter
from mirrormaker.wire.client.log_offsets import EARLIEST
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow, CommittedRow, GroupOffsets, TopicOffsets
from tests.support.loop_steps import longest_step

# Function calls in one step: they take about 10 ms.
MOST = 100_000


class Same:
    """The map of a partition that has the same offsets on both sides."""

    first, end = 0, 1000

    def __init__(self, partition: int) -> None:
        self.places: list[Place] = [("", partition)]

    def translate(self, place: Place, source: int) -> Translated:
        return Translated(source, source)


class Clusters:
    """Groups that have all committed in all partitions, and a target that takes all offsets."""

    def __init__(self, groups: int, topics: int, partitions: int) -> None:
        self.names = [f"group-{number}" for number in range(groups)]
        self.keys = [(f"topic-{topic}", number) for topic in range(topics) for number in range(partitions)]
        self.maps = {key: Same(key[1]) for key in self.keys}
        self.committed: dict[str, int] = {}
        listed = {name: ListedGroup(name, 1) for name in self.names}
        rows = TopicOffsets.of({number: CommittedRow(7, "mine") for number in range(partitions)})
        offsets = GroupOffsets({f"topic-{topic}": rows for topic in range(topics)})
        self.target_offsets: dict[str, GroupOffsets | Exception] = {}
        self.survey = Survey(listed, {}, dict.fromkeys(self.names, offsets), self.target_offsets)
        self.on_target = offsets  # once it is committed: the offsets are the same on both sides

    def partition(self, key: TopicPartition) -> Same | None:
        return self.maps.get(key)

    async def refresh(self) -> None:
        raise AssertionError("this process has all partitions")

    async def look(self, *_: object) -> Survey:
        return self.survey

    async def known_offsets(self, _: object, keys: Collection[TopicPartition], when: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(keys, 0 if when == EARLIEST else 1000)

    async def find_coordinators(self, _: object, names: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)

    async def commit_offsets(
        self, _: object, commits: Mapping[str, Sequence[CommitRow]], nodes: Mapping[str, int]
    ) -> dict[str, dict[TopicPartition, int]]:
        for group, rows in commits.items():
            self.committed[group] = self.committed.get(group, 0) + len(rows)
            self.survey.target[group], self.target_offsets[group] = ListedGroup(group, 1), self.on_target
            await asyncio.sleep(0)
        return {group: {(row.topic, row.partition): 0 for row in rows} for group, rows in commits.items()}


async def round_of(world: Clusters, *later: float) -> None:
    """Write all offsets of a target that has none, and add them up; go on with a round at each of these seconds after it."""
    nothing: Any = None
    clusters: Any = world
    loop = GroupSync(nothing, nothing, SyncSettings(lambda _: True), clusters, lambda: world.keys, lambda _: None)
    checkpoints = Checkpoints(nothing, "east")
    with (
        mock.patch.object(sync, "look", world.look),
        mock.patch.object(sync, "known_offsets", world.known_offsets),
        mock.patch.object(offset_writer, "find_coordinators", world.find_coordinators),
        mock.patch.object(offset_writer, "commit_offsets", world.commit_offsets),
        mock.patch.object(checkpoints, "refresh", mock.AsyncMock()),
        mock.patch.object(KeyedWriter, "_append", mock.AsyncMock(return_value=range(0))),
        mock.patch.object(loop, "_ready_checkpoints", mock.AsyncMock(return_value=checkpoints)),
        mock.patch.object(loop, "_source", mock.Mock(topics={})),
        mock.patch.object(loop, "_target", mock.Mock(endpoint="new:9092")),
    ):
        began = time.time()
        for seconds in (0.0, *later):
            loop._everything_at = float("-inf")
            with mock.patch("time.time", return_value=began + seconds):
                await loop.round()
        assert loop.figures.groups == len(world.names)


@pytest.mark.parametrize(("groups", "topics", "partitions"), [(100, 1, 100), (100, 100, 1), (1000, 10, 1)])
def test_a_round_of_thousands_of_offsets_goes_in_short_steps(groups: int, topics: int, partitions: int) -> None:
    # The first batch of rows makes pyarrow import pandas.
    asyncio.run(round_of(Clusters(1, 1, 1)))
    world = Clusters(groups, topics, partitions)
    assert longest_step(round_of(world)) < MOST
    assert world.committed == dict.fromkeys(world.names, topics * partitions)


HOUR = 3600.0


def test_offsets_that_do_not_move_are_written_again_before_brokers_forget_them() -> None:
    """An offset expires a week after its commit, and after a day with brokers before Kafka 2.0."""
    world = Clusters(3, 1, 4)
    asyncio.run(round_of(world, 60.0, 11 * HOUR))
    assert world.committed == dict.fromkeys(world.names, 4)
    world = Clusters(3, 1, 4)
    asyncio.run(round_of(world, 13 * HOUR, 14 * HOUR, 26 * HOUR))
    assert world.committed == dict.fromkeys(world.names, 3 * 4)
