"""Faults of a Spark cluster: its executors."""

from __future__ import annotations

import os
import signal

from faults.case import Case
from faults.scenario import Scenario


def kill_an_executor(scenario: Scenario) -> None:
    """Kill a random executor."""
    executors = scenario.clusters.spark.executors()
    assert executors, "the mirror has no executor"
    with scenario.fault():
        os.kill(scenario.generator.choice(executors), signal.SIGKILL)


CASES = (
    Case(
        "kill-executor", "an executor of a Spark cluster is killed", kill_an_executor, processes=1, rounds=10, limit=10,
        cluster=True,
    ),
)  # fmt: skip
