"""A failover names every group, topic and partition that it cannot move, and does not end as a success."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from mirrormaker.errors import BadFrame
from mirrormaker.groups import failover_groups, offset_writer
from mirrormaker.groups.checkpoints import Checkpoint
from mirrormaker.groups.failover_groups import LastSync
from mirrormaker.groups.failover_report import FailoverReport, GroupStart
from mirrormaker.groups.flow_ends import PartitionEnd
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.model.group_sync import State
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.position import Place
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.group_messages import CommitRow, CommittedRow, GroupOffsets, TopicOffsets
from tests.support.batches import Record, write_batch
from tests.support.mapped import mapped
from tests.support.scripted_logs import ScriptedLogs

LOADING, NOT_ALLOWED = 14, 30
READERS, ORDERS = "readers", ("orders", 0)


def committed(**topics: Mapping[int, int]) -> GroupOffsets:
    return GroupOffsets(
        {
            name: TopicOffsets.of({partition: CommittedRow(offset, "") for partition, offset in rows.items()})
            for name, rows in topics.items()
        }
    )


class World:
    """Coordinators of both sides, and the logs of the partitions of `orders` and `all`."""

    def __init__(self) -> None:
        batch = write_batch([Record(n, None, b"x") for n in range(100)], base_offset=0)
        keys = [ORDERS, ("orders", 1), ("refunds", 0), ("all", 0)]
        self.source: Any = ScriptedLogs({key: [batch] for key in keys}, "here")
        self.target: Any = ScriptedLogs({key: [batch] for key in keys}, "there")
        self.maps = {ORDERS: mapped(ORDERS, ("", 0))}
        self.is_mirrored = lambda name: True
        # What the coordinators of the source answer, one after the other; the last one stays.
        self.answers: dict[str, list[GroupOffsets | Exception]] = {READERS: [committed(orders={0: 40})]}
        self.hidden: dict[str, GroupOffsets] = {}
        self.there: dict[str, GroupOffsets | Exception] = {}
        self.looks = 0

    async def look(self, *_: object) -> Survey:
        self.looks += 1
        here = {name: rows.pop(0) if len(rows) > 1 else rows[0] for name, rows in self.answers.items()}
        listed = {name: ListedGroup(name, 1) for name in here}
        return Survey(listed, {name: ListedGroup(name, 1) for name in self.there}, here, dict(self.there))

    async def commit(
        self, _: object, commits: Mapping[str, Sequence[CommitRow]], __: Mapping[str, int]
    ) -> dict[str, dict[TopicPartition, int]]:
        for group, rows in commits.items():
            known = self.there.get(group)
            topics = dict(known.topics) if isinstance(known, GroupOffsets) else {}
            for row in rows:
                parts = topics[row.topic].rows() if row.topic in topics else {}
                topics[row.topic] = TopicOffsets.of({**parts, row.partition: CommittedRow(row.offset, row.metadata)})
            self.there[group] = GroupOffsets(topics)
        return {group: {(row.topic, row.partition): 0 for row in rows} for group, rows in commits.items()}

    async def list_groups(self, _: object) -> dict[str, ListedGroup]:
        return {name: ListedGroup(name, 1) for name in self.there}

    async def offsets_of(self, _: object, names: Collection[str], **__: object) -> dict[str, GroupOffsets | Exception]:
        return {name: self.there[name] for name in names}

    def fail_over(self, checkpoints: Sequence[Checkpoint] = (), *, is_gone: bool = False) -> list[GroupStart]:
        settings = SyncSettings(lambda _: True, alias="east", is_mirrored=self.is_mirrored)

        async def run() -> list[GroupStart]:
            last = LastSync(None if is_gone else self.source, self.target, settings, self.maps)
            for row in checkpoints:
                last._see(row, 0)
                last._checkpoints._take(row, 0.0)
            nothing = mock.AsyncMock(return_value=True)
            with (
                mock.patch.multiple(last._checkpoints, start=nothing, refresh=nothing, open=nothing),
                mock.patch.object(last._checkpoints._writer, "write", nothing),
            ):
                return await last.run(is_dry=False)

        async def find(_: object, names: Collection[str]) -> dict[str, int]:
            return dict.fromkeys(names, 1)

        with (
            mock.patch.object(failover_groups, "look", self.look),
            mock.patch.object(failover_groups, "list_groups", self.list_groups),
            mock.patch.object(failover_groups, "offsets_of", self.offsets_of),
            mock.patch.object(failover_groups, "gone_groups", mock.AsyncMock(return_value=([], self.hidden))),
            mock.patch.object(failover_groups, "_PAUSE", 0.0),
            mock.patch.object(offset_writer, "commit_offsets", self.commit),
            mock.patch.object(offset_writer, "find_coordinators", find),
        ):
            return asyncio.run(run())


def exit_code(rows: list[GroupStart]) -> int:
    ends = (PartitionEnd("orders", 0, 100, 0),)
    report = FailoverReport("a", 0, False, True, True, ends, rows, True)
    assert all(row.advice in "\n".join(report.lines()) for row in rows)
    return report.exit_code


def found(rows: list[GroupStart]) -> dict[tuple[str, str], tuple[State, dict[int, int | None]]]:
    return {(row.group, row.topic): (row.state, dict(row.offsets)) for row in rows}


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    world = World()
    world.answers["late"] = [*[GroupOffsets({}, LOADING)] * 3, committed(orders={0: 60})]
    rows = world.fail_over()
    assert found(rows) == {
        (READERS, "orders"): (State.SYNCED, {0: 40}),
        ("late", "orders"): (State.SYNCED, {0: 60}),
    }
    assert exit_code(rows) == 0


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        pytest.param(GroupOffsets({}, LOADING), State.REFUSED, "COORDINATOR_LOAD_IN_PROGRESS (14)", id="it stays so"),
        pytest.param(GroupOffsets({}, NOT_ALLOWED), State.NO_RIGHTS, "--operation Describe --group away", id="no rights"),
        pytest.param(OSError("no answer"), State.UNMOVABLE, "no answer", id="the coordinator is away"),
        pytest.param(
            GroupOffsets({"orders": TopicOffsets(TopicOffsets.of({0: CommittedRow(1, "")}).raw * 2, 2, False)}),
            State.UNMOVABLE, "names a partition twice", id="the answer cannot be understood",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_on_target", [False, True])
def test_a_group_whose_offsets_cannot_be_read_has_a_row_and_the_others_are_moved(
    answer: GroupOffsets | Exception, state: State, words: str, is_on_target: bool
) -> None:
    world = World()
    world.answers["away"] = [committed(orders={0: 60}) if is_on_target else answer]
    if is_on_target:
        world.there["away"] = answer
    rows = world.fail_over()
    assert found(rows) == {(READERS, "orders"): (State.SYNCED, {0: 40}), ("away", ""): (state, {})}
    (row,) = [row for row in rows if not row.topic]
    assert words in row.advice and f"{'there' if is_on_target else 'here'}:9092" in row.advice
    assert row.again is None and world.looks <= failover_groups._ROUNDS
    assert exit_code(rows) == 3


def test_a_group_that_the_source_hides_has_a_row() -> None:
    world = World()
    world.hidden = {"secret": GroupOffsets({}, NOT_ALLOWED)}
    rows = world.fail_over()
    assert found(rows)["secret", ""] == (State.NO_RIGHTS, {}) and exit_code(rows) == 3


def test_topics_and_partitions_that_the_map_lacks_have_a_row() -> None:
    world = World()
    world.maps[("refunds", 0)] = PartitionMap()
    world.answers = {
        READERS: [committed(orders={0: 40, 1: 7}, audit={0: 3})],
        "payers": [committed(refunds={0: 12})],
        "never": [committed(refunds={0: -1})],
    }
    world.is_mirrored = lambda name: name != "audit"
    rows = world.fail_over()
    assert found(rows) == {
        (READERS, "orders"): (State.UNMAPPED, {0: 40, 1: None}),
        ("payers", "refunds"): (State.UNMAPPED, {0: None}),
    }
    assert {row.group: row.left_out for row in rows} == {"payers": (), READERS: ("audit",)}
    assert all("auto.offset.reset" in row.advice for row in rows) and exit_code(rows) == 3


def test_an_error_about_one_group_does_not_stop_the_others() -> None:
    world = World()
    world.answers["odd"] = [committed(orders={0: 41})]
    translate = PartitionMap.translate

    def failing(self: PartitionMap, place: Place, source: int) -> Any:
        if source == 41:
            raise ValueError("a bug")
        return translate(self, place, source)

    with mock.patch.object(PartitionMap, "translate", failing):
        rows = world.fail_over()
    assert found(rows) == {(READERS, "orders"): (State.SYNCED, {0: 40}), ("odd", ""): (State.UNMOVABLE, {})}
    assert exit_code(rows) == 3


def test_metadata_that_no_checkpoint_can_hold_is_the_trouble_of_its_group_alone() -> None:
    world = World()
    large = TopicOffsets.of({0: CommittedRow(60, "x" * 32_767)})
    # Bytes that are no UTF-8 are replaced by longer ones.
    large = TopicOffsets(large.raw.replace(b"x", b"\xff"), 1, False)
    world.answers["large"] = [GroupOffsets({"orders": large})]
    rows = world.fail_over()
    assert found(rows) == {
        (READERS, "orders"): (State.SYNCED, {0: 40}),
        ("large", "orders"): (State.REFUSED, {0: None}),
    }
    (row,) = [row for row in rows if row.group == "large"]
    assert "OFFSET_METADATA_TOO_LARGE (12)" in row.advice and exit_code(rows) == 3
    assert "large" not in world.there


def test_without_the_source_every_checkpoint_of_a_chosen_topic_has_a_row() -> None:
    world = World()
    world.there = {READERS: committed(orders={0: 40}), "away": BadFrame("nonsense")}
    world.is_mirrored = lambda name: name != "all"
    rows = world.fail_over(
        [
            Checkpoint(READERS, "orders", 0, 40, 40),
            Checkpoint("payers", "refunds", 0, 12, 12),
            Checkpoint("away", "orders", 0, 5, 5),
            Checkpoint(READERS, "deleted", 0, 5, 5),
            Checkpoint(READERS, "all", 0, 5, 5),
        ],
        is_gone=True,
    )
    assert found(rows) == {
        (READERS, "orders"): (State.SYNCED, {0: 40}),
        ("payers", "refunds"): (State.UNMAPPED, {0: None}),
        ("away", ""): (State.UNMOVABLE, {}),
    }
    assert exit_code(rows) == 3


def test_a_group_begins_where_the_other_topic_of_its_target_topic_needs_it() -> None:
    world = World()
    one, two = ("one", 0), ("two", 0)
    batch = world.source.logs[ORDERS]
    world.source.logs |= {one: batch, two: batch}
    # Records of `two` come after those of `one`, which the group has not read.
    world.maps = {one: mapped(one, ("all", 0), 50), two: mapped(two, ("all", 0), 50, at=50)}
    world.answers = {READERS: [committed(one={0: 20}, two={0: 40})], "others": [committed(one={0: 10})]}
    world.is_mirrored = lambda name: name == "two"
    rows = world.fail_over()
    assert found(rows) == {(READERS, "all"): (State.SYNCED, {0: 20})}
    assert [row.left_out for row in rows] == [("one",)]
