"""What can happen to a Spark cluster: its executors."""

from __future__ import annotations

import os
import signal

from faults.case import Case
from faults.play import Play


def kill_an_executor(play: Play) -> None:
    found = play.stage.spark.executors()
    assert found, "the mirror has no executor"
    with play.fault():
        os.kill(play.chance.choice(found), signal.SIGKILL)


CASES = (
    Case(
        "kill-executor",
        "an executor of a Spark cluster is killed",
        kill_an_executor,
        processes=1,
        rounds=10,
        limit=10,
        cluster=True,
    ),
)
