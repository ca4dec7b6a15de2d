"""The plan for a group in a topic: partitions whose offset the source does not tell, or no longer has."""

from __future__ import annotations

import pytest

from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.planning import Entry, Look, Planner
from mirrormaker.groups.routes import routes
from mirrormaker.model.group_sync import Log, Memory, State
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets


class Same:
    """The map of a partition that has the same offsets on both sides."""

    first, end = 0, 100

    def __init__(self, partition: int) -> None:
        self.places: list[Place] = [("", partition)]

    def translate(self, place: Place, source: int) -> Translated:
        return Translated(source, source)


MAPS = {("orders", number): Same(number) for number in (0, 1)}
LOOK = Look(MAPS, dict.fromkeys(MAPS, Log(0, 100)), {}, Horizons())


def planned(
    here: dict[int, CommittedRow], there: dict[int, int], memory: dict[int, Memory], *, state: str = "Empty"
) -> Entry:
    """Return the plan for a group in two partitions; `state` is that of the group on the target."""
    on_target = {number: CommittedRow(offset, "") for number, offset in there.items()}
    offsets = [GroupOffsets({"orders": TopicOffsets.of(rows)}) for rows in (here, on_target)]
    survey = Survey(
        {"billing": ListedGroup("billing", 1)},
        {"billing": ListedGroup("billing", 1, state=state)},
        {"billing": offsets[0]},
        {"billing": offsets[1]},
    )
    steps = Planner().plan(survey, routes(MAPS), LOOK, {("billing", "orders"): memory})
    ((_, _, entry),) = [step for step in steps if step is not None]
    return entry


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (88, State.UNSTABLE),
        (29, State.NO_RIGHTS),
        (30, State.NO_RIGHTS),
        (3, State.PENDING),
        (14, State.PENDING),
        (-1, State.PENDING),
    ],
)
def test_a_partition_whose_offset_the_source_does_not_tell(code: int, state: State) -> None:
    entry = planned({0: CommittedRow(7, ""), 1: CommittedRow(-1, "", code)}, {0: 7, 1: 5}, {0: Memory(7), 1: Memory(5)})
    assert {number: row.state for number, row in entry.decisions.items()} == {0: State.SYNCED, 1: state}
    assert all(row.commit is None for row in entry.decisions.values())


@pytest.mark.parametrize(
    ("there", "state", "expected"),
    [
        pytest.param(5, "Empty", State.DELETED, id="nobody uses it"),
        pytest.param(6, "Empty", State.OWNED, id="somebody has moved it on the target"),
        pytest.param(5, "Stable", State.ACTIVE, id="consumers on the target have not committed yet"),
    ],
)
def test_a_partition_that_is_deleted_on_the_source_while_another_one_remains(
    there: int, state: str, expected: State
) -> None:
    """The advice for a deleted one takes its offset away."""
    entry = planned({0: CommittedRow(7, "")}, {0: 7, 1: there}, {0: Memory(7), 1: Memory(5)}, state=state)
    assert entry.decisions[1].state is expected
    assert entry.state is expected
