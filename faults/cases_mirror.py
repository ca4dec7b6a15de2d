"""Faults of the mirror: its process, its JVM, its Python workers."""

from __future__ import annotations

import os
import signal
import time

from tests.support.waiting import wait_until

from faults.case import Case
from faults.scenario import Scenario

# Seconds: the group waits 10 for a silent member, and the other process needs some time to take over and to write.
_FROZEN = 18.0

_STREAMS = 180.0  # seconds for Spark and its streams to start again


def kill_a_process(scenario: Scenario) -> None:
    """Kill a random mirror process, and start it again when the other one has taken over."""
    victim = scenario.generator.choice(scenario.mirrors)
    with scenario.fault():
        scenario.kill(victim)
    with scenario.fault():
        scenario.start_again(victim)
        took = scenario.wait_until_shared(2)
    scenario.note_longest("the killed process had partitions again at most {} s after its new start", took)
    scenario.note_longest("when it came back, no partition stood still for more than {} s", scenario.pauses[-1])


def kill_a_worker(scenario: Scenario) -> None:
    """Kill a random Python worker."""
    workers = scenario.generator.choice(scenario.mirrors).python_workers()
    assert workers, "the mirror has no Python worker"
    with scenario.fault():
        os.kill(scenario.generator.choice(workers), signal.SIGKILL)


def kill_the_jvm(scenario: Scenario) -> None:
    """Kill the JVM of a random mirror process, and wait until both processes mirror partitions again."""
    victim = scenario.generator.choice(scenario.mirrors)
    with scenario.fault():
        os.kill(victim.jvm(), signal.SIGKILL)
        killed = time.monotonic()
    # Otherwise the next kill could take the only JVM that works.
    with scenario.fault():
        wait_until("streams of both processes", lambda: all(map(scenario.has_streams, scenario.mirrors)), _STREAMS)
        scenario.wait_until_shared(2)
        took = time.monotonic() - killed
    scenario.note_longest("the process of the killed JVM had streams and partitions again at most {} s later", took)
    scenario.note_longest(
        "when its streams came back, no partition stood still for more than {} s", scenario.pauses[-1]
    )


def kill_the_only_process(scenario: Scenario) -> None:
    """Kill the only process and start it again at once; it must not wait until its old session has expired."""
    (mirror,) = scenario.mirrors
    with scenario.fault():
        scenario.kill(mirror)
        began = time.monotonic()
        scenario.start_again(mirror)
        # No process starts within a second, and records that were in flight at the kill have arrived by then.
        time.sleep(1)
        reached = sum(scenario.watch.target)
        wait_until("first record after the start", lambda: sum(scenario.watch.target) > reached, 60)
        took = time.monotonic() - began
    first = scenario.first_record
    scenario.note_longest("first record at most {} s after the process was started again", took)
    scenario.note_longest("first record {} s after the first start", first)
    if took > first + 5:
        scenario.problems.append(
            f"the first record came after {took:.1f} s; after the first start it took {first:.1f} s"
        )


def freeze_a_process(scenario: Scenario) -> None:
    """Freeze a random mirror process until the other one has taken over, then let it continue."""
    with scenario.fault():
        scenario.generator.choice(scenario.mirrors).freeze(_FROZEN)
    scenario.wait_until_shared(2)


CASES = (
    Case(
        "kill-process", "a mirror process is killed; another goes on", kill_a_process, rounds=10, limit=15, quick=True
    ),
    Case("kill-worker", "a stream's Python worker is killed", kill_a_worker, rounds=10, limit=10, quick=True),
    Case("kill-jvm", "Spark's JVM is killed", kill_the_jvm, rounds=10, limit=15),
    Case("kill-alone", "the only process is killed and started again at once", kill_the_only_process, processes=1),
    Case("freeze-process", "a mirror process is frozen, replaced, and continued", freeze_a_process, limit=15),
)
