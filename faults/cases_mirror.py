"""What can happen to the mirror: its process, its JVM, its Python workers."""

from __future__ import annotations

import os
import signal
import time

from faults.case import Case
from faults.family import freeze, jvm, workers
from faults.play import Play
from faults.stage import wait_until

_FROZEN = 18.0
"""Seconds: the group waits 10 for a silent member, and the other process needs a moment to take over and write."""


def kill_a_process(play: Play) -> None:
    victim = play.chance.choice(play.mirrors)
    with play.fault():
        play.kill(victim)
    with play.fault():
        play.start_again(victim)
        took = play.wait_until_shared(2)
    play.remember("back with partitions of its own after at most {} s", took)
    play.remember("no partition stood still for more than {} s when it came back", play.pauses[-1])


def kill_a_worker(play: Play) -> None:
    mirror = play.chance.choice(play.mirrors)
    found = workers(mirror)
    assert found, "the mirror has no Python worker"
    with play.fault():
        os.kill(play.chance.choice(found), signal.SIGKILL)


def kill_the_jvm(play: Play) -> None:
    with play.fault():
        os.kill(jvm(play.chance.choice(play.mirrors)), signal.SIGKILL)


def kill_the_only_process(play: Play) -> None:
    """It is started again at once, and must not wait until the group has forgotten its predecessor."""
    (mirror,) = play.mirrors
    with play.fault():
        play.kill(mirror)
        began = time.monotonic()
        play.start_again(mirror)
        time.sleep(1)  # nothing starts in less; what was under way when it was killed is through by then
        reached = sum(play.watch.target)
        wait_until("the first record after the start", lambda: sum(play.watch.target) > reached, 60)
        took = time.monotonic() - began
    play.remember("first record at most {} s after the process was started again", took)
    play.remember("first record {} s after its first start", play.first_record)
    if took > play.first_record + 5:
        play.troubles.append(f"{took:.1f} s to the first record; its first start took {play.first_record:.1f} s")


def freeze_a_process(play: Play) -> None:
    with play.fault():
        freeze(play.chance.choice(play.mirrors), _FROZEN)
    play.wait_until_shared(2)


CASES = (
    Case(
        "kill-process", "a mirror process is killed; another goes on", kill_a_process, rounds=10, limit=15, quick=True
    ),
    Case("kill-worker", "a stream's Python worker is killed", kill_a_worker, rounds=10, limit=10, quick=True),
    Case("kill-jvm", "Spark's JVM is killed", kill_the_jvm, rounds=10),
    Case("kill-alone", "the only process is killed and started again at once", kill_the_only_process, processes=1),
    Case("freeze-process", "a mirror process is frozen, replaced, and wakes up", freeze_a_process, limit=15),
)
