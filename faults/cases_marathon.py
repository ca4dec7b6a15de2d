"""Many random kills in one long run: processes, workers, JVMs, executors and brokers of both sides."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from tests.support.mirror_process import MirrorProcess
from tests.support.waiting import wait_until

from faults import cases_broker, cases_mirror
from faults.case import Case
from faults.scenario import Scenario

KILLS = 200
_STARTS_WITHIN = 180  # seconds


def kill_something(scenario: Scenario) -> None:
    """Kill something at random. The first mirror runs its streams on this machine, the second one on a Spark cluster."""
    if len(scenario.mirrors) < 2:
        scenario.master = scenario.clusters.spark.start().master
        scenario.start_another()
        scenario.wait_until_shared(2)
    victim = scenario.generator.choice(_VICTIMS)
    victim(scenario)
    scenario.note_kill(victim.__name__.removeprefix("_").replace("_", " "))


def _local(scenario: Scenario) -> MirrorProcess:
    """Return the mirror whose streams run on this machine."""
    return next(mirror for mirror in scenario.mirrors if "--spark.master" not in mirror.options)


def _kill_a_process(scenario: Scenario) -> None:
    cases_mirror.kill_a_process(scenario)


def _kill_a_worker(scenario: Scenario) -> None:
    mirror = _local(scenario)
    # The last kill may have been its JVM: its partitions are at the other mirror then, and it starts again at leisure.
    wait_until("a Python worker of the mirror", mirror.python_workers, _STARTS_WITHIN)
    with scenario.fault():
        _kill_one(scenario, "a Python worker of the mirror", mirror.python_workers)


def _kill_a_jvm(scenario: Scenario) -> None:
    for mirror in scenario.mirrors:
        wait_until("Spark's JVM", mirror.has_jvm, _STARTS_WITHIN)
    cases_mirror.kill_the_jvm(scenario)


def _kill_an_executor(scenario: Scenario) -> None:
    executors = scenario.clusters.spark.executors
    # The last kill may have been an executor, or the JVM that had started it: a new one takes seconds to start.
    wait_until("an executor", executors, _STARTS_WITHIN)
    with scenario.fault():
        _kill_one(scenario, "an executor", executors)


def _kill_one(scenario: Scenario, what: str, running: Callable[[], list[int]]) -> None:
    """Kill a random one of these processes. Return only after the kill: one that ends just now is not counted."""

    def is_killed() -> bool:
        pids = running()
        with contextlib.suppress(ProcessLookupError):
            if pids:
                os.kill(scenario.generator.choice(pids), signal.SIGKILL)
                return True
        return False

    wait_until(what, is_killed, _STARTS_WITHIN)


def _kill_a_source_broker(scenario: Scenario) -> None:
    cases_broker.kill_a_source_broker(scenario)


def _kill_a_target_broker(scenario: Scenario) -> None:
    cases_broker.kill_a_target_broker(scenario)


_VICTIMS: tuple[Callable[[Scenario], None], ...] = (
    _kill_a_process, _kill_a_worker, _kill_a_jvm, _kill_an_executor, _kill_a_source_broker, _kill_a_target_broker,
)  # fmt: skip

CASES = (
    Case(
        "kill-marathon", "processes, workers, JVMs, executors and brokers are killed at random", kill_something,
        processes=1, rounds=KILLS, on_request=True,
    ),
)  # fmt: skip
