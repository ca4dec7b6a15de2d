"""The files that servers start from: settings, and formatted storage for KRaft."""

from __future__ import annotations

import base64
import json
import uuid
from pathlib import Path

from mirrormaker.embedded.errors import EmbeddedError
from mirrormaker.embedded.jvm import QUICK
from mirrormaker.embedded.releases import parse
from mirrormaker.embedded.tools import KafkaTools

Settings = dict[str, str]

CONTROLLER = 100
"""The node id of a controller of its own, out of the way of the brokers' 1, 2, 3."""

# How long a killed broker stays in the books, and so keeps its successor waiting. Kafka's own 9 s (18 s with
# ZooKeeper) is a long time in a test; a starved broker misses several heartbeats before it is written off.
_SESSION_MS = 4000


def write(file: Path, settings: Settings) -> Path:
    """Write a properties file."""
    file.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in settings.items()))
    return file


def broker(version: str, brokers: int) -> Settings:
    """What brokers of any kind share: internal topics sized for a small machine."""
    copies = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    settings = {
        "num.network.threads": "2",
        "offsets.topic.num.partitions": "5",
        "offsets.topic.replication.factor": copies,
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    if parse(version) >= (0, 11):
        settings |= {
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
        }
    if parse(version) >= (4,):
        settings |= {
            "share.coordinator.state.topic.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
    return settings


def combined(directory: Path, port: int, controller_port: int) -> Settings:
    """A single KRaft node that is broker and controller."""
    return {
        **_kraft(1, 1, controller_port),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "broker-1"),
    }


def controller(directory: Path, port: int) -> Settings:
    """A KRaft controller for several brokers."""
    return {
        **_kraft(CONTROLLER, CONTROLLER, port),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "log.dirs": str(directory / "controller"),
    }


def kraft_broker(directory: Path, number: int, port: int, controller_port: int) -> Settings:
    """A KRaft broker with a controller elsewhere."""
    return {
        **_kraft(number, CONTROLLER, controller_port),
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / f"broker-{number}"),
    }


def zookeeper(directory: Path, port: int) -> Settings:
    """A ZooKeeper that allows short sessions and any number of connections from this machine."""
    return {
        "dataDir": str(directory / "zookeeper"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": "0",
        "tickTime": "500",
        "admin.enableServer": "false",  # would listen on a fixed port, on all addresses
    }


def zookeeper_broker(version: str, directory: Path, number: int, port: int, zookeeper: str) -> Settings:
    """A broker that registers with ZooKeeper."""
    settings = {
        "broker.id": str(number),
        "log.dirs": str(directory / f"broker-{number}"),
        "zookeeper.connect": zookeeper,
        "zookeeper.connection.timeout.ms": "30000",  # both start at once
        "zookeeper.session.timeout.ms": str(_SESSION_MS),
    }
    if parse(version) < (0, 9):
        return settings | {"host.name": "127.0.0.1", "advertised.host.name": "127.0.0.1", "port": str(port)}
    return settings | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}


def format_storage(version: str, file: Path, storage: Path) -> str:
    """Format a KRaft node's storage, unless a kept directory already is: the cluster's id."""
    if not (storage / "meta.properties").exists():
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", _identifier(), "--config", str(file)]
        done = KafkaTools(version).run(*tool, jvm=QUICK)
        if done.returncode:
            raise EmbeddedError(f"the storage in {storage} could not be formatted: {done.stdout}{done.stderr}")
    lines = (storage / "meta.properties").read_text().splitlines()
    return next(line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))


def join(cluster: str, storage: Path, number: int) -> None:
    """Give a broker's empty storage its place in a cluster: what the format tool does, a second of Java less."""
    if not (storage / "meta.properties").exists():
        storage.mkdir()
        identity = {"version": "1", "cluster.id": cluster, "node.id": str(number), "directory.id": _identifier()}
        write(storage / "meta.properties", identity)


def _kraft(node: int, voter: int, controller_port: int) -> Settings:
    return {
        "node.id": str(node),
        "controller.quorum.voters": f"{voter}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "broker.session.timeout.ms": str(_SESSION_MS),
        "broker.heartbeat.interval.ms": "500",
    }


def _identifier() -> str:
    """A random id in Kafka's notation, not starting with the dash of an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()).startswith("-"):
        pass
    return text


def _escaped(value: str) -> str:
    """A value as Java reads it: JSON escapes the same characters in the same way."""
    return json.dumps(value)[1:-1]
