"""Run fault cases one after the other. Problems do not end the run; they are part of the results."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tests.support.counting import Count

from faults import BUILD
from faults.case import Case, Result, SeparateCase
from faults.clusters import FaultClusters
from faults.scenario import Scenario, keep_logs

Progress = Callable[[Case, str], None]

_TWO_DAYS = 2 * 86_400.0
_QUICK_FACTOR = 2  # --quick runs beside other tests and is about records: pauses may take this many times as long


def group_by_mirrors(cases: Iterable[Case]) -> list[list[Case]]:
    """Return cases that need the same mirrors together."""
    groups: dict[tuple[int, bool, bool], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.processes, case.expired, case.cluster), []).append(case)
    return list(groups.values())


def run_cases(
    clusters: FaultClusters,
    cases: Sequence[Case],
    rounds: Callable[[Case], int],
    seed: int,
    quick: bool,
    progress: Progress,
) -> Iterator[Result]:
    """Run cases that need the same mirrors, under one load."""
    first = cases[0]
    target, age = (clusters.expiring, _TWO_DAYS) if first.expired else (clusters.target, 0.0)
    master = clusters.spark.start().master if first.cluster else None
    scenario = Scenario(clusters, first.name, target, quick, age, master)
    remaining = list(cases)
    try:
        while remaining:
            case = remaining.pop(0)
            is_first, is_last = case is first, not remaining
            yield _run_case(scenario, case, rounds(case), seed, is_first=is_first, is_last=is_last, progress=progress)
            if scenario.problems:
                break
            scenario.clear_notes()
    finally:
        scenario.close()
    if remaining:  # the other cases get new mirrors after a problem
        yield from run_cases(clusters, remaining, rounds, seed, quick, progress)


def _run_case(
    scenario: Scenario, case: Case, rounds: int, seed: int, *, is_first: bool, is_last: bool, progress: Progress
) -> Result:
    began = time.monotonic()
    # The case name is part of the seed: a case makes the same choices whether it runs alone or after others.
    scenario.generator = random.Random(f"{seed} {case.name}")
    result, before, count = Result(case.name, 0), scenario.counted, Count()
    try:
        if is_first:
            scenario.begin(case.processes)
        for number in range(1, rounds + 1):
            progress(case, f"round {number} of {rounds}")
            case.round(scenario)
            result.rounds = number
        progress(case, "waiting for the last record, then counting")
        result.committed_lag_zero_after = scenario.wait_for_zero_lag()
        count = scenario.count(any_partition=not case.exact) - before
        scenario.load.resume()
        if is_last:
            scenario.stop_all()
    except Exception as error:
        scenario.problems.append(str(error))
    result.set_count(count)
    result.longest_pause, result.seconds = max(scenario.pauses, default=0.0), time.monotonic() - began
    scenario.problems += _broken_promise(case, result, _QUICK_FACTOR if scenario.quick else 1)
    result.problems, result.notes = list(scenario.problems), scenario.notes()
    result.holds = (count.is_exact if case.exact else not count.lost) and not result.problems and count.records > 0
    if not result.holds:
        result.notes.append(f"the logs are in {keep_logs(scenario.directory, case.name)}")
    return result


def _broken_promise(case: Case | SeparateCase, result: Result, slack: float = 1) -> list[str]:
    """Return the problem of a pause that was longer than promised, if there was one."""
    if case.limit is None or result.longest_pause <= case.limit * slack:
        return []
    return [f"a partition stood still for {result.longest_pause:.1f} s; {case.limit * slack:g} s are allowed"]


def run_separate_case(case: SeparateCase) -> Result:
    """Run a case with clusters of its own."""
    result, began = Result(case.name, 0), time.monotonic()
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=BUILD) as directory:
        try:
            case.run(Path(directory), result)
        except Exception as error:
            result.problems.append(str(error))
        result.problems += _broken_promise(case, result)
        result.seconds, result.holds = time.monotonic() - began, not result.problems
        if not result.holds:
            result.notes.append(f"the logs are in {keep_logs(Path(directory), case.name)}")
    return result
