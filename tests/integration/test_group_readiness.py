"""`mirrormaker groups` with real clusters: the states of groups, and the advice followed until all of them are ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from mirrormaker.cli import call
from mirrormaker.embedded import Cluster
from tests.support.asking_groups import AskedGroups
from tests.support.group_clients import commit, delete_offsets, send, set_share_offsets
from tests.support.mirror_process import MirrorProcess
from tests.support.waiting import wait_until

INTERVAL = "sync.group.offsets.interval.seconds=1\n"


@pytest.fixture
def mirror(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> Iterator[MirrorProcess]:
    """A mirror of a topic with 50 records in each of two partitions, whose first ten are gone from partition 0."""
    source.create_topic(topic_name, partitions=2)
    target.create_topic(topic_name, partitions=2)
    send(target, topic_name, 1_000_000, 7)
    send(source, topic_name, 0, 100)
    admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
    admin.delete_records({TopicPartition(topic_name, 0): 10})
    admin.close()
    options = ("--whitelist", topic_name, "--groups", f"{topic_name}.*")
    with MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=f"mirror-{topic_name}", consumer=INTERVAL
    ) as process:
        yield process


def test_groups_are_ready_once_the_advice_is_followed(
    source: Cluster, target: Cluster, topic_name: str, mirror: MirrorProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = AskedGroups(mirror, capsys, topic_name)
    groups = {name: f"{topic_name}-{name}" for name in ("synced", "ahead", "behind", "owned", "live", "share")}
    commit(target, groups["owned"], topic_name, {0: 1, 1: 2})
    set_share_offsets(target, groups["share"], topic_name, {0: 0})
    consumer = KafkaConsumer(
        topic_name,
        bootstrap_servers=target.bootstrap,
        group_id=groups["live"],
        metadata_max_age_ms=1000,
        enable_auto_commit=False,
        session_timeout_ms=9000,
    )
    try:
        wait_until("the consumer has partitions", lambda: bool(consumer.poll(200) or consumer.assignment()), 30)
        commit(source, groups["synced"], topic_name, {0: 30, 1: 40})
        commit(source, groups["ahead"], topic_name, {0: 150})
        source.create_topic(f"other-{topic_name}")
        commit(source, groups["synced"], f"other-{topic_name}", {0: 0})
        commit(source, groups["behind"], topic_name, {0: 3})
        for name in ("owned", "live", "share"):
            commit(source, groups[name], topic_name, {0: 20, 1: 20})
        expected = {
            "synced": "synced", "ahead": "ahead of the mirror", "behind": "behind the source's log",
            "owned": "owned by the target", "live": "active on the target", "share": "type not movable",
        }  # fmt: skip
        mirror.wait_until(lambda: asked.states() == expected)
        rows = asked.rows("--partitions")
        ours = {part["partition"]: part for part in rows["synced"]["partitions"]}
        # The target's partitions had 4 and 3 records before, and 10 were gone from the source.
        assert (ours[0]["source_offset"], ours[0]["target_offset"]) == (30, 24)
        assert (rows["synced"]["read_again"], rows["synced"]["missing"]) == (0, 0)
        assert [rows[name]["not_mirrored"] for name in ("synced", "ahead")] == [[f"other-{topic_name}"], []]
        assert (rows["synced"]["source_offset"], rows["synced"]["target_offset"]) == (70, 67)
        assert 0 <= rows["synced"]["seconds_since_written"] < 60
        assert rows["behind"]["missing"] == 7
        # The group goes on at 1 and 2 on the target where 14 and 23 are its places.
        assert (rows["owned"]["read_again"], rows["owned"]["missing"]) == (13 + 21, 0)
        assert rows["live"]["read_again"] is None
        code, text = asked.text(groups=f"{topic_name}-(owned|live)")
        assert code == 3
        assert "ready to fail over: 0 of 2" in text
        way_out = (
            f"kafka-consumer-groups --bootstrap-server {target.bootstrap} --delete-offsets --group {groups['owned']}"
        )
        assert f"{groups['owned']} in {topic_name}: owned by the target: " in text
        assert f"{way_out} --topic {topic_name}" in text
        assert f"{groups['live']} in {topic_name}: active on the target: stop the group's consumers" in text
    finally:
        consumer.close()
    delete_offsets(target, groups["owned"], topic_name)
    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    admin.delete_groups([groups["share"]])
    admin.close()
    ready = {**expected, "owned": "synced", "live": "synced", "share": "synced"}
    mirror.wait_until(lambda: asked.states() == ready)
    code, text = asked.text()
    assert code == 0
    assert "ready to fail over: 6 of 6" in text
    assert asked.translated("--group", groups["synced"]) == [(0, 30, 24), (1, 40, 43)]
    assert asked.translated("--group", groups["synced"], "--back") == [(0, 24, 30), (1, 43, 40)]
    # A group that the mirror has not seen, once it is gone, and a topic that it does not mirror.
    mirror.kill()
    source.create_topic(f"{topic_name}-other", partitions=1)
    commit(source, f"{topic_name}-late", topic_name, {1: 5})
    commit(source, f"{topic_name}-late", f"{topic_name}-other", {0: 0})
    code, text = asked.text("--whitelist", f"{topic_name}.*", groups=f"{topic_name}-late")
    assert code == 3
    assert [line.split()[:2] for line in text.splitlines()[1:3]] == [
        [f"{topic_name}-late", topic_name],
        [f"{topic_name}-late", f"{topic_name}-other"],
    ]
    assert "not written yet" in text
    assert "not mapped yet" in text
    # The advice for all three: start the mirror, for both topics, and wait until it has caught up.
    mirror.options = ("--whitelist", f"{topic_name}.*", "--groups", f"{topic_name}.*")
    send(source, topic_name, 100, 250)
    with mirror:
        mirror.wait_until(lambda: asked.states() == {**ready, "ahead": "synced", "late": "synced"}, 120)
        code, text = asked.text(groups=f"{topic_name}-(ahead|late)")
        assert (code, "ready to fail over: 3 of 3" in text) == (0, True), text
        assert mirror.stop() == 0, mirror.text
    # The source is gone: the checkpoints tell what the mirror has last written.
    mirror.source_file.write_text(
        f"bootstrap.servers=127.0.0.1:1\ngroup.id=m\nsource.cluster.alias={source_id(source)}\n"
    )
    code, text = asked.text(groups=f"{topic_name}-synced")
    assert code == 0
    assert "the source does not answer" in text
    assert " 70 " in text


def source_id(cluster: Cluster) -> str:
    """Return the id of a cluster."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        return str(admin.describe_cluster()["cluster_id"])
    finally:
        admin.close()


def test_a_target_without_a_map_is_one_line(
    source: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer, producer = tmp_path / "source.properties", tmp_path / "target.properties"
    consumer.write_text(f"bootstrap.servers={source.bootstrap}\ngroup.id=mirror\n")
    producer.write_text(f"bootstrap.servers={source.bootstrap}\n")
    line = ["groups", "--consumer.config", str(consumer), "--producer.config", str(producer), "--groups", ".*"]
    assert call(line) == 1
    assert f"{source.bootstrap} has no offset map (topic __mirrormaker_offsets)" in capsys.readouterr().err
