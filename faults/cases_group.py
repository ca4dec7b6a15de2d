"""What can happen to the group: processes come and go, and one of them may be a Java MirrorMaker."""

from __future__ import annotations

import signal

from bench.tools import TOOLS, stop

from faults.case import Case
from faults.play import Play
from faults.stage import wait_until
from mirrormaker.embedded import child_processes

_JAVA_STARTS = 60.0
"""Seconds for a Java MirrorMaker to mirror its first record: five or ten on two cores."""


def grow_and_shrink(play: Play) -> None:
    """From two processes to three, to one, and back to two."""
    with play.fault():
        play.start_another()
        play.wait_until_shared(3)
    play.remember("a partition stood still for {} s when the third came", play.pauses[-1])
    for left in (2, 1):
        with play.fault():
            play.stop(play.chance.choice(play.mirrors))
            play.wait_until_shared(left)
        play.remember("for at most {} s when one left", play.pauses[-1])
    with play.fault():
        play.start_another()
        play.wait_until_shared(2)
    play.remember("for {} s when the second came", play.pauses[-1])


def take_over_from_java(play: Play) -> None:
    """A Java MirrorMaker is at work; ours joins it, and the Java one leaves."""
    with (play.directory / "java.log").open("wb") as log:
        java = TOOLS["mm1"].start(play.job(), log)
    try:
        wait_until("the Java MirrorMaker's first record", lambda: sum(play.watch.target) > 0, _JAVA_STARTS)
        play.start_another()
        play.wait_until_shared(3)  # the Java one counts as two: it has a consumer for each stream
        with play.fault():
            stop(java)
            play.wait_until_shared(1)
    finally:
        child_processes.end(java, signal.SIGKILL)


CASES = (
    Case("grow-and-shrink", "two processes, then three, then one, each stopped in order", grow_and_shrink, once=True),
    Case(
        "java-leaves", "a Java MirrorMaker hands over to ours, in the same group", take_over_from_java, processes=0,
        once=True, exact=False,
    ),
)  # fmt: skip
