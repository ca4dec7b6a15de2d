"""Which tool runs in which round, and what is still missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bench import schedule
from bench.results import Measurement
from bench.tools import USUAL
from bench.workloads import FULL, W1, H

# Without the variants of our mirror.
PLAIN = replace(W1, tools=USUAL)


def measured(tool: str, runs: int) -> list[Measurement]:
    return [Measurement("W1", tool, run, {"records_per_s": 1.0}) for run in range(runs)]


def test_each_round_begins_with_another_tool() -> None:
    tools = schedule.participants(PLAIN, USUAL)
    rounds = schedule.turns(PLAIN, tools, [5, 5, 3])
    assert [[tool.name for tool in tools] for tools in rounds] == [
        ["ours", "mm1", "mm2"],
        ["mm1", "mm2", "ours"],
        ["mm2", "ours", "mm1"],
        ["mm1", "ours"],
        ["ours", "mm1"],
    ]


def test_tuned_tools_take_part_only_if_they_are_chosen() -> None:
    assert [tool.name for tool in schedule.participants(PLAIN, USUAL)] == ["ours", "mm1", "mm2"]
    assert [tool.name for tool in schedule.participants(W1, ["mm1-tuned"])] == ["mm1-tuned"]


def test_variants_take_part_with_their_tools() -> None:
    assert [tool.name for tool in schedule.participants(H, USUAL)] == ["ours-records", "ours-tables", "mm1-handler"]
    assert [tool.name for tool in schedule.participants(W1, USUAL)] == ["ours", "mm1", "mm2", "ours-no-map"]


def test_a_tool_that_decides_no_goal_runs_in_fewer_rounds() -> None:
    work = replace(PLAIN, fewer_runs={"mm2": 2})
    assert [schedule.rounds(work, tool) for tool in ("ours", "mm2")] == [5, 2]
    assert schedule.rounds(work, "mm2", 1) == 1


def test_only_the_runs_that_are_not_stored_are_lacking() -> None:
    tools = schedule.participants(PLAIN, USUAL)
    stored = measured("ours", 5) + measured("mm1", 3)
    assert dict(zip((tool.name for tool in tools), schedule.lacking(PLAIN, stored, tools), strict=True)) == {
        "ours": 0,
        "mm1": 2,
        "mm2": PLAIN.fewer_runs["mm2"],
    }


def test_a_run_without_figures_is_lacking() -> None:
    tools = schedule.participants(PLAIN, ["ours"])
    assert schedule.lacking(PLAIN, [Measurement("W1", "ours", 1, {}, ("it ended",))], tools) == [5]


def test_nothing_is_missing_after_a_full_benchmark() -> None:
    stored = [
        Measurement(work.name, tool.name, number, {"any": 1.0})
        for work in FULL
        for tool in schedule.participants(work, USUAL)
        for number in range(schedule.rounds(work, tool.name))
    ]
    assert schedule.missing(FULL, stored) == {}
    assert schedule.missing(FULL, stored[1:]) == {"W1": 1}


def test_every_workload_has_its_tools_in_at_least_one_round() -> None:
    for work in FULL:
        tools = schedule.participants(work, USUAL)
        counts = Counter(
            tool.name
            for taking in schedule.turns(work, tools, [schedule.rounds(work, tool.name) for tool in tools])
            for tool in taking
        )
        assert all(counts[tool.name] for tool in tools), work.name
