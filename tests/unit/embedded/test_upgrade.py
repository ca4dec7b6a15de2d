"""Which upgrades an embedded cluster offers, and the settings of its servers on the way to KRaft."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster, EmbeddedError, layout
from mirrormaker.embedded.upgrade import upgrade


@pytest.mark.parametrize(("old", "new"), [("3.9.2", "2.0.1"), ("4.3.1", "4.3.1"), ("0.10.2.2", "3.9.2")])
def test_a_cluster_is_only_upgraded_to_a_newer_version_and_from_1_0_on(old: str, new: str) -> None:
    with pytest.raises(EmbeddedError, match=f"of Kafka {old} cannot be upgraded to {new}"):
        next(upgrade(Cluster(old), new))


def test_a_cluster_with_zookeeper_must_reach_3_9_before_kafka_4() -> None:
    cluster = Cluster("2.0.1")
    cluster.zookeeper = "127.0.0.1:2181"
    with pytest.raises(EmbeddedError, match=r"must be upgraded to 3\.9 before 4\.3\.1"):
        next(upgrade(cluster, "4.3.1"))


def test_a_broker_keeps_its_id_and_listeners_on_the_way_to_kraft() -> None:
    old = layout.zookeeper_broker("3.9.2", Path("/data"), 2, 9092, "127.0.0.1:2181")
    secure = layout.listener(old, "SECURE", "SSL", 9094, "localhost:9094")
    migrating = layout.migrating(secure, 9093)
    assert migrating["broker.id"] == migrating["node.id"] == "2"
    assert migrating["zookeeper.connect"] == "127.0.0.1:2181"
    migrated = layout.migrated(migrating)
    for settings in (migrating, migrated):
        protocols = settings["listener.security.protocol.map"].split(",")
        assert sorted(protocols) == ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SECURE:SSL"]
        assert (settings["listeners"], settings["log.dirs"]) == (secure["listeners"], secure["log.dirs"])
    assert migrated["process.roles"] == "broker"
    assert not [key for key in migrated if key.startswith("zookeeper.") or key == "broker.id"]


def test_a_controller_stays_a_controller_without_zookeeper() -> None:
    migrating = layout.migrating_controller(Path("/data"), 9093, "127.0.0.1:2181")
    assert layout.migrated(migrating) == layout.controller(Path("/data"), 9093)
