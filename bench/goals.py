"""The goals of our mirror against the Java tools with their defaults, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.results import Figures

_JAVA = ("mm1", "mm2")
_MM1, _MM2 = ("mm1",), ("mm2",)
_RIVALS: dict[tuple[str, ...], str] = {_MM1: "the Java MirrorMaker's", _MM2: "MirrorMaker 2's"}


@dataclass(frozen=True)
class Goal:
    """Our figure, divided by that of the best tool in `against`, must be at least or at most `factor`."""

    title: str
    workload: str
    figure: str
    against: tuple[str, ...]
    factor: float
    at_least: bool = False


@dataclass(frozen=True)
class Verdict:
    """A goal and the measured ratio, which is None if one of the two figures was not measured."""

    goal: Goal
    ratio: float | None

    @property
    def met(self) -> bool | None:
        """True if the goal is met, None if it was not measured."""
        if self.ratio is None:
            return None
        return self.ratio >= self.goal.factor if self.goal.at_least else self.ratio <= self.goal.factor

    def __str__(self) -> str:
        goal = self.goal
        rival = _RIVALS.get(goal.against, "the better Java tool's")
        wanted = f"goal: at {'least' if goal.at_least else 'most'} {goal.factor:g}"
        if self.ratio is None:
            return f"unknown: {goal.title}, not measured ({wanted})"
        return f"{'met' if self.met else 'missed'}: {goal.title}, {self.ratio:.2f} of {rival} ({wanted})"


GOALS = (
    Goal("records/s on W1", "W1", "records_per_s", _JAVA, 2.2, at_least=True),
    Goal("records/s on W2", "W2", "records_per_s", _JAVA, 6, at_least=True),
    Goal("records/s on W3", "W3", "records_per_s", _JAVA, 3, at_least=True),
    Goal("records/s on W4", "W4", "records_per_s", _JAVA, 2, at_least=True),
    Goal("records/s on W5", "W5", "records_per_s", _JAVA, 1.5, at_least=True),
    Goal("records/s on W6", "W6", "records_per_s", _JAVA, 1.5, at_least=True),
    Goal("CPU per GB on W1", "W1", "cpu_s_per_gb", _JAVA, 0.4),
    Goal("CPU per GB on W2", "W2", "cpu_s_per_gb", _JAVA, 0.125),
    Goal("peak memory on W1", "W1", "peak_mb", _MM2, 1),
    Goal("peak memory on W2", "W2", "peak_mb", _MM2, 1),
    Goal("CPU on W7", "W7", "mirror_cpu", _MM1, 0.35),
    Goal("source broker's CPU on W7", "W7", "source_cpu", _MM1, 1),
    Goal("target broker's CPU on W7", "W7", "target_cpu", _MM1, 1),
    Goal("latency p50", "L", "p50_ms", _MM2, 1),
    Goal("latency p99", "L", "p99_ms", _MM2, 1),
    Goal("first record on W1", "W1", "first_record_s", _MM2, 1.25),
    Goal("first record on W2", "W2", "first_record_s", _MM2, 1.25),
)


def evaluate(figures: Mapping[tuple[str, str], Figures]) -> list[Verdict]:
    """Return a verdict on each goal."""
    return [Verdict(goal, _ratio(goal, figures)) for goal in GOALS]


def _ratio(goal: Goal, figures: Mapping[tuple[str, str], Figures]) -> float | None:
    ours = figures.get((goal.workload, "ours"), {}).get(goal.figure)
    rivals = [figures.get((goal.workload, tool), {}).get(goal.figure) for tool in goal.against]
    known = [value for value in rivals if value]
    if ours is None or not known:
        return None
    return ours / (max(known) if goal.at_least else min(known))
