"""Groups that are gone from the source: users of the target count before the advice to delete what the mirror wrote."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from mirrormaker.groups import readiness_gone
from mirrormaker.groups.group_survey import Survey
from mirrormaker.model.group_sync import Memory, State
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets

KEY = ("billing", "orders")
MEMORY = {KEY: {0: Memory(5), 1: Memory(8)}}


@pytest.mark.parametrize(
    ("there", "state", "expected"),
    [
        pytest.param({0: 5, 1: 8}, "Empty", [State.DELETED, State.DELETED], id="nobody uses it"),
        pytest.param({0: 5, 1: 9}, "Empty", [State.DELETED, State.OWNED], id="somebody has moved a part of it"),
        pytest.param({0: 5, 1: 8}, "Stable", [State.ACTIVE, State.ACTIVE], id="consumers have not committed yet"),
        pytest.param({0: 6, 1: 9}, "Empty", [], id="nothing of it is ours"),
    ],
)
def test_what_the_target_has_of_a_group_that_is_gone(there: dict[int, int], state: str, expected: list[State]) -> None:
    source: Any = None
    rows = TopicOffsets.of({number: CommittedRow(offset, "") for number, offset in there.items()})
    listed = {"billing": ListedGroup("billing", 1, state=state)}
    survey = Survey({}, listed, {}, {"billing": GroupOffsets({"orders": rows})})
    with mock.patch.object(readiness_gone, "_hidden", mock.AsyncMock(return_value={})):
        gone, hidden = asyncio.run(readiness_gone.gone_groups(source, survey, MEMORY, ()))
    assert [row[3] for row in gone] == expected
    assert [row[:3] for row in gone] == [(KEY, *row) for row in there.items()][: len(expected)]
    assert not hidden
