"""Command lines and property files from users' documents, run as printed, on clusters with and without ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.wire.records.batch import CODEC_MASK
from mirrormaker.wire.records.compression import GZIP, NONE
from mirrormaker.zookeeper.ensemble import ZooKeeper
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import in_the_log, read

HERE = Path(__file__).parent
BIN = HERE.parents[1] / "bin"
RUN_CLASS = "bin/kafka-run-class.sh"


@pytest.fixture(scope="module")
def keepers() -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters of Kafka 3.9.2 with ZooKeeper, at the chroot paths that the documents use."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        clusters = [Cluster("3.9.2", name="with-zookeeper", chroot=path) for path in ("/kafka", "/kafka-test")]
        for cluster in pool.map(Cluster.start, clusters):
            stack.callback(cluster.stop)
        clusters[0].create_topic("app_log", partitions=1)
        write(clusters[0], "app_log", 100, compression_type="gzip")
        yield clusters[0], clusters[1]


def seed(name: str, directory: Path, as_name: str, **addresses: str) -> None:
    """Write a printed property file with other addresses; `addresses` maps keys, with _ for dots, to values."""
    text = (HERE / "seeds" / f"{name}.properties").read_text()
    for key, value in addresses.items():
        text, count = re.subn(rf"(?m)^{re.escape(key.replace('_', '.'))}=.*$", f"{key.replace('_', '.')}={value}", text)
        assert count == 1, f"{key} in {name}"
    (directory / as_name).write_text(text)


class Typed(MirrorProcess):
    """A mirror that is started by a command line in a directory."""

    def __init__(self, directory: Path, line: str) -> None:
        super().__init__(directory, "", "")
        self.line = line

    def start(self) -> Typed:
        with self.output.open("ab") as log:
            self.process = child_processes.spawn(
                words(self.line), stdout=log, stderr=log, env=ENVIRONMENT, cwd=self.directory
            )
        return self

    def __enter__(self) -> Typed:
        return self.start()


ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def words(line: str) -> list[str]:
    """Split a command line as a shell does; commands in bin/ are taken from the repository."""
    first, *rest = shlex.split(line)
    return [str(BIN / first.removeprefix("bin/")) if first.startswith("bin/") else first, *rest]


def typed(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(line), cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)


def write(cluster: Cluster, topic: str, count: int, start: int = 0, **options: object) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, linger_ms=20, **options)
    for number in range(start, start + count):
        producer.send(topic, b"%s-%d" % (topic.encode(), number), b"key-%d" % (number % 7))
    producer.flush()
    producer.close()


def values(cluster: Cluster, topic: str) -> list[bytes]:
    return sorted(row.value or b"" for rows in read(cluster, topic).values() for row in rows)


def expected(topic: str, count: int, start: int = 0) -> list[bytes]:
    return sorted(b"%s-%d" % (topic.encode(), number) for number in range(start, start + count))


def has(cluster: Cluster, topic: str, wanted: list[bytes]) -> bool:
    return values(cluster, topic) == wanted


def test_the_files_of_0_7_and_zookeeper_on_both_sides(keepers: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """Continue from an old group's offsets in ZooKeeper, and forward compressed batches unchanged."""
    source, target = keepers
    assert source.zookeeper and target.zookeeper
    for topic in ("topic1", "topic"):
        source.create_topic(topic, partitions=1, config={"retention.ms": "777000000"})
        write(source, topic, 100, compression_type="gzip")
    with ZooKeeper(source.zookeeper) as zookeeper:
        zookeeper.commit_offsets("dp-MirrorMaker-test-datapl", {("topic1", 0): 30, ("app_log", 0): 5})
    seed("hdp-consumer", tmp_path, "sourceClusterConsumer.properties", zk_connect=source.zookeeper)
    seed("hdp-producer", tmp_path, "targetClusterProducer.properties", zk_connect=target.zookeeper)
    line = (
        f"{RUN_CLASS} kafka.tools.MirrorMaker --consumer.config sourceClusterConsumer.properties"
        ' --producer.config targetClusterProducer.properties --whitelist="topic1, topic"'
    )
    with Typed(tmp_path, line) as mirror:
        mirror.wait_until(lambda: has(target, "topic1", expected("topic1", 70, 30)))
        mirror.wait_until(lambda: has(target, "topic", expected("topic", 100)))
        write(source, "topic1", 50, start=100)
        mirror.wait_until(lambda: has(target, "topic1", expected("topic1", 120, 30)))
        assert mirror.stop(signal.SIGINT) == 0, mirror.text
    assert "app_log" not in mirror.text.replace("mirror.topics (app_log)", "")
    assert "group dp-MirrorMaker-test-datapl continues 1 partitions from its offsets in ZooKeeper" in mirror.text
    assert "compressed batches stay compressed" in mirror.text
    codecs = {batch.attributes & CODEC_MASK for batch in in_the_log(target, "topic")}
    assert codecs == {GZIP}
    found = typed(
        tmp_path,
        f"{RUN_CLASS} kafka.tools.ConsumerOffsetChecker --group dp-MirrorMaker-test-datapl --zkconnect {source.zookeeper}"
        " --topic topic1",
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines() == [
        "Group           Topic                          Pid Offset          logSize         Lag             Owner",
        "dp-MirrorMaker-test-datapl topic1                         0   150             150             0               none",
    ]


def test_several_consumer_files_one_of_them_found_through_zookeeper(
    keepers: tuple[Cluster, Cluster], source: Cluster, target: Cluster, tmp_path: Path
) -> None:
    keeper, _ = keepers
    for cluster, topic in ((keeper, "from-zookeeper"), (source, "from-today")):
        cluster.create_topic(topic, partitions=2)
        write(cluster, topic, 60)
    seed("hdinsight-consumer", tmp_path, "sourceCluster1Consumer.config", zookeeper_connect=str(keeper.zookeeper))
    seed("best-practices-consumer", tmp_path, "sourceCluster2Consumer.config", bootstrap_servers=source.bootstrap)
    seed("best-practices-producer", tmp_path, "targetClusterProducer.config", bootstrap_servers=target.bootstrap)
    line = (
        f"{RUN_CLASS} kafka.tools.MirrorMaker --consumer.config sourceCluster1Consumer.config --consumer.config"
        ' sourceCluster2Consumer.config --num.streams 2 --producer.config targetClusterProducer.config --whitelist="from-.*"'
    )
    with Typed(tmp_path, line) as mirror:
        mirror.wait_until(lambda: has(target, "from-zookeeper", expected("from-zookeeper", 60)))
        mirror.wait_until(lambda: has(target, "from-today", expected("from-today", 60)))
        assert mirror.stop() == 0, mirror.text
    assert "batch.size=100" in mirror.text, "the note says which unit it was taken for"
    assert "acks=1: an acknowledged record can be lost" in mirror.text


def test_everything_of_a_cluster_without_zookeeper_and_nothing_lost(
    target: Cluster, keepers: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    """Mirror all topics but Kafka's internal ones, with every option that the documents name."""
    with Cluster(name="everything", settings={"auto.create.topics.enable": "false"}) as source:
        for topic in ("my-topic", "testtopic"):
            source.create_topic(topic, partitions=2)
            write(source, topic, 80)
        commit_something(source)
        seed("no-data-loss-consumer", tmp_path, "consumer.properties", bootstrap_servers=source.bootstrap)
        seed("no-data-loss-producer", tmp_path, "producer.properties", bootstrap_servers=target.bootstrap)
        line = (
            "kafka-mirror-maker --consumer.config consumer.properties --producer.config producer.properties"
            ' --white-list=".*" --num.streams 4 --num.producers 2 --queue.size 2000 --new.consumer --abortOnSendFail'
        )
        with Typed(tmp_path, line) as mirror:
            mirror.wait_until(lambda: has(target, "my-topic", expected("my-topic", 80)))
            mirror.wait_until(lambda: has(target, "testtopic", expected("testtopic", 80)))
            assert mirror.stop() == 0, mirror.text
    assert "left out   __consumer_offsets: internal topics belong to their own cluster" in mirror.text
    assert "exactly once" in mirror.text


def commit_something(cluster: Cluster) -> None:
    """Commit an offset, so that __consumer_offsets exists."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, group_id="someone", enable_auto_commit=False)
    consumer.assign([TopicPartition("my-topic", 0)])
    consumer.poll(5000, max_records=1)
    consumer.commit()
    consumer.close()


def test_the_topics_of_the_consumer_file_and_offsets_in_both_places(
    keepers: tuple[Cluster, Cluster], target: Cluster, tmp_path: Path
) -> None:
    """Use the topics of the property file, and uncompressed batches as the producer's file says."""
    source, _ = keepers
    (tmp_path / "consumer.properties").write_text(
        f"zookeeper.connect={source.zookeeper}\ngroup.id=both\nmirror.topics.whitelist=app_log\ndual.commit.enabled=true\n"
    )
    seed("hdinsight-producer", tmp_path, "producer.properties", bootstrap_servers=target.bootstrap)
    line = f"{RUN_CLASS} kafka.tools.MirrorMaker --consumer.config consumer.properties --producer.config producer.properties"
    with Typed(tmp_path, line) as mirror:
        mirror.wait_until(lambda: has(target, "app_log", expected("app_log", 100)))
        assert mirror.stop() == 0, mirror.text
    assert {batch.attributes & CODEC_MASK for batch in in_the_log(target, "app_log")} == {NONE}
    with ZooKeeper(str(source.zookeeper)) as zookeeper:
        assert zookeeper.offsets("both") == {("app_log", 0): 100}


def test_offsets_of_a_topic_that_was_created_again_do_not_count(keepers: tuple[Cluster, Cluster]) -> None:
    """The offsets belong to an older topic of the same name: to continue there would skip records."""
    cluster, _ = keepers
    cluster.create_topic("reborn", partitions=1)
    with ZooKeeper(str(cluster.zookeeper)) as zookeeper:
        zookeeper.commit_offsets("whoever", {("reborn", 0): 30, ("app_log", 0): 7})
        assert zookeeper.current_offsets("whoever") == {("reborn", 0): 30, ("app_log", 0): 7}
        admin = KafkaAdminClient(bootstrap_servers=[cluster.bootstrap])
        admin.delete_topics(["reborn"])
        deadline = time.monotonic() + 20
        while "reborn" in admin.list_topics() or zookeeper.partitions("reborn"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.close()
        cluster.create_topic("reborn", partitions=1)
        assert zookeeper.offsets("whoever") == {("reborn", 0): 30, ("app_log", 0): 7}
        assert zookeeper.current_offsets("whoever") == {("app_log", 0): 7}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            f"{RUN_CLASS} kafka.tools.ConsoleConsumer",
            "only kafka.tools.MirrorMaker and kafka.tools.ConsumerOffsetChecker",
        ),
        (f"{RUN_CLASS} kafka.tools.MirrorMaker --whitelist x", "--consumer.config FILE is missing"),
        (f"{RUN_CLASS} kafka.tools.MirrorMaker --nosuchoption", "(see kafka-mirror-maker --help)"),
        (f"{RUN_CLASS} kafka.tools.ConsumerOffsetChecker", "(see kafka-consumer-offset-checker --help)"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_1(tmp_path: Path, line: str, why: str) -> None:
    found = typed(tmp_path, line)
    assert (found.returncode, found.stdout) == (1, "")
    (said,) = found.stderr.splitlines()
    assert why in said


def test_a_zookeeper_that_is_not_there_is_said_at_once(target: Cluster, tmp_path: Path) -> None:
    seed("hdinsight-consumer", tmp_path, "consumer.properties", zookeeper_connect="127.0.0.1:1/kafka")
    seed("hdinsight-producer", tmp_path, "producer.properties", bootstrap_servers=target.bootstrap)
    line = (
        "kafka-mirror-maker --consumer.config consumer.properties --producer.config producer.properties --whitelist t"
    )
    found = typed(tmp_path, line)
    assert found.returncode == 1
    (said,) = found.stderr.splitlines()
    assert "ZooKeeper 127.0.0.1:1/kafka cannot be reached" in said
    assert "connection refused (zookeeper.connect in consumer.properties)" in said


@pytest.mark.parametrize("command", ["kafka-mirror-maker", "kafka-consumer-offset-checker"])
def test_help_is_asked_for_without_harm(tmp_path: Path, command: str) -> None:
    found = typed(tmp_path, f"{command} --help")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(f"usage: {command}")
    assert "examples:" in found.stdout
