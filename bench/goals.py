"""The goals of our mirror, most of them against the Java tools with their defaults, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.results import Figures

_JAVA = ("mm1", "mm2")
_MM1, _MM2, _HANDLER, _NO_MAP = ("mm1",), ("mm2",), ("mm1-handler",), ("ours-no-map",)
_RIVALS: dict[tuple[str, ...], str] = {
    _MM1: "the Java MirrorMaker's",
    _MM2: "MirrorMaker 2's",
    _HANDLER: "the Java MirrorMaker's",
    _NO_MAP: "that without the offset map",
}


@dataclass(frozen=True)
class Goal:
    """Our figure must be at least or at most `limit`. If there are tools in `against`, it is divided by the best one's first."""

    title: str
    workload: str
    figure: str
    limit: float
    against: tuple[str, ...] = ()
    at_least: bool = False
    unit: str = ""  # of a figure that is not divided
    tool: str = "ours"


@dataclass(frozen=True)
class Verdict:
    """A goal and the measured figure or ratio, which is None if something was not measured."""

    goal: Goal
    value: float | None

    @property
    def met(self) -> bool | None:
        """True if the goal is met, None if it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.goal.limit if self.goal.at_least else self.value <= self.goal.limit

    def __str__(self) -> str:
        goal = self.goal
        wanted = f"goal: at {'least' if goal.at_least else 'most'} {goal.limit:g}"
        if self.value is None:
            return f"unknown: {goal.title}, not measured ({wanted})"
        unit = f" {goal.unit}" if goal.unit else ""
        if goal.against:
            unit = " of " + _RIVALS.get(goal.against, "the better Java tool's")
        # Three digits, so that a figure that misses its goal by little is not shown as the goal.
        value = f"{self.value:.4g}" if self.value >= 100 else f"{self.value:.3g}"
        return f"{'met' if self.met else 'missed'}: {goal.title}, {value}{unit} ({wanted})"


# W3, W4, W5 and H: the ratios of the run of 2026-11-16, which must not become worse.
GOALS = (
    Goal("records/s on W1", "W1", "records_per_s", 3.6, _JAVA, at_least=True),
    Goal("CPU per GB on W1", "W1", "cpu_s_per_gb", 0.17, _JAVA),
    Goal("records/s on W2", "W2", "records_per_s", 8, _JAVA, at_least=True),
    Goal("share of the limit on W2", "W2", "share_of_limit", 0.9, at_least=True),
    Goal("records/s on W3", "W3", "records_per_s", 5.19, _JAVA, at_least=True),
    Goal("records/s on W4", "W4", "records_per_s", 3.19, _JAVA, at_least=True),
    Goal("records/s on W5", "W5", "records_per_s", 3.85, _JAVA, at_least=True),
    Goal("records/s on W6", "W6", "records_per_s", 1.5, _JAVA, at_least=True),
    Goal(
        "records/s on H, a handler of tables", "H", "records_per_s", 4.18, _HANDLER, at_least=True, tool="ours-tables"
    ),
    Goal(
        "records/s on H, a handler of records", "H", "records_per_s", 0.67, _HANDLER, at_least=True, tool="ours-records"
    ),
    *(
        goal
        for work in ("W1", "W3")
        for goal in (
            Goal(f"records/s on {work} with the offset map", work, "records_per_s", 0.99, _NO_MAP, at_least=True),
            Goal(f"CPU per GB on {work} with the offset map", work, "cpu_s_per_gb", 1.02, _NO_MAP),
        )
    ),
    Goal("CPU on W7", "W7", "mirror_cpu", 0.35, _MM1),
    Goal("source broker's CPU on W7", "W7", "source_cpu", 1, _MM1),
    Goal("target broker's CPU on W7", "W7", "target_cpu", 1, _MM1),
    *(
        Goal(f"latency {title} on {work}", work, figure, 1, _MM1)
        for work in ("W7", "L")
        for title, figure in (("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms"))
    ),
    Goal("first record on W1", "W1", "first_record_s", 5, unit="s"),
    Goal("first record on W1", "W1", "first_record_s", 0.6, _MM2),
    Goal("peak memory on W1", "W1", "peak_mb", 600, unit="MB"),
    Goal("peak memory on W2", "W2", "peak_mb", 600, unit="MB"),
    Goal("mirrors again after a kill", "R", "restart_s", 8, unit="s"),
    Goal("memory for each further stream", "M", "mb_per_stream", 60, unit="MB"),
    Goal("CPU with 1,000 idle partitions", "I", "idle_cpu", 3, unit="% of a core"),
)


def evaluate(figures: Mapping[tuple[str, str], Figures]) -> list[Verdict]:
    """Return a verdict on each goal."""
    return [Verdict(goal, _value(goal, figures)) for goal in GOALS]


def _value(goal: Goal, figures: Mapping[tuple[str, str], Figures]) -> float | None:
    ours = figures.get((goal.workload, goal.tool), {}).get(goal.figure)
    if ours is None or not goal.against:
        return ours
    rivals = [figures.get((goal.workload, tool), {}).get(goal.figure) for tool in goal.against]
    known = [value for value in rivals if value]
    return ours / (max(known) if goal.at_least else min(known)) if known else None
