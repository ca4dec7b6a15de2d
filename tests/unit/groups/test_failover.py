"""The steps of a failover: what it waits for, what it closes, and what it says if it cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.groups import failover, mirror_stop
from mirrormaker.groups.failover import Failover, FailoverSettings
from mirrormaker.groups.failover_report import FailoverReport, GroupStart
from mirrormaker.groups.flow_ends import SourceSide, read_logs
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.model.group_sync import State
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_map_format import Fence
from mirrormaker.model.topic_filter import Filter
from mirrormaker.wire.protocol.codec import TopicPartition
from tests.support.batches import Record, write_batch
from tests.support.mapped import mapped
from tests.support.scripted_logs import ScriptedLogs

KEY = ("orders", 0)
MOVED = GroupStart("readers", "orders", {0: 40}, State.SYNCED, 0, 0)


class Killed(BaseException):
    """The process ends here, and runs nothing more."""


class StoredMap:
    """The map's topic of a flow."""

    source_id = "here"

    def __init__(self, maps: dict[TopicPartition, PartitionMap]) -> None:
        self.maps = maps
        self.fence: Fence | None = None
        self.fences = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self.maps)

    def read(self, key: TopicPartition) -> PartitionMap:
        return self.maps.get(key, PartitionMap())

    known = read

    async def refresh(self) -> None:
        """Find the rows as they were."""

    async def write_fence(self, fence: Fence | None) -> None:
        self.fence = fence
        self.fences += 1


@dataclass
class Stage:
    """A flow of which the target has 100 records, and the source perhaps more."""

    missing: int = 0
    members: list[int] = field(default_factory=lambda: [1, 1, 0])  # one look after the other; the last one stays
    is_gone: bool = False
    trouble: BaseException | None = None  # of the groups
    report_trouble: Exception | None = None
    patience: float = 60.0  # seconds to wait for the mirror

    def __post_init__(self) -> None:
        batch = write_batch([Record(n, None, b"x") for n in range(100)], base_offset=0)
        self.logs = {KEY: [batch]}
        self.topic = StoredMap({KEY: mapped(KEY, ("", 0))})
        self.shown: list[str] = []
        self.moves: list[bool] = []  # True for each time that groups were written
        self.maps: set[TopicPartition] = set()  # those that the groups were moved with

    def run(self, **options: Any) -> FailoverReport:
        settings = FailoverSettings("mirror", Filter.of("orders", None), SyncSettings(lambda _: True), "me", **options)
        source: Any = None if self.is_gone else ScriptedLogs(self.logs, "here")
        target, topic = ScriptedLogs(self.logs, "there"), self.topic
        stage = self

        class Groups:
            trouble = ""

            def __init__(self, _: object, __: object, ___: object, maps: dict[TopicPartition, PartitionMap]) -> None:
                stage.maps = set(maps)

            async def run(self, *, is_dry: bool) -> list[GroupStart]:
                if stage.trouble is not None:
                    raise stage.trouble
                stage.moves.append(not is_dry)
                return [MOVED]

        async def read_source(*_: object, **__: object) -> SourceSide:
            return SourceSide({KEY: 100 + self.missing}, {}, {})

        async def members(*_: object) -> int:
            return self.members.pop(0) if len(self.members) > 1 else self.members[0]

        async def logs(target: Any, keys: Collection[TopicPartition]) -> Any:
            if self.report_trouble is not None:
                raise self.report_trouble
            return await read_logs(target, keys)

        with (
            mock.patch.multiple(failover, LastSync=Groups, read_source=read_source, read_logs=logs, LOOK_EVERY=0.001),
            mock.patch.multiple(
                mirror_stop,
                mirror_members=members,
                LOOK_EVERY=0.001,
                _STOPS_WITHIN=self.patience,
                _STILL_FOR=0.02,
                _STOPS_UNSEEN=self.patience,
            ),
        ):
            any_topic: Any = topic
            return asyncio.run(Failover(source, target, any_topic, settings, self.shown.append).run())


def test_a_failover_that_was_killed_after_the_fence_goes_on_with_repeat() -> None:
    stage = Stage(trouble=Killed())
    with pytest.raises(Killed):
        stage.run()
    assert stage.topic.fences == 1 and not stage.moves
    stage.trouble = None
    with pytest.raises(ClusterError, match="--repeat goes on with a failover that was interrupted"):
        stage.run()
    assert not stage.moves
    report = stage.run(is_repeated=True)
    assert (report.exit_code, report.is_closed, stage.moves, stage.topic.fences) == (0, True, [True], 1)


