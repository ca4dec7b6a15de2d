"""The rarer states of `mirrormaker groups` with real clusters, each with its way out: it is followed until the group is ready."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata, TopicPartition

from mirrormaker.embedded import Cluster
from tests.support.asking_groups import AskedGroups
from tests.support.group_clients import commit, committed, delete_offsets, send
from tests.support.mirror_process import MirrorProcess
from tests.support.waiting import wait_until

INTERVAL = "sync.group.offsets.interval.seconds=1\nsource.cluster.alias=wide\n"


@pytest.fixture(scope="module")
def wide() -> Iterator[Cluster]:
    """A source whose consumers may commit more metadata than the target takes."""
    settings = {"auto.create.topics.enable": "false", "offset.metadata.max.bytes": "8192"}
    with Cluster(settings=settings, name="wide") as cluster:
        yield cluster


def delete_records(cluster: Cluster, topic: str, before: dict[int, int]) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.delete_records({TopicPartition(topic, partition): offset for partition, offset in before.items()})
    admin.close()


def test_each_state_becomes_ready_once_its_advice_is_followed(
    wide: Cluster, target: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = wide
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        source.create_topic(name, partitions=2)
        target.create_topic(name, partitions=2)
        send(source, name, 0, 100)
    groups = {name: f"{topic_name}-{name}" for name in ("trimmed", "held", "deleted", "refused", "gone")}
    options = ("--whitelist", f"{topic_name}.*", "--groups", f"{topic_name}.*", "--status.address", "127.0.0.1:0")
    mirror = MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=f"mirror-{topic_name}", consumer=INTERVAL
    )
    asked = AskedGroups(mirror, capsys, topic_name)
    producer = KafkaProducer(bootstrap_servers=source.bootstrap, transactional_id=groups["held"])
    with mirror:
        for group in groups.values():
            commit(source, group, topic_name, {0: 10, 1: 10})
        commit(source, groups["deleted"], other, {0: 20, 1: 20})
        mirror.wait_until(lambda: set(asked.states().values()) == {"synced"} and len(asked.states()) == 5, 120)

        delete_records(target, topic_name, {0: 15})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            {TopicPartition(topic_name, 0): OffsetAndMetadata(30, "", -1)}, groups["held"]
        )
        delete_offsets(source, groups["deleted"], topic_name)
        commit(source, groups["refused"], topic_name, {0: 20, 1: 12}, "m" * 5000)
        admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
        admin.delete_groups([groups["gone"]])
        expected = {
            "trimmed": "behind the target's log", "held": "held by a transaction", "deleted": "deleted on the source",
            "gone": "deleted on the source", "refused": "not written yet",
        }  # fmt: skip
        mirror.wait_until(lambda: expected.items() <= states_in(asked, topic_name).items(), 90)
        rows = asked.rows("--whitelist", topic_name)
        assert rows["trimmed"]["missing"] == 5
        for name in ("held", "deleted", "gone"):
            assert rows[name]["advice"], rows[name]
        # The log of the mirror has the reason, as the advice says.
        assert "the log of the mirror has the reason" in rows["refused"]["advice"]
        mirror.wait_for(
            f"group {groups['refused']} is not kept in step on the target: {topic_name}: refused by the target;"
            " OFFSET_METADATA_TOO_LARGE (12)"
        )
        assert states_on_page(mirror)[groups["refused"], topic_name] == "refused by the target"

        commit(source, groups["trimmed"], topic_name, {0: 16})
        producer.commit_transaction()
        producer.close()
        for name in ("deleted", "gone"):
            delete_offsets(target, groups[name], topic_name)
        commit(source, groups["refused"], topic_name, {0: 20, 1: 12}, "m" * 50)
        mirror.wait_until(lambda: set(asked.states().values()) == {"synced"}, 90)
        assert asked.states().keys() == groups.keys() - {"gone"}
        assert committed(target, groups["held"], topic_name)[0] == 30
        assert committed(target, groups["refused"], topic_name) == {0: 20, 1: 12}
        mirror.wait_for(f"group {groups['refused']} is kept in step on the target again")
        mirror.wait_until(lambda: set(states_on_page(mirror).values()) == {"synced"})


def states_on_page(mirror: MirrorProcess) -> dict[tuple[str, str], str]:
    """Return the states of groups and topics as the mirror itself shows them."""
    address = re.search(r"http://127\.0\.0\.1:\d+/", mirror.text)
    assert address
    with urllib.request.urlopen(f"{address[0]}api/groups", timeout=10) as answer:
        return {(row["group"], row["topic"]): row["state"] for row in json.load(answer)["groups"]}


def cut_last_batch(cluster: Cluster, topic: str) -> int:
    """Make the only broker lose the last batch of a topic's first partition; return its first offset."""
    (broker,) = cluster.brokers
    broker.kill()
    (log,) = broker.log.parent.glob(f"**/{topic}-0/*.log")
    data, last, at = log.read_bytes(), 0, 0
    while at < len(data):
        last = at
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    with log.open("r+b") as file:
        file.truncate(last)
    broker.start()
    return int.from_bytes(data[last : last + 8], "big")


def test_a_group_behind_the_end_of_a_target_that_lost_records_comes_back(
    source: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, mirror_group = f"{topic_name}-readers", f"mirror-{topic_name}"
    options = ("--whitelist", topic_name, "--groups", f"{topic_name}.*")
    with Cluster(settings={"auto.create.topics.enable": "false"}, name="short") as target:
        for cluster in (source, target):
            cluster.create_topic(topic_name, partitions=1)
        mirror = MirrorProcess(
            tmp_path, source.bootstrap, target.bootstrap, *options, group=mirror_group, consumer=INTERVAL
        )
        asked = AskedGroups(mirror, capsys, topic_name)
        with mirror:
            for first in (0, 50):
                send(source, topic_name, first, 50, partitions=1)
            commit(source, group, topic_name, {0: 100})
            mirror.wait_until(lambda: committed(target, group, topic_name) == {0: 100}, 120)
            assert mirror.stop() == 0
        end = cut_last_batch(target, topic_name)
        wait_until("the broker is back", lambda: end_of(target, topic_name) == end, 60)
        row = asked.rows()["readers"]
        assert (row["state"], row["missing"]) == ("the target lost records", 100 - end)
        assert "start the mirror" in row["advice"]
        # What a comparison says, and then the advice.
        files = ["--consumer.config", str(mirror.source_file), "--producer.config", str(mirror.target_file)]
        line = [sys.executable, "-m", "mirrormaker.cli", "verify", *files, "--whitelist", topic_name]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        # The records lie after the last one of the target, so by their content they are not there yet.
        assert (done.returncode, "not yet mirrored" in done.stdout) == (0, True), done.stdout + done.stderr
        with mirror:
            mirror.wait_for("set the committed offset with kafka-consumer-groups --reset-offsets", 120)
            mirror.stop()
        commit(source, mirror_group, topic_name, {0: end})
        with mirror:
            mirror.wait_until(lambda: asked.states() == {"readers": "synced"}, 120)
        assert end_of(target, topic_name) == 100
        assert committed(target, group, topic_name) == {0: 100}


def end_of(cluster: Cluster, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        return int(consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)])
    finally:
        consumer.close()


def states_in(asked: AskedGroups, topic: str) -> dict[str, str]:
    """Return the state of each group in one topic."""
    return {name: row["state"] for name, row in asked.rows("--whitelist", topic).items()}
