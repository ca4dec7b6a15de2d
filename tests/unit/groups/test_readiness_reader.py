"""How a look at both clusters judges what the mirror has remembered, and what the target has of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mirrormaker.groups.checkpoints import Checkpoint, Checkpoints
from mirrormaker.groups.readiness import ReadinessQuestion
from mirrormaker.groups.readiness_reader import ReadinessReader
from mirrormaker.model.group_sync import Decision, Log, State

KEY = ("billing", "orders")


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
