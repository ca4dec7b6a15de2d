"""When a mirror with `--exit.when.caught.up` is done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.driver import goals as goals_module
from mirrormaker.driver.goals import Goals
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.errors import ConnectionLost
from mirrormaker.model.position import Cut, Identity, Position
from tests.support.scripted_logs import ScriptedLogs


class Source(ScriptedLogs):
    """A source whose log of orders-0 ends at `end`, or that is away."""

    def __init__(self, end: int) -> None:
        super().__init__({("orders", 0): ()})
        self.end, self.is_away = end, False

    async def ask(self, request: Any, node: int | None = None, **more: Any) -> Any:
        if self.is_away:
            raise ConnectionLost("scripted")
        return await super().ask(request, node, **more)

    def _offset(self, key: tuple[str, int], when: int, replica: int) -> int:
        return self.end


class Stage:
    """Goals for one partition at offset 10."""

    def __init__(self, end: int) -> None:
        position = Position("orders", 0, 10, -1, "", Identity(1, 0), "there", "", 1, (Cut(0, 0, 0),))
        self.owned, self.source = OwnedPartition(position), Source(end)
        scheduler: Any = Owned({("orders", 0): self.owned})
        self.scheduler = scheduler
        generation = SimpleNamespace(assigned={("orders", 0)})
        membership: Any = SimpleNamespace(is_settled=True, topics=("orders",), generation=generation)
        acquisition: Any = SimpleNamespace(pending=set(), assigned=asyncio.Event())
        self.goals = Goals(self.source, False, membership, scheduler, acquisition, dict)
        self.membership, self.acquisition = membership, acquisition

    def look(self) -> bool:
        asyncio.run(self.goals.set())
        return self.goals.are_reached()


class Owned:
    """As much of a scheduler as goals look at."""

    def __init__(self, owned: dict[tuple[str, int], OwnedPartition]) -> None:
        self.owned, self.streams_at_work = owned, 0

    def __iter__(self) -> Any:
        return iter(self.owned.values())


def test_records_that_no_stream_mirrors_keep_the_mirror_from_ending() -> None:
    stage = Stage(410)
    for offset, is_reached in ((10, False), (409, False), (410, True)):
        stage.owned.position = replace(stage.owned.position, offset=offset)
        assert stage.look() is is_reached
        assert stage.owned.lag == 410 - offset
    stage = Stage(410)
    stage.look()
    assert (stage.owned.goal, stage.owned.lag, stage.goals.were_reached) == (410, 400, False)


def test_a_goal_that_is_not_known_is_not_reached() -> None:
    stage = Stage(10)
    stage.source.is_away = True
    assert not stage.look()
    stage.source.is_away = False
    assert stage.look(), "the source says that nothing is left"
    stage.acquisition.assigned.set()
    assert stage.look() and stage.goals.were_reached, "it stays reached while the flow ends"


def test_a_process_that_lost_its_streams_and_then_its_partitions_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goals_module, "_SETTLED_AFTER", -1e9)
    stage = Stage(410)
    stage.scheduler.owned.clear()
    stage.membership.generation.assigned = set()
    assert not stage.look()
    stage.scheduler.streams_at_work = 1
    assert stage.look(), "the others mirror everything"


def test_partitions_without_a_start_position_keep_the_mirror_from_ending() -> None:
    stage = Stage(10)
    stage.membership.generation.assigned = {("orders", 0), ("orders", 1)}
    assert not stage.look()
