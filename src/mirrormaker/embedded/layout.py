"""The settings of embedded servers, and the formatted storage that KRaft nodes need."""

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

CONTROLLER = 100  # the node id of a separate controller; brokers have 1, 2 and 3

# A killed broker stays registered, and keeps its successor waiting, until its session expires. Kafka's defaults, 9 s
# and 18 s with ZooKeeper, are long for a test. A broker that is short of CPU may still miss several heartbeats.
_SESSION_MS = 4000

_ANY_CLUSTER = "mirrormaker-embedded-w"  # a valid cluster id: 22 characters of base64


def write(file: Path, settings: Settings) -> Path:
    """Write a properties file and return its path."""
    file.write_text("".join(f"{key}={_escaped(value)}\n" for key, value in settings.items()))
    return file


def broker(version: str, brokers: int) -> Settings:
    """Return the settings of all brokers: internal topics that suit a small machine."""
    replicas = str(min(3, brokers))
    in_sync = str(min(2, brokers))
    settings = {
        "num.network.threads": "2",
        "offsets.topic.num.partitions": "5",
        "offsets.topic.replication.factor": replicas,
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    if parse(version) >= (0, 11):
        settings |= {
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
        }
    if parse(version) >= (4,):
        settings |= {
            "share.coordinator.state.topic.num.partitions": "5",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
    return settings


def combined(directory: Path, port: int, controller_port: int) -> Settings:
    """Return the settings of a single KRaft node that is both broker and controller."""
    return {
        **_kraft(1, 1, controller_port),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / "broker-1"),
    }


def controller(directory: Path, port: int) -> Settings:
    """Return the settings of a separate KRaft controller."""
    return {
        **_kraft(CONTROLLER, CONTROLLER, port),
        "process.roles": "controller",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "log.dirs": str(directory / "controller"),
    }


def kraft_broker(directory: Path, number: int, port: int, controller_port: int) -> Settings:
    """Return the settings of a KRaft broker whose controller is a separate process."""
    return {
        **_kraft(number, CONTROLLER, controller_port),
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(directory / f"broker-{number}"),
    }


def proxied_listener(settings: Settings, advertised_port: int, port: int) -> Settings:
    """Return the settings with one more listener, which advertises the port of a proxy."""
    return listener(settings, "PROXIED", "PLAINTEXT", port, f"127.0.0.1:{advertised_port}")


def listener(settings: Settings, name: str, protocol: str, port: int, advertised: str) -> Settings:
    """Return the settings with one more listener. Among themselves, brokers use the first one."""
    first = settings["listeners"].partition(",")[0]
    protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    return {
        **settings,
        "listeners": f"{settings['listeners']},{name}://127.0.0.1:{port}",
        "advertised.listeners": f"{settings.get('advertised.listeners', first)},{name}://{advertised}",
        "listener.security.protocol.map": f"{protocols},{name}:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
    }


def zookeeper(directory: Path, port: int) -> Settings:
    """Return the settings of a ZooKeeper that allows short sessions and many connections from this machine."""
    return {
        "dataDir": str(directory / "zookeeper"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": "0",
        "tickTime": "500",
        "admin.enableServer": "false",  # it listens on a fixed port of all addresses
    }


def zookeeper_broker(version: str, directory: Path, number: int, port: int, zookeeper: str) -> Settings:
    """Return the settings of a broker that registers with ZooKeeper."""
    settings = {
        "broker.id": str(number),
        "log.dirs": str(directory / f"broker-{number}"),
        "zookeeper.connect": zookeeper,
        "zookeeper.connection.timeout.ms": "30000",  # ZooKeeper starts at the same time
        "zookeeper.session.timeout.ms": str(_SESSION_MS),
        # Brokers that all stop at once cannot hand over their partitions; they try three times, by default 5 s apart.
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    if parse(version) < (0, 9):
        return settings | {"host.name": "127.0.0.1", "advertised.host.name": "127.0.0.1", "port": str(port)}
    return settings | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}


def migrating(settings: Settings, voter_port: int) -> Settings:
    """Return the settings of a ZooKeeper broker that moves its metadata to a KRaft controller."""
    protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
    return {
        **settings,
        **_kraft(int(settings["broker.id"]), CONTROLLER, voter_port),
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
        "zookeeper.metadata.migration.enable": "true",
    }


def migrating_controller(directory: Path, port: int, zookeeper: str) -> Settings:
    """Return the settings of a KRaft controller that takes over the metadata in ZooKeeper."""
    migration = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": zookeeper}
    return controller(directory, port) | migration


def migrated(settings: Settings) -> Settings:
    """Return the settings of a broker or controller that no longer needs ZooKeeper."""
    left = {key: value for key, value in settings.items() if key != "broker.id" and not key.startswith("zookeeper.")}
    return {"process.roles": "broker", **left}


def format_storage(version: str, storage: Path, cluster: str, node: int) -> None:
    """Format a KRaft node's storage as Kafka's format tool does, unless it is formatted already."""
    if not (storage / "meta.properties").exists():
        storage.mkdir()
        shutil.copy(_first_records(version), storage)
        identity = {"version": "1", "cluster.id": cluster, "node.id": str(node), "directory.id": identifier()}
        write(storage / "meta.properties", identity)


def identifier() -> str:
    """Return a random id in Kafka's notation."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


def _first_records(version: str) -> Path:
    """Return the file with the first metadata records of a new cluster: the feature levels.

    They depend on the Kafka version alone, and the format tool takes a second, so the file is kept beside the jars.
    """
    checkpoint = jars(version) / "bootstrap.checkpoint"
    if not checkpoint.exists():
        with tempfile.TemporaryDirectory(dir=checkpoint.parent) as directory:
            file = write(Path(directory) / "broker.properties", combined(Path(directory), 9092, 9093))
            tool = ["kafka.tools.StorageTool", "format", "--config", str(file), "--cluster-id", _ANY_CLUSTER]
            done = KafkaTools(version).run(*tool, jvm=QUICK)
            if done.returncode:
                raise EmbeddedError(f"Kafka {version} could not format its storage: {done.stdout}{done.stderr}")
            (Path(directory) / "broker-1" / checkpoint.name).replace(checkpoint)
    return checkpoint


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
    """Return a value as a Java properties file needs it; JSON escapes the same characters in the same way."""
    return json.dumps(value)[1:-1]
