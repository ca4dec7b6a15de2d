"""What can happen to brokers: deaths, restarts, and a target that takes no records for a while."""

from __future__ import annotations

import time

from faults.case import Case
from faults.play import Play
from faults.stage import revive, set_in_sync
from mirrormaker.embedded import Cluster

_REFUSED, _REFUSED_QUICK = 60.0, 10.0
"""Seconds for which the target takes nothing."""


def kill_a_source_broker(play: Play) -> None:
    _kill_one(play, play.stage.source)


def kill_a_target_broker(play: Play) -> None:
    _kill_one(play, play.target)


def _kill_one(play: Play, cluster: Cluster) -> None:
    broker = play.chance.choice(cluster.brokers)
    with play.fault():
        broker.kill()
    broker.start()
    revive(cluster, play.topic)
    play.wait_until_flowing()


def kill_the_coordinator(play: Play) -> None:
    broker = play.stage.coordinator(play.group)
    with play.fault():
        broker.kill()
    broker.start()
    revive(play.stage.source, play.topic)
    play.wait_until_shared(len(play.mirrors))


def restart_all_brokers(play: Play) -> None:
    """One after the other, each stopped in order, as for an upgrade."""
    with play.fault():
        for cluster in (play.stage.source, play.target):
            for broker in cluster.brokers:
                broker.stop()
                broker.start()
                revive(cluster, play.topic)


def two_target_brokers_away(play: Play) -> None:
    """One replica is left where two must agree: every write is refused."""
    away = play.chance.sample(play.target.brokers, 2)
    with play.fault():
        for broker in away:
            broker.stop()
        time.sleep(_REFUSED_QUICK if play.quick else _REFUSED)
        revive(play.target, play.topic)
    _check_that_it_was_refused(play)


def target_refuses_writes(play: Play) -> None:
    """Leaders are all there and answer, but want one replica more than there is: so does a target that is read-only."""
    away = play.chance.choice(play.target.brokers)
    away.stop()
    play.wait_until_flowing()
    with play.fault():
        set_in_sync(play.target, play.topic, 3)  # more than there are replicas would count as all of them
        time.sleep(_REFUSED_QUICK if play.quick else _REFUSED)
        set_in_sync(play.target, play.topic, 2)
    _check_that_it_was_refused(play)
    revive(play.target, play.topic)


def _check_that_it_was_refused(play: Play) -> None:
    least = (_REFUSED_QUICK if play.quick else _REFUSED) - 3
    assert play.pauses[-1] > least, f"the target took records all the same: {play.pauses[-1]:.1f} s without"


CASES = (
    Case("kill-source-broker", "a broker of the source is killed and started again", kill_a_source_broker, quick=True),
    Case("kill-target-broker", "a broker of the target is killed and started again", kill_a_target_broker),
    Case("kill-coordinator", "the broker that keeps the group is killed and started again", kill_the_coordinator),
    Case("rolling-restart", "all brokers of both clusters are restarted, one by one", restart_all_brokers, once=True),
    Case("target-short", "two of three target brokers are away for a minute", two_target_brokers_away, once=True),
    Case(
        "target-read-only", "the target refuses all writes for a minute", target_refuses_writes, once=True, quick=True
    ),
)
