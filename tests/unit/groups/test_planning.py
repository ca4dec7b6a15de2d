"""The plan for groups: partitions whose offset the source does not tell or no longer has, old offsets, and trouble of one group."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.errors import BadFrame
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
    here: dict[int, CommittedRow],
    there: dict[int, int],
    memory: dict[int, Memory],
    *,
    state: str = "Empty",
    kind: str = "classic",
    is_writing: bool = True,
    renewed_before: float = 0.0,
) -> Entry:
    """Return the plan for a group in two partitions; `state` is that of the group on the target."""
    on_target = {number: CommittedRow(offset, "") for number, offset in there.items()}
    offsets = [GroupOffsets({"orders": TopicOffsets.of(rows)}) for rows in (here, on_target)]
    survey = Survey(
        {"billing": ListedGroup("billing", 1, type=kind)},
        {"billing": ListedGroup("billing", 1, state=state, type=kind)},
        {"billing": offsets[0]},
        {"billing": offsets[1]},
    )
    planner, remembered = Planner(is_writing=is_writing), {("billing", "orders"): memory}
    steps = planner.plan(survey, routes(MAPS), LOOK, remembered, renewed_before=renewed_before)
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


OLD, NEW = 1000.0, 2000.0


@pytest.mark.parametrize(
    ("there", "memory", "more", "expected"),
    [
        pytest.param(7, Memory(7, written_at=OLD), {}, 7, id="ours, and old"),
        pytest.param(7, Memory(7, written_at=NEW), {}, None, id="ours, and not old"),
        pytest.param(5, Memory(5, written_at=OLD), {}, 7, id="the group has moved on"),
        pytest.param(8, Memory(7, written_at=OLD), {}, None, id="somebody else's"),
        pytest.param(7, Memory(7, written_at=OLD), {"state": "Stable"}, None, id="active on the target"),
        pytest.param(
            7, Memory(7, written_at=OLD), {"kind": "share"}, None, id="the offsets of share groups do not expire"
        ),
        pytest.param(7, Memory(7, written_at=OLD), {"is_writing": False}, None, id="rows of the memory do not either"),
    ],
)
def test_an_old_offset_is_written_again_if_it_is_ours(
    there: int, memory: Memory, more: dict[str, Any], expected: int | None
) -> None:
    entry = planned({0: CommittedRow(7, "")}, {0: there}, {0: memory}, renewed_before=1500.0, **more)
    assert entry.decisions[0].commit == expected


GOOD = TopicOffsets.of({0: CommittedRow(7, "")})
BAD = TopicOffsets(GOOD.raw * 2, 2, False)  # the same partition twice


def plan(planner: Planner, **groups: TopicOffsets) -> set[str]:
    """Return the groups that were looked at."""
    listed = {name: ListedGroup(name, 1) for name in groups}
    survey = Survey(listed, {}, {name: GroupOffsets({"orders": rows}) for name, rows in groups.items()}, {})
    return {step[0] for step in planner.plan(survey, routes(MAPS), LOOK, {}) if step is not None}


def test_a_group_whose_offsets_cannot_be_understood_leaves_the_others_alone() -> None:
    planner = Planner()
    assert plan(planner, billing=GOOD, odd=GOOD, shipping=GOOD) == {"billing", "odd", "shipping"}
    known = planner.entries["odd", "orders"].decisions
    for _ in range(2):
        assert plan(planner, billing=GOOD, odd=BAD, shipping=GOOD) == {"billing", "shipping"}
        assert isinstance(planner.troubles["odd"], BadFrame) and len(planner.troubles) == 1
        assert planner.entries["odd", "orders"].decisions is known
    assert "odd" in plan(planner, billing=GOOD, odd=GOOD, shipping=GOOD)
    assert planner.troubles == {}
