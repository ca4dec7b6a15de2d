"""Offsets of a group that consumers have used once on the target, as in a drill: brokers delete all of them at once."""

from __future__ import annotations

import time
from pathlib import Path

from kafka import KafkaConsumer

from mirrormaker.embedded import Cluster
from tests.support.group_clients import commit, committed, protocols, send
from tests.support.mirror_process import MirrorProcess

INTERVAL = 2.0
RETAINED = 60.0  # seconds; the brokers look every second
RETENTION = {
    "auto.create.topics.enable": "false",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "1000",
}


def drill(cluster: Cluster, topic: str, group: str) -> None:
    """Be a member of the group for a moment, and commit nothing."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, group_id=group, enable_auto_commit=False, session_timeout_ms=9000
    )
    deadline = time.monotonic() + 20
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(200)
    consumer.close()


def test_offsets_that_expire_after_a_drill_are_written_again(source: Cluster, topic_name: str, tmp_path: Path) -> None:
    group = f"{topic_name}-readers"
    consumer = f"sync.group.offsets.interval.seconds={INTERVAL:g}\n"
    options = ("--whitelist", topic_name, "--groups", group)
    with Cluster(settings=RETENTION, name="forgetful") as target:
        for cluster in (source, target):
            cluster.create_topic(topic_name, partitions=2)
        send(source, topic_name, 0, 20)
        commit(source, group, topic_name, {0: 7, 1: 4})
        mirror = MirrorProcess(
            tmp_path, source.bootstrap, target.bootstrap, *options, group=f"mirror-{topic_name}", consumer=consumer
        )
        with mirror:
            mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 7, 1: 4}, 60)
            drill(target, topic_name, group)
            assert protocols(target, group) == {group: "consumer"}
            # The source's group does not move: nothing else makes the mirror write. Once the brokers have deleted the offsets
            # and the group with them, the commit creates one without a protocol.
            mirror.wait_until(lambda: protocols(target, group) == {group: ""}, RETAINED + 5 * INTERVAL)
            assert committed(target, group, topic_name) == {0: 7, 1: 4}
            assert mirror.stop() == 0
