"""What brokers forget: identities whose last record is old, and batches that no follower has got yet."""

from __future__ import annotations

import time

from faults import cases_broker, cases_mirror
from faults.case import Case
from faults.load import PARTITIONS
from faults.play import Play
from faults.stage import leader_of, revive

_UNREPLICATED = 1.5
"""Seconds for which the leader appends alone: shorter than the 4 after which its followers would be written off."""


def lose_what_is_not_replicated(play: Play) -> None:
    """The leader takes batches that its frozen followers do not get, and dies with them."""
    leader = leader_of(play.target, play.topic, play.chance.randrange(PARTITIONS))
    followers = [broker for broker in play.target.brokers if broker is not leader]
    with play.fault():
        for broker in followers:
            broker.pause()
        time.sleep(_UNREPLICATED)
        leader.kill()
        for broker in followers:
            broker.resume()
    revive(play.target, play.topic)
    play.wait_until_flowing()


_OLD = "records two days old, identities forgotten: "

CASES = (
    Case(
        "lose-leader", "a leader is killed before its last batches were replicated", lose_what_is_not_replicated,
        quick=True,
    ),
    Case("old-kill-process", _OLD + "a mirror process is killed", cases_mirror.kill_a_process, forgetful=True),
    Case("old-kill-worker", _OLD + "a Python worker is killed", cases_mirror.kill_a_worker, forgetful=True),
    Case("old-kill-jvm", _OLD + "Spark's JVM is killed", cases_mirror.kill_the_jvm, forgetful=True),
    Case("old-kill-source", _OLD + "a source broker is killed", cases_broker.kill_a_source_broker, forgetful=True),
    Case("old-kill-target", _OLD + "a target broker is killed", cases_broker.kill_a_target_broker, forgetful=True),
    Case("old-freeze", _OLD + "a process is frozen and wakes up", cases_mirror.freeze_a_process, forgetful=True),
    Case("old-lose-leader", _OLD + "a leader dies unreplicated", lose_what_is_not_replicated, forgetful=True),
)  # fmt: skip
