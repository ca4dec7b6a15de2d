"""Tries of the error table, with a stage that only pretends: which lines of the mirror's log count."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import attempt
from tests.support.attempt import Attempt, Cell
from tests.support.error_row import Row
from tests.support.refusals import Refusal

TOPIC = "hit"


class PretendedStage:
    """A stage whose topic stands still for three seconds, and whose mirror prints when it is told to."""

    def __init__(self, *, at_once: str = "", in_the_end: str = "", on_page: str = "") -> None:
        """`at_once` is printed when requests are refused, `in_the_end` when they are allowed; `on_page`: a reason."""
        self._at_once, self._in_the_end, self._on_page = at_once, in_the_end, on_page
        self.slack, self.topics, self.act = 1.0, [TOPIC], "act1"
        self.mirror = SimpleNamespace(text="", has_ended=False)
        self.status = SimpleNamespace(reasons={})
        self.pause = 3.0
        self.watch = SimpleNamespace(longest_pause=lambda *_: self.pause, ends=lambda _: (5, 5), settle=lambda: None)
        self.load = SimpleNamespace(pause=lambda: None)
        self.surplus: Counter[str] = Counter()

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


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing wait."""
    monkeypatch.setattr(attempt, "_rest", lambda *_: None)


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
