"""Partitions move between running streams, and hardly anyone notices."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from mirrormaker.embedded import Cluster
from tests.integration.test_mirror import wait_until_equal
from tests.support.mirror_process import MirrorProcess

pytestmark = pytest.mark.alone

SECONDS = 16.0
GAP = 0.5  # seconds of flow that a changed plan may cost


def test_a_move_to_another_stream_costs_less_than_half_a_second(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """All load on the two partitions of one stream: after a few seconds one of them moves to the other."""
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
    assert "moved" in mirror.text, mirror.text
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
    """The longest pause between two records' arrival at the target, in seconds."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    where = TopicPartition(topic, partition)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    end = consumer.end_offsets([where])[where]
    times: list[int] = []
    while consumer.position(where) < end:
        times += [record.timestamp for batch in consumer.poll(1000).values() for record in batch]
    consumer.close()
    return max(after - before for before, after in pairwise(times)) / 1000
