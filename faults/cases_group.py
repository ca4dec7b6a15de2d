"""Changes of the group: processes join and leave, and one of them may be a Java MirrorMaker."""

from __future__ import annotations

import signal

from tests.support.java_mirrors import start_mm1, stop
from tests.support.waiting import wait_until

from faults.case import Case
from faults.scenario import Scenario
from mirrormaker.embedded import child_processes

_JAVA_START = 60.0  # seconds for the first record of a Java MirrorMaker; five or ten are usual on two cores


def grow_and_shrink(scenario: Scenario) -> None:
    """Go from two processes to three, to one, and back to two."""
    with scenario.fault():
        scenario.start_another()
        scenario.wait_until_shared(3)
    scenario.note_longest("when the third process joined, a partition stood still for {} s", scenario.pauses[-1])
    for remaining in (2, 1):
        with scenario.fault():
            scenario.stop(scenario.generator.choice(scenario.mirrors))
            scenario.wait_until_shared(remaining)
        scenario.note_longest("when a process left, a partition stood still for at most {} s", scenario.pauses[-1])
    with scenario.fault():
        scenario.start_another()
        scenario.wait_until_shared(2)
    scenario.note_longest("when the second process joined, a partition stood still for {} s", scenario.pauses[-1])


def take_over_from_java(scenario: Scenario) -> None:
    """Let one of our processes join a running Java MirrorMaker, and stop the Java one."""
    with (scenario.directory / "java.log").open("wb") as log:
        java = start_mm1(scenario.java_job(), log)
    try:
        wait_until("first record of the Java MirrorMaker", lambda: sum(scenario.watch.target) > 0, _JAVA_START)
        scenario.start_another()
        scenario.wait_until_shared(3)  # the Java MirrorMaker has one member for each of its two streams
        with scenario.fault():
            stop(java)
            scenario.wait_until_shared(1)
    finally:
        child_processes.end(java, signal.SIGKILL)


CASES = (
    Case("grow-and-shrink", "two processes, then three, then one, each stopped in order", grow_and_shrink, once=True),
    Case(
        "java-leaves", "a Java MirrorMaker hands over to ours, in the same group", take_over_from_java, processes=0,
        once=True, exact=False,
    ),
)  # fmt: skip
