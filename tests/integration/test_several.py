"""Several sources into one topic; one partition or one source fails while the others flow."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, KafkaAdminClient

from mirrormaker.embedded import Cluster
from tests.support.comparing import assert_same, wait_until_equal
from tests.support.mirror_process import MirrorProcess
from tests.support.numbered_records import write
from tests.support.reading import Read, end_offsets, read


@pytest.fixture(scope="module")
def second() -> Iterator[Cluster]:
    """A second source, which tests may stop and start."""
    with Cluster(settings={"auto.create.topics.enable": "false"}, name="second", heap="256m") as cluster:
        yield cluster


def contents(rows: list[Read]) -> list[tuple[object, ...]]:
    return [row.content for row in rows]


def test_two_sources_into_one_topic_and_one_of_them_goes_away(
    source: Cluster, second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source, second):
        cluster.create_topic(topic_name, partitions=2)
    write(source, topic_name, 300, 2)
    write(second, topic_name, 200, 2, start=10_000)
    other = tmp_path / "second.properties"
    other.write_text(f"bootstrap.servers={second.bootstrap}\ngroup.id={topic_name}\n")
    options = ("--whitelist", topic_name, "--consumer.config", str(other), "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 2)) == 500, 60)
        second.brokers[0].kill()
        write(source, topic_name, 300, 2, start=300)
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 2)) == 800, 20)
        second.brokers[0].start()
        write(second, topic_name, 200, 2, start=10_200)
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 2)) == 1000, 40)
        assert mirror.stop() == 0, mirror.text
    found = read(target, topic_name)
    for cluster in (source, second):
        for partition, rows in read(cluster, topic_name).items():
            ours = contents(rows)
            assert [row for row in contents(found[partition]) if row in set(ours)] == ours, "in order"
    assert max(Counter(row for rows in found.values() for row in contents(rows)).values()) == 1


def test_a_source_that_cannot_be_reached_at_the_start_does_not_keep_the_others(
    source: Cluster, second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source, second):
        cluster.create_topic(topic_name, partitions=1)
    write(source, topic_name, 100, 1)
    write(second, topic_name, 100, 1, start=10_000)
    second.brokers[0].stop()
    other = tmp_path / "second.properties"
    other.write_text(f"bootstrap.servers={second.bootstrap}\ngroup.id={topic_name}\n")
    options = ("--whitelist", topic_name, "--consumer.config", str(other))
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_for("the source cluster cannot be reached", 30)
        wait_until_equal(source, target, topic_name, 1, mirror)
        second.brokers[0].start()
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 1)) == 200, 60)
        assert mirror.text.count("cannot be reached") <= 2, "one line per change of state, and one in the summary"
        assert mirror.stop() == 0, mirror.text


def test_a_broken_batch_stops_its_partition_alone_until_it_is_repaired(
    second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    second.create_topic(topic_name, partitions=2)
    write(second, topic_name, 200, 2)
    (log,) = second.directory.rglob(f"{topic_name}-1/*.log")
    good = log.read_bytes()
    second.brokers[0].stop()
    log.write_bytes(good[:-20] + bytes([good[-20] ^ 0xFF]) + good[-19:])
    second.brokers[0].start()
    options = ("--whitelist", topic_name, "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, second.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_for(f"{topic_name}-1 stops at source offset", 60)
        mirror.wait_until(lambda: end_offsets(target, topic_name, 2)[0] == 100, 30)
        second.brokers[0].stop()
        log.write_bytes(good)
        second.brokers[0].start()
        mirror.wait_for(f"{topic_name}-1 flows again", 60)
        assert mirror.text.count("stops at source offset") == 1, mirror.text
        wait_until_equal(second, target, topic_name, 2, mirror)
        assert mirror.stop() == 0, mirror.text
    assert_same(second, target, topic_name, 200)


LIMIT, BEFORE = "max.message.bytes", "100000"
CHANGES = (
    ("message.timestamp.type", "LogAppendTime"),
    ("cleanup.policy", "compact,delete"),
    ("retention.ms", "90000000"),
    ("compression.type", "gzip"),
    (LIMIT, "200000"),
    ("message.timestamp.type", "CreateTime"),
)


def test_settings_that_change_on_either_side_while_the_mirror_runs_change_nothing_for_it(
    second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (second, target):
        cluster.create_topic(topic_name, partitions=2, config={LIMIT: BEFORE})
    written, large = 0, os.urandom(150_000)
    with MirrorProcess(
        tmp_path, second.bootstrap, target.bootstrap, "--whitelist", topic_name, group=topic_name
    ) as mirror:
        for name, value in CHANGES:
            for cluster in (second, target):
                admin = KafkaAdminClient(bootstrap_servers=[cluster.bootstrap])
                try:
                    # What is not named goes back to its default.
                    admin.alter_configs([ConfigResource("TOPIC", topic_name, {LIMIT: BEFORE, name: value})])
                finally:
                    admin.close()
                write(second, topic_name, 60, 2, start=written)
                written += 60
                wait_until_equal(second, target, topic_name, 2, mirror)
            if name == LIMIT:
                # Only a mirror that notices the new limit sends this.
                sender = KafkaProducer(bootstrap_servers=[second.bootstrap])
                sender.send(topic_name, large, b"large", partition=0).get(10)
                sender.close()
                wait_until_equal(second, target, topic_name, 2, mirror)
        assert "stop" not in mirror.text, mirror.text
        assert mirror.stop() == 0, mirror.text
    found = read(target, topic_name)
    for partition, rows in read(second, topic_name).items():
        assert [row.value for row in found[partition]] == [row.value for row in rows]
    assert large in [row.value for row in found[0]]


def test_a_target_topic_that_was_deleted_and_created_again_gets_what_follows(
    second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    second.create_topic(topic_name, partitions=2)
    write(second, topic_name, 200, 2)
    with MirrorProcess(
        tmp_path, second.bootstrap, target.bootstrap, "--whitelist", topic_name, group=topic_name
    ) as mirror:
        wait_until_equal(second, target, topic_name, 2, mirror)
        admin = KafkaAdminClient(bootstrap_servers=[target.bootstrap])
        try:
            admin.delete_topics([topic_name])
        finally:
            admin.close()
        mirror.wait_until(lambda: end_offsets(target, topic_name, 2) == [0, 0])  # the mirror creates what is missing
        write(second, topic_name, 60, 2, start=1000)
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 2)) == 60)
        assert f"the target topic {topic_name} was deleted and created again" in mirror.text, mirror.text
        assert mirror.stop() == 0, mirror.text
    assert sorted(row.value or b"" for rows in read(target, topic_name).values() for row in rows) == sorted(
        row.value or b"" for rows in read(second, topic_name).values() for row in rows[100:]
    )


def test_a_topic_that_was_deleted_and_created_again_is_mirrored_from_its_start(
    second: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    second.create_topic(topic_name, partitions=2)
    write(second, topic_name, 200, 2)
    options = ("--whitelist", topic_name, "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, second.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(second, target, topic_name, 2, mirror)
        admin = KafkaAdminClient(bootstrap_servers=[second.bootstrap])
        try:
            admin.delete_topics([topic_name])
            mirror.wait_until(lambda: topic_name not in admin.list_topics(), 10)
        finally:
            admin.close()
        second.create_topic(topic_name, partitions=2)
        write(second, topic_name, 60, 2, start=1000)
        mirror.wait_until(lambda: sum(end_offsets(target, topic_name, 2)) == 260, 40)
        assert mirror.text.count("was deleted and created again") == 1, mirror.text
        assert mirror.stop() == 0, mirror.text
