"""How a look at both clusters judges what the mirror has remembered, and what the target has of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest import mock

import pytest

from mirrormaker.groups import readiness_reader
from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.readiness import ReadinessQuestion
from mirrormaker.groups.readiness_reader import ReadinessReader
from mirrormaker.model.group_sync import Decision, Log, State
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets

KEY = ("billing", "orders")
GOOD = TopicOffsets.of({0: CommittedRow(40, "")})


@pytest.mark.parametrize(
    ("on_target", "age", "expected"),
    [
        pytest.param(40, 10.0, State.SYNCED, id="the group moved on a moment ago"),
        pytest.param(40, 60.0, State.PENDING, id="it was written long ago"),
        pytest.param(30, 0.5, State.SYNCED, id="the commit is on its way"),
        pytest.param(30, 10.0, State.PENDING, id="the target has refused the commit, which is tried again and again"),
    ],
)
def test_an_offset_that_was_only_remembered_is_not_written(on_target: int, age: float, expected: State) -> None:
    nothing: Any = None
    reader = ReadinessReader(None, nothing, ReadinessQuestion(lambda _: True))
    reader._checkpoints = Checkpoints(nothing, "east", reader._see)
    row = Checkpoint(*KEY, 0, upstream=40, downstream=40, before=30)
    reader._see(row, int((time.time() - age) * 1000))
    reader._checkpoints._take(row, time.time() - age)
    found = reader._row(KEY, 0, 50, on_target, Decision(State.SYNCED, 50, offset=50), Log(0, 100))
    assert found.cost.state is expected
    assert found.cost.again == 50 - on_target


def reader_of(*groups: str) -> ReadinessReader:
    """Return a reader that has found checkpoints of these groups."""
    target: Any = mock.Mock(endpoint="new:9092")
    reader = ReadinessReader(None, target, ReadinessQuestion(lambda _: True))
    reader._checkpoints = Checkpoints(target, "east", reader._see)
    for group in groups:
        row = Checkpoint(group, "orders", 0, upstream=40, downstream=40)
        reader._see(row, int(time.time() * 1000))
        reader._checkpoints._take(row, 0.0)
    return reader


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(GroupOffsets({}, 14), id="the coordinator is loading"),
        pytest.param(
            GroupOffsets({"orders": TopicOffsets(GOOD.raw * 2, 2, False)}), id="rows that contradict each other"
        ),
    ],
)
def test_a_group_that_cannot_be_read_leaves_the_others_alone(trouble: GroupOffsets) -> None:
    reader = reader_of("billing", "odd")
    listed = {name: ListedGroup(name, 1) for name in ("billing", "odd")}
    answers = {"billing": GroupOffsets({"orders": GOOD}), "odd": trouble}
    with (
        mock.patch.object(readiness_reader, "list_groups", mock.AsyncMock(return_value=listed)),
        mock.patch.object(readiness_reader, "offsets_of", mock.AsyncMock(return_value=answers)),
        mock.patch.object(readiness_reader, "_ends", mock.AsyncMock(return_value={("orders", 0): Log(0, 100)})),
    ):
        rows = asyncio.run(reader._without_source())
    states = {(row.group, row.topic): row.state for row in rows}
    assert states["billing", "orders"] is State.SYNCED
    assert not states["odd", ""].is_ready and len(states) == 2


def test_a_coordinator_that_goes_on_loading_is_asked_a_few_times_and_no_more() -> None:
    reader = reader_of()
    survey = Survey({}, {}, {"billing": GroupOffsets({"orders": GOOD}), "odd": GroupOffsets({}, 14)}, {})
    looks = mock.AsyncMock(return_value=survey)
    nobody: Any = None
    with mock.patch.object(readiness_reader, "look", looks), mock.patch.object(readiness_reader, "_PAUSE", 0.0):
        found = asyncio.run(reader._settled_survey(nobody))
    assert found.source_offsets == survey.source_offsets and 1 < looks.await_count <= 10
