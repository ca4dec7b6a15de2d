"""Faults of brokers: kills, restarts, and a target that refuses writes for a while."""

from __future__ import annotations

import time

from faults.case import Case
from faults.clusters import revive, set_min_insync_replicas
from faults.scenario import Scenario
from mirrormaker.embedded import Cluster

_REFUSED, _REFUSED_QUICK = 60.0, 10.0  # seconds for which the target refuses all writes


def kill_a_source_broker(scenario: Scenario) -> None:
    """Kill a random broker of the source and start it again."""
    _kill_one(scenario, scenario.clusters.source)


def kill_a_target_broker(scenario: Scenario) -> None:
    """Kill a random broker of the target and start it again."""
    _kill_one(scenario, scenario.target)


def _kill_one(scenario: Scenario, cluster: Cluster) -> None:
    broker = scenario.generator.choice(cluster.brokers)
    with scenario.fault():
        broker.kill()
    broker.start()
    revive(cluster, scenario.topic)
    scenario.wait_until_flowing()


def kill_the_coordinator(scenario: Scenario) -> None:
    """Kill the coordinator of the mirrors' group and start it again."""
    broker = scenario.clusters.coordinator(scenario.group)
    with scenario.fault():
        broker.kill()
    broker.start()
    revive(scenario.clusters.source, scenario.topic)
    scenario.wait_until_shared(len(scenario.mirrors))


def restart_all_brokers(scenario: Scenario) -> None:
    """Restart one broker after the other in an orderly way, as for an upgrade."""
    with scenario.fault():
        for cluster in (scenario.clusters.source, scenario.target):
            for broker in cluster.brokers:
                broker.stop()
                broker.start()
                revive(cluster, scenario.topic)


def stop_two_target_brokers(scenario: Scenario) -> None:
    """Leave one replica where min.insync.replicas is 2: every write is refused."""
    stopped = scenario.generator.sample(scenario.target.brokers, 2)
    with scenario.fault():
        for broker in stopped:
            broker.stop()
        time.sleep(_REFUSED_QUICK if scenario.quick else _REFUSED)
        revive(scenario.target, scenario.topic)
    _check_that_writes_were_refused(scenario)


def make_the_target_refuse_writes(scenario: Scenario) -> None:
    """Set min.insync.replicas to one more than there are: all leaders answer, and refuse every write."""
    stopped = scenario.generator.choice(scenario.target.brokers)
    stopped.stop()
    scenario.wait_until_flowing()
    with scenario.fault():
        # The replication factor is 3, and one broker is stopped. Brokers limit larger values to the replication factor.
        set_min_insync_replicas(scenario.target, scenario.topic, 3)
        time.sleep(_REFUSED_QUICK if scenario.quick else _REFUSED)
        set_min_insync_replicas(scenario.target, scenario.topic, 2)
    _check_that_writes_were_refused(scenario)
    revive(scenario.target, scenario.topic)


def _check_that_writes_were_refused(scenario: Scenario) -> None:
    least = (_REFUSED_QUICK if scenario.quick else _REFUSED) - 3
    pause = scenario.pauses[-1]
    assert pause > least, f"the target accepted records all the same: the longest pause was {pause:.1f} s"


CASES = (
    Case("kill-source-broker", "a broker of the source is killed and started again", kill_a_source_broker, quick=True),
    Case("kill-target-broker", "a broker of the target is killed and started again", kill_a_target_broker),
    Case("kill-coordinator", "the coordinator of the group is killed and started again", kill_the_coordinator),
    Case("rolling-restart", "all brokers of both clusters are restarted, one by one", restart_all_brokers, once=True),
    Case("target-short", "two of three target brokers are stopped for a minute", stop_two_target_brokers, once=True),
    Case(
        "target-read-only", "the target refuses all writes for a minute", make_the_target_refuse_writes, once=True,
        quick=True,
    ),
)  # fmt: skip
