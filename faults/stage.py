"""The clusters that all cases share, and questions about groups."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import FindCoordinatorRequest

from faults.load import PARTITIONS
from mirrormaker.embedded import Broker, Cluster, child_processes, metadata
from mirrormaker.embedded.spark_cluster import SparkCluster
from mirrormaker.wire.client import cluster as wire

_SETTINGS = {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}
_FORGETS = {"producer.id.expiration.ms": "2000", "producer.id.expiration.check.interval.ms": "500"}
"""A broker looks at the time of an identity's last record: with these, old records are forgotten within a second."""

_IN_SYNC = 60.0
"""Seconds for a broker that was started again to catch up; two or three are usual."""


class NotInTime(Exception):
    """Something that must happen has not happened."""


class Stage:
    """A source and a target of three brokers each; a second target, which forgets identities, when it is asked for."""

    def __init__(self) -> None:
        self.source = Cluster(name="faults-source", brokers=3, settings=_SETTINGS, heap="256m")
        self.target = Cluster(name="faults-target", brokers=3, settings=_SETTINGS, heap="256m")
        self._forgetful = Cluster(name="faults-forgetful", brokers=3, settings=_SETTINGS | _FORGETS, heap="256m")
        self.spark = SparkCluster()  # started by the case that needs it
        self.directory = child_processes.new_directory("faults")

    def __enter__(self) -> Stage:
        self.source.start()
        self.target.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spark.stop()
        for cluster in (self._forgetful, self.target, self.source):
            cluster.stop()
        child_processes.remove_directory(self.directory)

    @property
    def forgetful(self) -> Cluster:
        """The target whose brokers forget, started when it is first needed."""
        return self._forgetful.start()

    def create(self, topic: str, target: Cluster) -> None:
        for cluster in (self.source, target):
            cluster.create_topic(topic, PARTITIONS, replication=3)

    def coordinator(self, group: str) -> Broker:
        """The source's broker that keeps the group."""
        node = asyncio.run(_coordinator(self.source.bootstrap, group))
        return next(broker for broker in self.source.brokers if broker.id == node)

    def shares(self, group: str) -> list[int]:
        """How many partitions each member of the group has; nothing while nobody can say."""
        with _admin(self.source) as admin, contextlib.suppress(KafkaError, OSError):
            found = admin.describe_groups([group])[group]
            if found["group_state"] == "Stable":
                return [_partitions(member["member_assignment"]) for member in found["members"]]
        return []

    def committed(self, group: str) -> dict[int, int]:
        """The group's committed offsets by partition; nothing while nobody can say."""
        with _admin(self.source) as admin, contextlib.suppress(KafkaError, OSError):
            found = admin.list_group_offsets({group: None})[group]
            return {where.partition: kept.offset for where, kept in found.items()}
        return {}


def wait_until(what: str, done: Callable[[], Any], within: float) -> float:
    """Wait, and say for how long; the text names what did not happen."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > within:
            raise NotInTime(f"{what}: not within {within:g} s")
        time.sleep(0.05)
    return time.monotonic() - began


def revive(cluster: Cluster, topic: str) -> None:
    """Start the brokers that do not run, resume those that are paused, and wait until every replica is in sync."""
    for broker in cluster.brokers:
        if broker.paused:
            broker.resume()
    for broker in cluster.brokers:
        if broker.pid is None:
            broker.start()
    wait_until(f"replicas of {topic} in sync", lambda: _in_sync(cluster, topic), _IN_SYNC)


def leader_of(cluster: Cluster, topic: str, partition: int) -> Broker:
    for broker in cluster.brokers:
        known = metadata.ask(broker.port) if broker.pid is not None and not broker.paused else None
        if known is not None:
            leader = known.topics[topic][partition].leader
            return next(broker for broker in cluster.brokers if broker.id == leader)
    raise NotInTime(f"nobody knows who leads {topic}-{partition}")


def _in_sync(cluster: Cluster, topic: str) -> bool:
    known = metadata.ask(cluster.brokers[0].port)
    if known is None or topic not in known.topics:
        return False
    partitions = known.topics[topic].values()
    return len(partitions) == PARTITIONS and all(set(p.in_sync) == set(p.replicas) for p in partitions)


@contextlib.contextmanager
def _admin(cluster: Cluster) -> Any:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","), request_timeout_ms=5000)
    try:
        yield admin
    finally:
        admin.close()


def set_in_sync(cluster: Cluster, topic: str, count: int) -> None:
    """Change the topic's min.insync.replicas: with more than there are, every write is refused."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with _admin(cluster) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"min.insync.replicas": str(count)})])


def _partitions(assignment: Any) -> int:
    return sum(len(topic["partitions"]) for topic in assignment["assigned_partitions"]) if assignment else 0


async def _coordinator(bootstrap: str, group: str) -> int:
    pairs = [address.split(":") for address in bootstrap.split(",")]
    cluster = wire.Cluster(wire.Endpoint(tuple((host, int(port)) for host, port in pairs), "faults"))
    try:
        answer = await cluster.ask(FindCoordinatorRequest(key=group, key_type=0), newest=3)
        return int(answer.node_id)
    finally:
        cluster.close()
