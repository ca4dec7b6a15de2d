"""Which tool is measured with which workload in which round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bench.results import Measurement
from bench.tools import TOOLS, USUAL, Tool
from bench.workloads import AnyWorkload

ROUNDS = 5


def participants(work: AnyWorkload, names: Iterable[str]) -> list[Tool]:
    """Return the tools of a workload that were chosen, themselves or as variants of a chosen one."""
    chosen = set(names)
    return [tool for tool in TOOLS.values() if tool.name in work.tools and {tool.name, tool.variant_of} & chosen]


def rounds(work: AnyWorkload, tool: str, most: int = ROUNDS) -> int:
    """Return in how many of a full benchmark's rounds this tool is measured with this workload."""
    return min(most, work.fewer_runs.get(tool, most))


def turns(work: AnyWorkload, tools: Sequence[Tool], wanted: Sequence[int]) -> list[list[Tool]]:
    """Return the tools of each round, in their order. `wanted` says for each tool in how many rounds it takes part.

    Each round begins with another tool, so that none always follows the same one.
    """
    result = []
    for number in range(max(wanted, default=0)):
        taking = [tool for tool, count in zip(tools, wanted, strict=True) if number < count]
        first = number % len(taking)
        result.append([*taking[first:], *taking[:first]])
    return result


def lacking(work: AnyWorkload, measurements: Iterable[Measurement], tools: Iterable[Tool]) -> list[int]:
    """Return how many runs of each tool are not stored yet, of those that belong to a full benchmark."""
    done = Counter(row.tool for row in measurements if row.workload == work.name and row.figures)
    return [max(0, rounds(work, tool.name) - done[tool.name]) for tool in tools]


def missing(works: Iterable[AnyWorkload], measurements: Sequence[Measurement]) -> dict[str, int]:
    """Return how many rounds each workload lacks, without those that lack none."""
    counts = {work.name: max(lacking(work, measurements, participants(work, USUAL)), default=0) for work in works}
    return {name: count for name, count in counts.items() if count}
