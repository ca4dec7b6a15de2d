"""Partitions move between running streams with a short pause."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from tests.support.comparing import wait_until_equal
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import read

pytestmark = pytest.mark.alone

SECONDS = 16.0
GAP = 0.5  # seconds for which a partition may stand still when it moves


def test_a_move_to_another_stream_costs_less_than_half_a_second(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Put all load on the two partitions of one stream: after a few seconds one of them moves to the other stream."""
    source.create_topic(topic_name, partitions=4)
    target.create_topic(topic_name, partitions=4, config={"message.timestamp.type": "LogAppendTime"})
    options = ("--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "1000")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_for("records/s")
        busy = threading.Thread(target=_write, args=(source, topic_name, (0, 2)))
        busy.start()
        busy.join()
        wait_until_equal(source, target, topic_name, 4, mirror)
        assert mirror.stop() == 0, mirror.text
    assert "moves from stream" in mirror.text, mirror.text
    gaps = {partition: _largest_gap(target, topic_name, partition) for partition in (0, 2)}
    assert max(gaps.values()) < GAP, f"{gaps}\n{mirror.text}"


def _write(cluster: Cluster, topic: str, partitions: tuple[int, ...]) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for partition in partitions:
            producer.send(topic, b"x" * 1000, partition=partition)
        time.sleep(0.01)
    producer.flush()
    producer.close()


def _largest_gap(cluster: Cluster, topic: str, partition: int) -> float:
    """Return the longest time between the arrivals of two records at the target, in seconds."""
    times = [row.timestamp for row in read(cluster, topic)[partition]]
    return max(after - before for before, after in pairwise(times)) / 1000
