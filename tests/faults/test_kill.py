"""The mirror is killed again and again where records are unpacked; the target holds each of them once, in order.

What is forwarded as it came is killed in the short form of `make faults`.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.reading import assert_mirrored_by_key, read

KILLS = 5


class Writer(threading.Thread):
    """Numbered, keyed records at a steady pace until told to stop; in transactions, every second one of which is aborted."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, per_second: int = 2000, codec: str | None = "lz4",
        transactions: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self.producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap.split(","), linger_ms=5, compression_type=codec,
            transactional_id=topic if transactions else None,
        )  # fmt: skip
        self.topic, self.partitions, self.per_second, self.transactions = topic, partitions, per_second, transactions
        self.enough = threading.Event()
        self.count = 0
        if transactions:
            self.producer.init_transactions()
        self.start()

    def run(self) -> None:
        number = 0
        while not self.enough.wait(0.05):
            if self.transactions:
                self.producer.begin_transaction()
            few = self.per_second // 20
            for _ in range(few):
                key = None if number % 9 == 0 else b"k%d" % (number % 97)
                self.producer.send(self.topic, b"%d" % number * 10, key, partition=number % self.partitions)
                number += 1
            if self.transactions and random.random() < 0.5:
                self.producer.flush()
                self.producer.abort_transaction()
            else:
                if self.transactions:
                    self.producer.commit_transaction()
                self.count += few
        self.producer.flush()
        self.producer.close()

    def stop(self) -> None:
        self.enough.set()
        self.join()


def mirror_and_kill(
    tmp_path: Path, source: Cluster, target: Cluster, writers: list[Writer], *, group: str, consumer: str = ""
) -> None:
    """Start the mirror and kill it at random moments, while records come; then let it finish."""
    topics = ",".join(writer.topic for writer in writers)
    options = ("--whitelist", topics, "--num.streams", "2", "--progress.interval.ms", "300")
    random.seed(KILLS)
    ends = (source.bootstrap, target.bootstrap)
    for _ in range(KILLS):
        with MirrorProcess(tmp_path, *ends, *options, group=group, consumer=consumer) as mirror:
            mirror.wait_for("lag", 60)  # the first line of progress: streams are at work
            mirror.output.write_text("")
            time.sleep(random.uniform(0.1, 2.0))
            family = mirror.descendants()
            mirror.kill()
            wait_until_gone(family)
    for writer in writers:
        writer.stop()
    last = MirrorProcess(tmp_path, *ends, *options, "--exit.when.caught.up", group=group, consumer=consumer)
    with last:
        assert last.wait() == 0, last.text


def test_a_mirror_killed_five_times_sends_each_record_once_where_records_are_unpacked(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """To fewer partitions, to more, with the broker's time, and of transactions only what was committed."""
    fewer, more = f"{topic_name}.fewer", f"{topic_name}.more"
    stamped, committed = f"{topic_name}.stamped", f"{topic_name}.committed"
    for topic, here, there in ((fewer, 8, 3), (more, 3, 8), (stamped, 2, 2), (committed, 2, 3)):
        config = {"message.timestamp.type": "LogAppendTime"} if topic == stamped else {}
        source.create_topic(topic, partitions=here, config=config)
        target.create_topic(topic, partitions=there)
    writers = [
        Writer(source, fewer, 8, 1000), Writer(source, more, 3, 500, "zstd"), Writer(source, stamped, 2, 200, None),
        Writer(source, committed, 2, 400, "gzip", transactions=True),
    ]  # fmt: skip
    consumer = "isolation.level=read_committed\n"
    mirror_and_kill(tmp_path, source, target, writers, group=topic_name, consumer=consumer)
    for writer in writers:
        ours, theirs = read(source, writer.topic, committed=True), read(target, writer.topic)
        assert sum(map(len, ours.values())) == writer.count
        if writer.topic == stamped:
            rows = {p: [row.content for row in found] for p, found in theirs.items()}
            assert rows == {p: [row.content for row in found] for p, found in ours.items()}
        else:
            assert_mirrored_by_key(ours, theirs)