def test_records_that_are_missing_keep_the_flow_open_unless_they_are_accepted() -> None:
    stage = Stage(missing=7)
    report = stage.run(deadline=0.0)
    assert (report.exit_code, report.is_closed, stage.moves) == (3, False, [False])
    assert "7 records" in "\n".join(report.lines()) and "nothing was changed" in "\n".join(report.lines())
    report = stage.run(deadline=0.0, accepts_missing=True)
    # What was left behind is still named, and is no success.
    assert (report.exit_code, report.is_closed, stage.moves) == (3, True, [False, True])
    assert "going on without them (--accept.missing)" in stage.shown[-4]
    assert [row.missing for row in report.partitions] == [7]


def test_a_mirror_that_stays_in_its_group_is_named() -> None:
    stage = Stage(members=[1], patience=0.05)
    report = stage.run()
    assert report.exit_code == 3 and stage.topic.fences == 1
    (trouble,) = report.troubles
    assert "a mirror is still a member of group mirror on here:9092" in trouble and "--repeat" in trouble
    stage.members = [0]
    assert stage.run(is_repeated=True).exit_code == 0


@pytest.mark.parametrize("trouble", [BrokerError(14, "listing groups"), ValueError("a bug")])
def test_groups_that_cannot_be_moved_leave_the_table_of_topics(trouble: Exception) -> None:
    report = Stage(trouble=trouble).run()
    assert report.exit_code == 3 and [row.mirrored for row in report.partitions] == [100]
    text = "\n".join(report.lines())
    assert "no group was moved, or only some of them: " in text and str(trouble) in text and "--repeat" in text
    assert any("no group was moved" in line for line in report.to_json()["troubles"])
    with pytest.raises(type(trouble)):
        Stage(trouble=trouble).run(is_dry=True)


def test_an_error_after_the_flow_was_closed_says_what_was_done() -> None:
    stage = Stage(report_trouble=BrokerError(14, "asking"))
    with pytest.raises(ClusterError, match="the flow is closed, and the groups were moved as far as possible"):
        stage.run()
    assert stage.moves == [True]
    unreadable = mock.patch.object(StoredMap, "known", side_effect=BrokerError(14, "reading"))
    with (
        unreadable,
        pytest.raises(ClusterError, match="the flow is closed, and no group was moved: run this command again"),
    ):
        stage.run(is_repeated=True)


def test_without_the_source_the_places_are_read_once_the_target_stands_still() -> None:
    stage = Stage(is_gone=True)
    ends = [{KEY: 100 + number} for number in range(5)] + [{KEY: 104}]
    looks: list[int] = []

    async def find_offsets(*_: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Exception]]:
        assert not stage.moves
        looks.append(1)
        return ends.pop(0) if len(ends) > 1 else ends[0], {}

    with mock.patch.object(mirror_stop, "find_offsets", find_offsets):
        assert stage.run().exit_code == 0
    assert len(looks) > 5 and stage.moves == [True]
    assert any("waiting until nothing comes to the target" in line for line in stage.shown)
    assert "nothing has come to the target" in stage.shown[-1]


@pytest.mark.parametrize("answers", [True, False], ids=["records come", "it does not answer"])
def test_without_the_source_a_target_that_never_stands_still_is_not_waited_for_for_ever(answers: bool) -> None:
    stage = Stage(is_gone=True, patience=0.2)
    looks: list[int] = []

    async def find_offsets(*_: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Exception]]:
        looks.append(1)
        return ({KEY: len(looks)}, {}) if answers else ({}, {KEY: ConnectionError("away")})

    with mock.patch.object(mirror_stop, "find_offsets", find_offsets):
        assert stage.run().exit_code == 0
    assert "records still come, or not all of its logs can be asked" in stage.shown[-1]


def test_topics_that_go_into_the_same_topic_of_the_target_are_mapped_too() -> None:
    stage = Stage()
    stage.topic.maps = {
        KEY: mapped(KEY, ("all", 0), 50),
        ("refunds", 0): mapped(("refunds", 0), ("all", 1), 50),
        ("audit", 0): mapped(("audit", 0), ("", 0)),
    }
    stage.logs |= {("all", 0): stage.logs[KEY], ("all", 1): stage.logs[KEY]}
    report = stage.run(accepts_missing=True, deadline=0.0)
    assert stage.maps == {KEY, ("refunds", 0)}
    assert [row.topic for row in report.partitions] == ["orders"]
