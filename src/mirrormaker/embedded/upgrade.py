"""Upgrade a running cluster in place, one server after the other, in the order of Kafka's documentation.

Ports, data directories and the cluster's id stay the same.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator

from mirrormaker.embedded import layout, metadata
from mirrormaker.embedded.broker import Broker
from mirrormaker.embedded.kafka_cluster import Cluster
from mirrormaker.embedded.kafka_server import KAFKA, KafkaServer
from mirrormaker.embedded.ports import free_port
from mirrormaker.embedded.releases import parse, uses_zookeeper
from mirrormaker.errors import EmbeddedError

_OLDEST = (1,)  # older releases name their protocols in another way
_LAST_WITH_ZOOKEEPER = (3, 9)  # only from this release on can a cluster move to KRaft and then to Kafka 4

# A controller logs this line when all metadata has moved from ZooKeeper to KRaft and the brokers know their leaders.
_MIGRATED = "to DUAL_WRITE state"
_MIGRATION = 60.0  # seconds for that; it takes two or three after the last broker's restart
_LISTENING = 60.0  # seconds for ZooKeeper or a controller to start; one or two are usual
_IN_SYNC = 60.0  # seconds for the replicas of a restarted broker to catch up; two or three are usual


def upgrade(cluster: Cluster, version: str) -> Iterator[str]:
    """Upgrade the cluster step by step. Yield a step's name when its servers are up again."""
    old, new = parse(cluster.version), parse(version)
    if not _OLDEST <= old < new:
        raise EmbeddedError(f"a cluster of Kafka {cluster.version} cannot be upgraded to {version}")
    if cluster.zookeeper is None:
        yield from _upgrade_with_kraft(cluster, version)
    elif uses_zookeeper(version):
        yield from _upgrade_with_zookeeper(cluster, version)
    elif old < _LAST_WITH_ZOOKEEPER:
        raise EmbeddedError(f"a cluster of Kafka {cluster.version} must be upgraded to 3.9 before {version}")
    else:
        yield from _move_to_kraft(cluster)
        yield from _upgrade_with_kraft(cluster, version)


def _upgrade_with_zookeeper(cluster: Cluster, version: str) -> Iterator[str]:
    """Upgrade ZooKeeper, then the brokers; they use the new protocol only when all of them know it."""
    (zookeeper,) = cluster.support
    # ZooKeeper 3.4 may have written no snapshot yet.
    _restart_support(zookeeper, version, zookeeper.settings | {"snapshot.trust.empty": "true"})
    yield f"ZooKeeper of {version}"
    protocol = ".".join(cluster.version.split(".")[:2])
    old_protocol = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol}
    kept = {broker.id: layout.broker(version, len(cluster.brokers)) | broker.settings for broker in cluster.brokers}
    for broker in cluster.brokers:
        _restart(broker, version, kept[broker.id] | old_protocol)
        yield f"{broker.name}: {version} with the protocol of {protocol}"
    cluster.version = version
    for broker in cluster.brokers:
        _restart(broker, version, kept[broker.id])
        yield f"{broker.name}: {version} with its own protocol"


def _move_to_kraft(cluster: Cluster) -> Iterator[str]:
    """Let a KRaft controller take over the metadata, and run the brokers without ZooKeeper."""
    version, (zookeeper,) = cluster.version, cluster.support
    port = free_port()
    settings = layout.migrating_controller(cluster.directory, port, str(cluster.zookeeper))
    controller = KafkaServer("controller", KAFKA, cluster.directory, version, settings)
    layout.format_storage(version, cluster.directory / "controller", _cluster_id(cluster), layout.CONTROLLER)
    cluster.support.append(controller)
    controller.launch()
    for broker in cluster.brokers:
        _restart(broker, version, layout.migrating(broker.settings, port))
        yield f"{broker.name}: {version} ready to move to KRaft"
    controller.wait_until(lambda: _MIGRATED in controller.logged(), _MIGRATION)
    yield "metadata moved to KRaft"
    for broker in cluster.brokers:
        _restart(broker, version, layout.migrated(broker.settings))
        yield f"{broker.name}: {version} with KRaft"
    _restart_support(controller, version, layout.migrated(controller.settings))
    zookeeper.stop()
    cluster.support, cluster.zookeeper = [controller], None
    yield "ZooKeeper stopped"


def _upgrade_with_kraft(cluster: Cluster, version: str) -> Iterator[str]:
    """Upgrade the controller, then the brokers, then the format of the metadata."""
    for controller in cluster.support:
        _restart_support(controller, version, controller.settings)
        yield f"controller: {version}"
    common = layout.broker(version, len(cluster.brokers))
    for broker in cluster.brokers:
        _restart(broker, version, common | broker.settings)
        yield f"{broker.name}: {version}"
    cluster.version = version
    release = ".".join(version.split(".")[:2])
    where = ["--bootstrap-server", cluster.bootstrap]
    done = cluster.tools.run("org.apache.kafka.tools.FeatureCommand", *where, "upgrade", "--release-version", release)
    if done.returncode:
        raise EmbeddedError(f"the features of Kafka {release} could not be enabled: {done.stdout}{done.stderr}")
    yield f"features of {release}"


def _restart(broker: Broker, version: str, settings: layout.Settings) -> None:
    """Restart a broker, and wait until it knows the topics that it knew before, with every replica in sync."""
    before = metadata.ask(broker.port)
    topics = before.topics if before is not None else {}
    broker.stop()
    broker.configure(version, settings)
    broker.start()
    broker.wait_until(lambda: _is_in_sync(broker, topics), _IN_SYNC)


def _is_in_sync(broker: Broker, topics: Iterable[str]) -> bool:
    known = metadata.ask(broker.port)
    return known is not None and all(
        topic in known.topics and all(set(p.in_sync) == set(p.replicas) for p in known.topics[topic].values())
        for topic in topics
    )


def _restart_support(server: KafkaServer, version: str, settings: layout.Settings) -> None:
    """Restart ZooKeeper or a controller, and wait until it takes connections."""
    port = settings.get("clientPort") or settings["listeners"].rpartition(":")[2]
    server.stop()
    server.configure(version, settings)
    server.launch()
    server.wait_until(lambda: _is_listening(int(port)), _LISTENING)


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _cluster_id(cluster: Cluster) -> str:
    text = (cluster.directory / f"broker-{cluster.brokers[0].id}" / "meta.properties").read_text()
    found = re.search(r"^cluster\.id=(.+)$", text, re.MULTILINE)
    if found is None:
        raise EmbeddedError(f"the brokers of {cluster.name} have not written their cluster's id")
    return found[1]
