"""Lost state of brokers: expired producer ids, and record batches that were not replicated yet."""

from __future__ import annotations

import time

from tests.support.load import PARTITIONS

from faults import cases_broker, cases_mirror
from faults.case import Case
from faults.clusters import leader_of, revive
from faults.scenario import Scenario

# Seconds for which the leader appends alone: less than the 4 after which its followers would leave the cluster.
_UNREPLICATED = 1.5


def lose_unreplicated_batches(scenario: Scenario) -> None:
    """Kill a leader whose last record batches its frozen followers have not fetched."""
    leader = leader_of(scenario.target, scenario.topic, scenario.generator.randrange(PARTITIONS))
    followers = [broker for broker in scenario.target.brokers if broker is not leader]
    with scenario.fault():
        for broker in followers:
            broker.pause()
        time.sleep(_UNREPLICATED)
        leader.kill()
        for broker in followers:
            broker.resume()
    revive(scenario.target, scenario.topic)
    scenario.wait_until_flowing()


_OLD = "records two days old, producer ids expired: "
_LOSE_LEADER = "a leader is killed before its last batches were replicated"

CASES = (
    Case("lose-leader", _LOSE_LEADER, lose_unreplicated_batches, quick=True),
    Case("old-kill-process", _OLD + "a mirror process is killed", cases_mirror.kill_a_process, expired=True),
    Case("old-kill-worker", _OLD + "a Python worker is killed", cases_mirror.kill_a_worker, expired=True),
    Case("old-kill-jvm", _OLD + "Spark's JVM is killed", cases_mirror.kill_the_jvm, expired=True),
    Case("old-kill-source", _OLD + "a source broker is killed", cases_broker.kill_a_source_broker, expired=True),
    Case("old-kill-target", _OLD + "a target broker is killed", cases_broker.kill_a_target_broker, expired=True),
    Case("old-freeze", _OLD + "a mirror process is frozen and continued", cases_mirror.freeze_a_process, expired=True),
    Case("old-lose-leader", _OLD + _LOSE_LEADER, lose_unreplicated_batches, expired=True),
)
