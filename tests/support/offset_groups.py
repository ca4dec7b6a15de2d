"""Consumer groups as they were when the original offset checker was recorded, made again on a real cluster."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from kazoo.client import KazooClient

from mirrormaker.embedded import Cluster
from mirrormaker.zookeeper.ensemble import ZooKeeper

GOLDEN = Path(__file__).parents[1] / "compat" / "golden"
_LOGS = {("testtopic", 0): 15, ("testtopic", 1): 9, ("othertopic", 0): 3, ("py-none", 0): 10}
_IN_ZOOKEEPER = {
    "zkgroup": {("othertopic", 0): 3, ("othertopic", 1): 0, ("testtopic", 0): 11, ("testtopic", 1): 7},
    "livegroup": {("testtopic", 0): 15, ("testtopic", 1): 9},
    "halfgroup": {("testtopic", 0): 4},
}
_IN_KAFKA = {
    "kstore": {("testtopic", 0): 15, ("testtopic", 1): 9},
    "pygroup-082": {("py-none", 0): 10, ("py-none", 1): 0},
    "pygroup-09": {("py-none", 0): 10, ("py-none", 1): 0},
    "pygroup-010": {("py-none", 0): 10, ("py-none", 1): 0},
}
# Paths of owners in ZooKeeper: those of consumers that have left, and those of consumers that still run.
_OWNED_ONCE = ("zkgroup/owners/othertopic", "zkgroup/owners/testtopic", "kstore/owners/testtopic")
_OWNED = ("livegroup/owners/testtopic/0", "livegroup/owners/testtopic/1")


@dataclass(frozen=True)
class Recorded:
    """One run of the original: its arguments, without ZooKeeper's address, and its stdout."""

    args: tuple[str, ...]
    output: str


def recorded(version: str, case: str) -> Recorded:
    """Return one recorded run of this Kafka version."""
    head, output = (GOLDEN / version / f"coc-{case}.txt").read_text().split("# ---- stdout\n")
    args = shlex.split(head.splitlines()[1])[2:]
    assert args[0] == "--zookeeper"
    return Recorded(tuple(args[2:]), output)


def without_ports(text: str) -> str:
    """Replace the ids and ports of brokers, which differ from the recorded ones."""
    return re.sub(r"(?m)^\d+ -> 127\.0\.0\.1:\d+$", "ID -> 127.0.0.1:PORT", text)


def build(cluster: Cluster) -> None:
    """Make all groups and their topics. The cluster must create topics by itself, with two partitions."""
    client = _client(cluster)
    producer = KafkaProducer(enable_idempotence=False, **client)
    for (topic, partition), records in _LOGS.items():
        producer.partitions_for(topic)
        for _ in range(records):
            producer.send(topic, b"x", partition=partition)
    producer.flush()
    producer.close()
    for group, offsets in _IN_KAFKA.items():
        commit(cluster, group, offsets)
    assert cluster.zookeeper is not None
    with ZooKeeper(cluster.zookeeper) as zookeeper:
        for group, offsets in _IN_ZOOKEEPER.items():
            zookeeper.commit_offsets(group, offsets)
    _own(cluster.zookeeper)


def commit(cluster: Cluster, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit offsets to Kafka, without being a member of the group."""
    consumer = KafkaConsumer(group_id=group, enable_auto_commit=False, **_client(cluster))
    consumer.assign([TopicPartition(*key) for key in offsets])
    consumer.commit({TopicPartition(*key): OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()})
    consumer.close()


def _client(cluster: Cluster) -> dict[str, Any]:
    """Return the options of a kafka-python client; brokers before 0.10 do not tell it their version."""
    version = {"0.8.2.2": (0, 8, 2), "0.9.0.1": (0, 9)}.get(cluster.version)
    return {"bootstrap_servers": cluster.bootstrap, **({"api_version": version} if version else {})}


def _own(address: str) -> None:
    zookeeper = KazooClient(address)
    zookeeper.start()
    for path in _OWNED_ONCE:
        zookeeper.create(f"/consumers/{path}", b"", makepath=True)
    for path in _OWNED:
        zookeeper.create(f"/consumers/{path}", b"livegroup_c1-0", makepath=True)
    zookeeper.stop()
    zookeeper.close()
