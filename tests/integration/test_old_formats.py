"""Topics with messages of formats 0 and 1, which brokers keep from the time before they were updated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from tests.support.mirror_process import run_once
from tests.support.reading import read


@pytest.fixture(scope="module")
def old_source() -> Iterator[Cluster]:
    with Cluster("2.0.1", settings={"auto.create.topics.enable": "false"}, name="old-source") as cluster:
        yield cluster


def test_messages_of_formats_0_1_and_2_in_one_topic_are_mirrored(
    old_source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Update the topic's format twice, as clusters were updated; the partition is chosen by key."""
    old_source.create_topic(topic_name, partitions=2, config={"message.format.version": "0.9.0"})
    target.create_topic(topic_name, partitions=3)
    number = 0
    for version in ("0.9.0", "0.10.2", "2.0"):
        change = f"message.format.version={version}"
        done = old_source.tools.run(
            "kafka.admin.ConfigCommand", "--zookeeper", old_source.zookeeper or "", "--alter", "--entity-type", "topics",
            "--entity-name", topic_name, "--add-config", change,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for codec in (None, "gzip", "snappy", "lz4"):
            producer = KafkaProducer(
                bootstrap_servers=old_source.bootstrap, compression_type=codec, linger_ms=20, enable_idempotence=False
            )
            for _ in range(50):
                key = None if number % 7 == 0 else b"key-%d" % (number % 13)
                value = b"%s-%d" % (version.encode(), number)
                producer.send(topic_name, value, key, partition=number % 2)
                number += 1
            producer.flush()
            producer.close()
    mirror = run_once(tmp_path, old_source, target, "--whitelist", topic_name, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    ours, theirs = read(old_source, topic_name), read(target, topic_name)
    assert sum(map(len, ours.values())) == 600
    assert {row.timestamp == -1 for rows in theirs.values() for row in rows} == {True, False}, "format 0 has no times"
    origin = {row.value: row for rows in ours.values() for row in rows}
    found = [row for rows in theirs.values() for row in rows]
    assert len(found) == 600
    assert {row.value: row.key for row in found} == {value: row.key for value, row in origin.items()}
    for rows in theirs.values():
        for partition in ours:
            offsets = [origin[row.value].offset for row in rows if origin[row.value].partition == partition]
            assert offsets == sorted(offsets)
    for row in found:
        assert row.timestamp == (origin[row.value].timestamp or -1)
