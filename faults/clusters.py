"""The clusters that the fault cases share, and requests about the mirrors' group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.protocol.metadata import FindCoordinatorRequest
from tests.support.load import PARTITIONS
from tests.support.waiting import NotInTime, wait_until
from tests.support.wire_clients import wire_client

from mirrormaker.embedded import Broker, Cluster, child_processes, metadata
from mirrormaker.embedded.spark_cluster import SparkCluster

_SETTINGS = {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}

# A broker compares the timestamp of a producer id's last record with the expiration: it forgets the producer ids of old
# records within a second.
_EXPIRING = {"producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "500"}

_IN_SYNC = 60.0  # seconds for the replicas of a restarted broker to catch up; two or three are usual


class FaultClusters:
    """A source and a target of three brokers each, a second target that forgets producer ids, and a Spark cluster.

    The second target and the Spark cluster are started by the first case that needs them.
    """

    def __init__(self) -> None:
        self.source = Cluster(name="faults-source", brokers=3, settings=_SETTINGS, heap="256m")
        self.target = Cluster(name="faults-target", brokers=3, settings=_SETTINGS, heap="256m")
        self._expiring = Cluster(name="faults-expiring", brokers=3, settings=_SETTINGS | _EXPIRING, heap="256m")
        self.spark = SparkCluster()
        self.directory = child_processes.new_directory("faults")

    def __enter__(self) -> FaultClusters:
        self.source.start()
        self.target.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()
        for cluster in (self._expiring, self.target, self.source):
            cluster.stop()
        child_processes.remove_directory(self.directory)

    @property
    def expiring(self) -> Cluster:
        """The target whose brokers forget producer ids."""
        return self._expiring.start()

    def create_topic(self, topic: str, target: Cluster) -> None:
        """Create a topic on the source and on this target."""
        for cluster in (self.source, target):
            cluster.create_topic(topic, PARTITIONS, replication=3)

    def coordinator(self, group: str) -> Broker:
        """Return the broker of the source that coordinates the group."""
        node = asyncio.run(_coordinator(self.source.bootstrap, group))
        return next(broker for broker in self.source.brokers if broker.id == node)

    def assigned_partitions(self, group: str) -> list[int]:
        """Return the number of partitions of each member of the group; nothing while the group rebalances."""
        with _admin(self.source) as admin, contextlib.suppress(KafkaError, OSError):
            description = admin.describe_groups([group])[group]
            if description["group_state"] == "Stable":
                assignments = [member["member_assignment"] for member in description["members"]]
                return [_partitions(assignment) for assignment in assignments]
        return []

    def committed(self, group: str) -> dict[int, int]:
        """Return the group's committed offsets by partition; nothing while no broker answers."""
        with _admin(self.source) as admin, contextlib.suppress(KafkaError, OSError):
            offsets = admin.list_group_offsets({group: None})[group]
            return {key.partition: committed.offset for key, committed in offsets.items()}
        return {}


def revive(cluster: Cluster, topic: str) -> None:
    """Start the brokers that do not run, resume those that are paused, and wait until every replica is in sync."""
    for broker in cluster.brokers:
        if broker.paused:
            broker.resume()
    for broker in cluster.brokers:
        if broker.pid is None:
            broker.start()
    wait_until(f"all replicas of {topic} in sync", lambda: _is_in_sync(cluster, topic), _IN_SYNC)


def leader_of(cluster: Cluster, topic: str, partition: int) -> Broker:
    """Return the leader of a partition."""
    for broker in cluster.brokers:
        known = metadata.ask(broker.port) if broker.pid is not None and not broker.paused else None
        if known is not None:
            leader = known.topics[topic][partition].leader
            return next(broker for broker in cluster.brokers if broker.id == leader)
    raise NotInTime(f"no broker knows the leader of {topic}-{partition}")


def set_min_insync_replicas(cluster: Cluster, topic: str, count: int) -> None:
    """Change the topic's min.insync.replicas. If fewer replicas are in sync, every write fails."""
    with _admin(cluster) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"min.insync.replicas": str(count)})])


def _is_in_sync(cluster: Cluster, topic: str) -> bool:
    known = metadata.ask(cluster.brokers[0].port)
    if known is None or topic not in known.topics:
        return False
    partitions = known.topics[topic].values()
    return len(partitions) == PARTITIONS and all(set(p.in_sync) == set(p.replicas) for p in partitions)


@contextlib.contextmanager
def _admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","), request_timeout_ms=5000)
    try:
        yield admin
    finally:
        admin.close()


def _partitions(assignment: dict[str, list[dict[str, list[int]]]] | None) -> int:
    return sum(len(topic["partitions"]) for topic in assignment["assigned_partitions"]) if assignment else 0


async def _coordinator(bootstrap: str, group: str) -> int:
    client = wire_client(bootstrap, "faults")
    try:
        answer = await client.ask(FindCoordinatorRequest(key=group, key_type=0), newest=3)
        return int(answer.node_id)
    finally:
        client.close()
