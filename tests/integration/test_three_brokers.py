"""Leaders spread over three brokers on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster
from tests.integration.test_mirror import assert_same, run_once, wait_until_equal, write
from tests.mirror_process import MirrorProcess

SETTINGS = {"auto.create.topics.enable": "false", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def wide() -> Iterator[tuple[Cluster, Cluster]]:
    with (
        Cluster(brokers=3, settings=SETTINGS, name="wide-source", heap="256m") as source,
        Cluster(brokers=3, settings=SETTINGS, name="wide-target", heap="256m") as target,
    ):
        yield source, target


def test_leaders_on_different_brokers_of_both_sides(
    wide: tuple[Cluster, Cluster], topic_name: str, tmp_path: Path
) -> None:
    source, target = wide
    source.create_topic(topic_name, partitions=9, replication=3)
    write(source, topic_name, 3000, 9, "lz4")
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, "--num.streams", "2", group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert_same(source, target, topic_name, 3000)


def test_a_broker_of_each_side_dies_while_records_flow(
    wide: tuple[Cluster, Cluster], topic_name: str, tmp_path: Path
) -> None:
    source, target = wide
    source.create_topic(topic_name, partitions=6, replication=3)
    write(source, topic_name, 600, 6)
    options = ("--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 6, mirror)
        # The last of each: kafka-python, which writes and compares here, starts from the first in the list.
        target.brokers[2].kill()
        write(source, topic_name, 600, 6, start=600)
        source.brokers[2].kill()
        write(source, topic_name, 600, 6, start=1200)
        target.brokers[2].start()
        source.brokers[2].start()
        wait_until_equal(source, target, topic_name, 6, mirror, within=60)
        assert mirror.stop() == 0, mirror.text
    assert_same(source, target, topic_name, 1800)
