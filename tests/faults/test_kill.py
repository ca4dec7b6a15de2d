"""The mirror is killed again and again under load; the target holds each record once, in order."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from mirrormaker.show.compare import compare
from tests.mirror_process import MirrorProcess, wait_until_gone
from tests.reading import assert_mirrored_by_key, read

KILLS = 5


class Writer(threading.Thread):
    """Numbered, keyed records at a steady pace until told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int = 2000) -> None:
        super().__init__(daemon=True)
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), acks=1, linger_ms=5, compression_type="lz4"
        )
        self.topic, self.partitions, self.per_second = topic, partitions, per_second
        self.enough = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.enough.wait(0.05):
            for _ in range(self.per_second // 20):
                number = self.count
                partition = number % self.partitions
                self.producer.send(self.topic, b"%d" % number * 10, b"k%d" % (number % 97), partition=partition)
                self.count += 1
        self.producer.flush()
        self.producer.close()


@pytest.mark.parametrize("partitions", [8, 3], ids=["forwarded", "by key"])
def test_a_mirror_killed_five_times_sends_each_record_once(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path, partitions: int
) -> None:
    source.create_topic(topic_name, partitions=8)
    target.create_topic(topic_name, partitions=partitions)
    writer = Writer(source.bootstrap, topic_name, 8)
    writer.start()
    options = ("--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "300")
    random.seed(KILLS)
    for _ in range(KILLS):
        with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
            mirror.wait_for("lag", 60)  # the first line of progress: streams are at work
            mirror.output.write_text("")
            time.sleep(random.uniform(0.1, 2.0))
            family = mirror.descendants()
            mirror.kill()
            wait_until_gone(family)
    writer.enough.set()
    writer.join()
    last = MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, "--exit.when.caught.up", group=topic_name
    )
    with last:
        assert last.wait() == 0, last.text
    if partitions == 8:
        verdict = compare(source.bootstrap, target.bootstrap, [topic_name])
        assert verdict.same, "\n".join(verdict.differences)
        assert verdict.records == writer.count
    else:
        ours = read(source, topic_name)
        assert sum(map(len, ours.values())) == writer.count
        assert_mirrored_by_key(ours, read(target, topic_name))
