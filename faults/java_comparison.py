"""The same load and the same kills with both Java MirrorMakers and with ours."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import IO

from tests.support.java_mirrors import Job, start_mm1, start_mm2, start_ours, stop
from tests.support.waiting import wait_until

from faults.case import Result
from faults.clusters import FaultClusters
from faults.scenario import Scenario
from mirrormaker.embedded import child_processes

MIRRORS = {"ours": "ours", "mm1": "Java MirrorMaker 3.9.2", "mm2": "MirrorMaker 2 (4.3.1)"}
RECORDS = 400_000
RATE = 4000  # records per second
KILLS = 4

_QUIET = 15.0  # seconds without a new record after which a mirror is done
_DONE = 240.0  # seconds for the last records: a Java MirrorMaker waits 45 until its old session has expired

# MirrorMaker 2's own topics need three replicas, because min.insync.replicas is 2 on these clusters.
_REPLICATED = {
    f"{name}replication.factor": "3" for name in ("", "offset.storage.", "status.storage.", "config.storage.")
}


def compare(
    clusters: FaultClusters, mirror: str, generator: random.Random, records: int, progress: Callable[[str], None]
) -> Result:
    """Run one process, kill it at random moments, start it again at once, and count the records in the end."""
    scenario = Scenario(clusters, f"java-{mirror}", clusters.target, rate=RATE)
    result = Result(MIRRORS[mirror], KILLS)
    began = time.monotonic()
    process: subprocess.Popen[bytes] | None = None
    try:
        with (scenario.directory / "mirror.log").open("ab") as log:
            scenario.load.limit = records
            scenario.load.start()
            scenario.watch.start()
            process = _start(mirror, scenario.java_job(), log)
            for kill in range(1, KILLS + 1):
                reached = sum(scenario.watch.target)
                moment = int(records * (kill - 1 + generator.uniform(0.3, 0.9)) / KILLS)
                _wait_for_load(scenario, moment)
                # A mirror that is killed before its first record duplicates nothing, and proves nothing.
                _wait_for_mirror(scenario, reached)
                time.sleep(generator.uniform(0, 3))
                progress(f"kill {kill} of {KILLS}")
                child_processes.end(process, signal.SIGKILL)
                process = _start(mirror, scenario.java_job(), log)
            progress("waiting for the last record, then counting")
            scenario.load.join()
            _wait_until_quiet(scenario)
            stop(process)
        count = scenario.count(any_partition=True)
        result.set_count(count)
        result.holds = count.is_exact
    except Exception as error:
        scenario.problems.append(str(error))
    finally:
        if process is not None:
            child_processes.end(process, signal.SIGKILL)
        scenario.close()
    result.seconds, result.problems = time.monotonic() - began, scenario.problems
    return result


def _start(mirror: str, job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
    if mirror == "mm2":
        return start_mm2(job, log, _REPLICATED)
    return start_mm1(job, log) if mirror == "mm1" else start_ours(job, log)


def _wait_for_load(scenario: Scenario, records: int) -> None:
    wait_until(f"record {records} of the load", lambda: scenario.load.sent >= records, 600)


def _wait_for_mirror(scenario: Scenario, reached: int) -> None:
    wait_until("next record on the target", lambda: sum(scenario.watch.target) > reached, _DONE)


def _wait_until_quiet(scenario: Scenario) -> None:
    """Wait until no more records arrive: the mirrors have no common way to tell that they are done."""
    last, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal last, since
        reached = sum(scenario.watch.target)
        if reached != last:
            last, since = reached, time.monotonic()
        pairs = zip(scenario.watch.target, scenario.watch.source, strict=True)
        is_behind = any(target < source for target, source in pairs)
        return time.monotonic() - since > (_DONE / 2 if is_behind else _QUIET)

    wait_until("last record on the target", is_quiet, _DONE)
