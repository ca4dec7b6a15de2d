"""Tries of the error table, with a stage that only pretends: which lines of the mirror's log count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import attempt, own_attempt
from tests.support.attempt import Attempt, Cell
from tests.support.error_row import Row
from tests.support.own_attempt import OwnAttempt
from tests.support.refusals import Refusal

TOPIC = "hit"


class PretendedStage:
    """A stage whose topic stands still for three seconds, and whose mirror prints when it is told to."""

    def __init__(self, *, at_once: str = "", in_the_end: str = "", on_page: str = "") -> None:
        """`at_once` is printed when requests are refused, `in_the_end` when they are allowed; `on_page`: a reason."""
        self._at_once, self._in_the_end, self._on_page = at_once, in_the_end, on_page
        self.slack, self.topics, self.alias = 1.0, [TOPIC], "alias"
        self.mirror = SimpleNamespace(text="", has_ended=False)
        self.status = SimpleNamespace(reasons={})
        self.pause = 3.0
        self.watch = SimpleNamespace(longest_pause=lambda *_: self.pause, ends=lambda _: (5, 5), settle=lambda: None)
        self.load = SimpleNamespace(pause=lambda: None)
        self.surplus: Counter[str] = Counter()
        self.groups = SimpleNamespace(begin=lambda *_, **__: None)
        self.behind_groups: Iterator[list[str]] = iter([])
        self.map_ends = iter([4, 5])

    def proxy(self, _: str) -> PretendedStage:
        return self

    def refuse(self, request: str, codes: dict[str, int]) -> Refusal:
        self.mirror.text += self._at_once
        if self._on_page:
            self.status.reasons[TOPIC] = {self._on_page}
        refusal = Refusal(request, codes)
        refusal.hits.update(codes.keys())
        return refusal

    def allow(self, *_: Refusal) -> None:
        self.mirror.text += self._in_the_end

    def undelivered(self) -> Counter[str]:
        return Counter()

    def check_mirror(self) -> None:
        """Do nothing: nothing goes wrong here."""

    def waiting(self, _: object) -> list[str]:
        return []

    def behind(self, _: str) -> int:
        return 0

    def misplaced(self, _: str) -> list[str]:
        return []

    def groups_behind(self) -> list[str]:
        return next(self.behind_groups, [])

    def map_end(self) -> int:
        return next(self.map_ends)


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing wait."""
    for module in (attempt, own_attempt):
        monkeypatch.setattr(module, "rest", lambda *_: None)
    monkeypatch.setattr(own_attempt, "_NAMED", 0.1)


def problems(kind: type[Attempt], row: Row, stage: Any) -> list[str]:
    """Try one code, and return what is wrong with its cell."""
    cell = Cell(row.name, 29)
    tried = kind(stage, row, {TOPIC: cell}, [TOPIC], [])
    tried.run()
    return cell.problems


NEW = Row("CreateTopics", "target", new=True)


def test_a_topic_that_stands_still_has_to_be_named_before_the_error_ends() -> None:
    in_time = PretendedStage(at_once="topic hit cannot be created")
    assert not problems(Attempt, NEW, in_time)
    late = PretendedStage(in_the_end="created topic hit")
    assert problems(Attempt, NEW, late) == ["stood still for 3.0 s and is not named"]


def test_a_topic_that_the_status_page_shows_is_named() -> None:
    assert not problems(Attempt, NEW, PretendedStage(on_page="it cannot be created"))


def test_a_topic_that_did_not_stand_still_needs_no_name() -> None:
    stage = PretendedStage()
    stage.pause = 0.9
    assert not problems(Attempt, NEW, stage)


MAP = Row("Produce", "target", why="offset map", own="__mirrormaker_offsets", says="the offset map cannot be kept")


def test_no_mirrored_topic_may_notice_an_error_of_the_offset_map() -> None:
    stage = PretendedStage(at_once="the offset map cannot be kept: refused")
    assert problems(OwnAttempt, MAP, stage) == ["mirrored topics stood still for 3.0 s"]


def test_the_mirror_has_to_say_that_it_cannot_keep_the_offset_map_while_that_is_so() -> None:
    stage = PretendedStage(in_the_end="the offset map cannot be kept: refused")
    stage.pause = 0.0
    assert problems(OwnAttempt, MAP, stage) == ["the log does not say 'the offset map cannot be kept'"]


def test_the_offset_map_has_to_grow_after_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_attempt, "_KEPT", 0.1)
    stage = PretendedStage(at_once="the offset map cannot be kept: refused")
    stage.pause, stage.map_ends = 0.0, iter([4] * 99)
    assert problems(OwnAttempt, MAP, stage) == ["the offset map is written: not within 0.1 s after the error"]


GROUPS = Row("ListGroups", "source", why="groups", groups=True, whole=True)


def test_the_offsets_of_groups_have_to_wait_for_the_end_of_the_error_and_then_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_attempt, "_KEPT", 0.1)
    stage = PretendedStage()
    stage.pause, stage.behind_groups = 0.0, iter([[], ["g"], ["g"], []])
    assert not problems(OwnAttempt, GROUPS, stage)
    stage.behind_groups = iter([])
    stage.map_ends = iter([4])
    assert problems(OwnAttempt, GROUPS, stage) == ["the groups are in step in spite of the error"]
    stage.behind_groups = iter([[], *[["g"]] * 99])
    stage.map_ends = iter([4])
    assert problems(OwnAttempt, GROUPS, stage) == ["the groups are in step: not within 0.1 s after the error g"]
