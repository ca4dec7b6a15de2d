"""One group's trouble stays the trouble of one group: the plan for the others is made all the same."""

from __future__ import annotations

from mirrormaker.errors import BadFrame
from mirrormaker.groups.group_survey import Survey
from mirrormaker.groups.horizons import Horizons
from mirrormaker.groups.planning import Look, Planner
from mirrormaker.groups.routes import routes
from mirrormaker.model.group_sync import Log
from mirrormaker.model.offset_runs import Translated
from mirrormaker.model.position import Place
from mirrormaker.wire.client.group_offsets import ListedGroup
from mirrormaker.wire.protocol.group_messages import CommittedRow, GroupOffsets, TopicOffsets

KEY = ("orders", 0)
GOOD = TopicOffsets.of({0: CommittedRow(7, "")})
BAD = TopicOffsets(GOOD.raw * 2, 2, False)  # the same partition twice


class Same:
    """The map of a partition that has the same offsets on both sides."""

    first, end = 0, 100
    places: list[Place] = [("", 0)]  # noqa: RUF012

    def translate(self, place: Place, source: int) -> Translated:
        return Translated(source, source)


def plan(planner: Planner, **groups: TopicOffsets) -> set[str]:
    """Return the groups that were looked at."""
    maps = {KEY: Same()}
    listed = {name: ListedGroup(name, 1) for name in groups}
    survey = Survey(listed, {}, {name: GroupOffsets({"orders": rows}) for name, rows in groups.items()}, {})
    look = Look(maps, {KEY: Log(0, 100)}, {}, Horizons())
    return {step[0] for step in planner.plan(survey, routes(maps), look, {}) if step is not None}


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
