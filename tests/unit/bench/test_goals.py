"""Goals: ratios to the better Java tool, and bounds of their own."""

from __future__ import annotations

from bench.goals import GOALS, Goal, Verdict, evaluate
from bench.schedule import participants
from bench.tools import USUAL
from bench.workloads import FULL


def value(title: str, figures: dict[tuple[str, str], dict[str, float]]) -> Verdict:
    return next(verdict for verdict in evaluate(figures) if verdict.goal.title == title)


def test_speed_is_held_against_the_faster_java_tool() -> None:
    figures = {
        ("W1", tool): {"records_per_s": speed} for tool, speed in (("ours", 360.0), ("mm1", 90.0), ("mm2", 50.0))
    }
    verdict = value("records/s on W1", figures)
    assert verdict.value == 4.0
    assert verdict.met
    assert str(verdict) == "met: records/s on W1, 4 of the better Java tool's (goal: at least 3.6)"


def test_cost_is_held_against_the_cheaper_java_tool() -> None:
    figures = {("W1", tool): {"cpu_s_per_gb": cost} for tool, cost in (("ours", 3.0), ("mm1", 12.0), ("mm2", 20.0))}
    assert value("CPU per GB on W1", figures).value == 0.25
    assert value("CPU per GB on W1", figures).met is False


def test_a_bound_needs_no_java_tool() -> None:
    verdict = value("share of the limit on W2", {("W2", "ours"): {"share_of_limit": 0.89}})
    assert verdict.met is False
    assert str(verdict) == "missed: share of the limit on W2, 0.89 (goal: at least 0.9)"


def test_a_figure_of_zero_is_a_figure() -> None:
    goal = Goal("memory", "M", "mb_per_stream", 60, unit="MB")
    assert str(Verdict(goal, 0.0)) == "met: memory, 0 MB (goal: at most 60)"


def test_a_goal_without_figures_is_unknown() -> None:
    assert all(verdict.met is None for verdict in evaluate({}))
    assert str(value("CPU on W7", {})) == "unknown: CPU on W7, not measured (goal: at most 0.35)"


def test_a_full_benchmark_measures_everything_that_goals_need() -> None:
    tools = {work.name: {tool.name for tool in participants(work, USUAL)} for work in FULL}
    for goal in GOALS:
        assert goal.tool in tools[goal.workload], goal
        assert not goal.against or set(goal.against) & tools[goal.workload], goal
