"""The files that servers start from: settings, and formatted storage for KRaft."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import uuid
from pathlib import Path

from mirrormaker.embedded.downloads import jars
from mirrormaker.embedded.java_runtime import QUICK
from mirrormaker.embedded.kafka_tools import KafkaTools
from mirrormaker.embedded.releases import parse
from mirrormaker.errors import EmbeddedError

Settings = dict[str, str]

CONTROLLER = 100
"""The node id of a controller of its own, out of the way of the brokers' 1, 2, 3."""

# How long a killed broker stays in the books, and so keeps its successor waiting. Kafka's own 9 s (18 s with
# ZooKeeper) is a long time in a test; a starved broker misses several heartbeats before it is written off.
_SESSION_MS = 4000

_ANY_CLUSTER = "mirrormaker-embedded-w"  # 22 characters that Kafka can read as an id


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


def detour(settings: Settings, told: int, port: int) -> Settings:
    """A second listener, whose clients are told another port: that of a proxy. Brokers keep to the first."""
    return listener(settings, "DETOUR", "PLAINTEXT", port, f"127.0.0.1:{told}")


def listener(settings: Settings, name: str, protocol: str, port: int, told: str) -> Settings:
    """One more listener, and the address that its clients are told. Brokers keep to the first."""
    first = settings["listeners"].partition(",")[0]
    protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    return {
        **settings,
        "listeners": f"{settings['listeners']},{name}://127.0.0.1:{port}",
        "advertised.listeners": f"{settings.get('advertised.listeners', first)},{name}://{told}",
        "listener.security.protocol.map": f"{protocols},{name}:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
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
        # Brokers that all stop at once have nobody to hand over to, and would try three times, 5 s apart.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    if parse(version) < (0, 9):
        return settings | {"host.name": "127.0.0.1", "advertised.host.name": "127.0.0.1", "port": str(port)}
    return settings | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}


def format_storage(version: str, storage: Path, cluster: str, node: int) -> None:
    """Make a KRaft node's storage part of a cluster, unless it already is: what Kafka's format tool does."""
    if not (storage / "meta.properties").exists():
        storage.mkdir()
        shutil.copy(_first_records(version), storage)
        identity = {"version": "1", "cluster.id": cluster, "node.id": str(node), "directory.id": identifier()}
        write(storage / "meta.properties", identity)


def identifier() -> str:
    """A random id in Kafka's notation."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _first_records(version: str) -> Path:
    """The feature levels that Kafka's format tool gives a new cluster.

    They depend on the version alone and asking takes a second of Java for each node, so they stay with the jars.
    """
    kept = jars(version) / "bootstrap.checkpoint"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=kept.parent) as directory:
            file = write(Path(directory) / "broker.properties", combined(Path(directory), 9092, 9093))
            tool = ["kafka.tools.StorageTool", "format", "--config", str(file), "--cluster-id", _ANY_CLUSTER]
            done = KafkaTools(version).run(*tool, jvm=QUICK)
            if done.returncode:
                raise EmbeddedError(f"Kafka {version} could not format its storage: {done.stdout}{done.stderr}")
            (Path(directory) / "broker-1" / kept.name).replace(kept)
    return kept


def _kraft(node: int, voter: int, controller_port: int) -> Settings:
    return {
        "node.id": str(node),
        "controller.quorum.voters": f"{voter}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "broker.session.timeout.ms": str(_SESSION_MS),
        "broker.heartbeat.interval.ms": "500",
    }


def _escaped(value: str) -> str:
    """A value as Java reads it: JSON escapes the same characters in the same way."""
    return json.dumps(value)[1:-1]
