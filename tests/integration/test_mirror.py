"""The whole program: real clusters, the real command, and both clusters compared by another client."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient

from mirrormaker.console.compare import compare
from mirrormaker.embedded import Cluster
from tests.support.comparing import assert_same, wait_until_equal
from tests.support.mirror_process import MirrorProcess, run_once, wait_until_gone
from tests.support.numbered_records import write
from tests.support.reading import end_offsets, read
from tests.support.transactions import write_transactions
from tests.support.waiting import wait_until

CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def test_every_codec_key_header_and_timestamp_arrives_as_it_was(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=5, config={"retention.ms": "86400000", "cleanup.policy": "delete"})
    for number, codec in enumerate(CODECS):
        write(source, topic_name, 500, 5, codec, start=500 * number)
    mirror = run_once(tmp_path, source, target, "--include", topic_name, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert "exactly once" in mirror.text
    assert f"created {topic_name} on the target with 5 partitions" in mirror.text
    assert_same(source, target, topic_name, 2500)
    again = run_once(tmp_path, source, target, "--include", topic_name, group=topic_name)
    assert again.wait() == 0, again.text
    assert_same(source, target, topic_name, 2500)


def test_a_stop_is_clean_and_the_next_start_goes_on(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=4)
    write(source, topic_name, 400, 4)
    options = ("--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 4, mirror)
        started, family = time.monotonic(), mirror.descendants()
        assert any("java" in text for text in family.values())
        assert mirror.stop(signal.SIGINT) == 0, mirror.text
        assert time.monotonic() - started < 10
        assert "mirrored 400 records" in mirror.text
        wait_until_gone(family, within=1)
    write(source, topic_name, 400, 4, start=400)
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 4, mirror)
        assert mirror.stop(signal.SIGTERM) == 0, mirror.text
    assert_same(source, target, topic_name, 800)


def test_a_stop_does_not_wait_for_a_target_that_is_gone(source: Cluster, topic_name: str, tmp_path: Path) -> None:
    source.create_topic(topic_name, partitions=2)
    write(source, topic_name, 100, 2)
    options = ("--whitelist", topic_name, "--progress.interval.ms", "500")
    with (
        Cluster(name="gone", settings={"auto.create.topics.enable": "false"}) as gone,
        MirrorProcess(tmp_path, source.bootstrap, gone.bootstrap, *options, group=topic_name) as mirror,
    ):
        wait_until_equal(source, gone, topic_name, 2, mirror)
        gone.brokers[0].kill()
        write(source, topic_name, 100, 2, start=100)
        mirror.wait_for("waiting: ")
        started = time.monotonic()
        assert mirror.stop() == 0, mirror.text
        assert time.monotonic() - started < 10


def test_new_topics_and_partitions_are_picked_up_from_their_first_record(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    first, later = f"{topic_name}.a", f"{topic_name}.b"
    source.create_topic(first, partitions=2)
    write(source, first, 100, 2)
    options = ("--whitelist", f"{topic_name}[.].", "--num.streams", "2")
    consumer = "auto.offset.reset=latest\n"
    with MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name, consumer=consumer
    ) as mirror:
        mirror.wait_for("guarantee")
        source.create_topic(later, partitions=3)
        write(source, later, 300, 3)
        admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
        admin.create_partitions({first: 4})
        admin.close()
        wait_until("four partitions on the source", lambda: _partitions(source, first) == 4)
        write(source, first, 400, 4, start=100)
        wait_until_equal(source, target, later, 3, mirror, within=40)
        # With latest, the first 100 records are not mirrored; new partitions are mirrored from their first record.
        mirror.wait_until(
            lambda: _partitions(target, first) == 4 and end_offsets(target, first, 4) == [100, 100, 100, 100], 30
        )
        assert mirror.stop() == 0, mirror.text
    assert_same(source, target, later, 300)


def _partitions(cluster: Cluster, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        return len(consumer.partitions_for_topic(topic) or ())
    finally:
        consumer.close()


def test_a_killed_stream_comes_back_alone(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    source.create_topic(topic_name, partitions=4)
    write(source, topic_name, 400, 4)
    options = ("--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 4, mirror)
        workers = mirror.python_workers()
        assert workers
        os.kill(workers[0], signal.SIGKILL)
        write(source, topic_name, 400, 4, start=400)
        wait_until_equal(source, target, topic_name, 4, mirror, within=20)
        assert mirror.stop() == 0, mirror.text
    assert_same(source, target, topic_name, 800)


def test_a_killed_jvm_is_replaced(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    source.create_topic(topic_name, partitions=4)
    write(source, topic_name, 400, 4)
    options = ("--whitelist", f"{topic_name}.?", "--num.streams", "2", "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, 4, mirror)
        os.kill(mirror.jvm(), signal.SIGKILL)
        write(source, topic_name, 400, 4, start=400)
        wait_until_equal(source, target, topic_name, 4, mirror, within=60)
        assert "starting another" in mirror.text
        assert mirror.stop() == 0, mirror.text
    assert_same(source, target, topic_name, 800)


def test_markers_are_dropped_and_aborted_records_too_if_asked(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=1)
    write_transactions(source, topic_name)
    mirror = run_once(
        tmp_path,
        source,
        target,
        "--whitelist",
        topic_name,
        group=topic_name,
        consumer="isolation.level=read_committed\n",
    )
    assert mirror.wait() == 0, mirror.text
    assert _values(target, topic_name) == [b"%d-%d" % (n, i) for n in (0, 2, 4) for i in range(10)]
    # A group without offsets does not mirror a second time what the target holds, unless someone sets its offsets.
    admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
    start = {TopicPartition(topic_name, 0): OffsetAndMetadata(0, "", -1)}
    admin.alter_group_offsets(topic_name + "-all", start)
    admin.close()
    again = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name + "-all")
    assert again.wait() == 0, again.text
    assert len(_values(target, topic_name)) == 30 + 60


def _values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [row.value for row in read(cluster, topic)[0]]


def test_a_target_that_refuses_records_ends_the_mirror_with_the_reason(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=1)
    target.create_topic(topic_name, partitions=1, config={"message.timestamp.before.max.ms": "1"})
    write(source, topic_name, 10, 1)
    time.sleep(0.1)
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name)
    assert mirror.wait() == 1
    last = mirror.text.strip().splitlines()[-1]
    assert last.startswith(
        f"mirrormaker: {topic_name}-0: the record at source offset 0 cannot be delivered: the target refuses"
    )
    assert "INVALID_TIMESTAMP (32)" in last
    assert "Traceback" not in mirror.text


def test_the_positions_of_another_target_are_not_used(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=1)
    write(source, topic_name, 50, 1)
    first = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name)
    assert first.wait() == 0, first.text
    write(source, topic_name, 50, 1, start=50)
    with Cluster(name="other") as other:
        (tmp_path / "mirror.log").write_text("")
        refused = run_once(tmp_path, source, other, "--whitelist", topic_name, group=topic_name)
        assert refused.wait() == 1
        assert "--accept.new.target" in refused.text.splitlines()[-1], refused.text
        assert "another group.id" in refused.text.splitlines()[-1]
        (tmp_path / "mirror.log").write_text("")
        taken = run_once(tmp_path, source, other, "--whitelist", topic_name, "--accept.new.target", group=topic_name)
        assert taken.wait() == 0, taken.text
        assert end_offsets(other, topic_name, 1) == [50]


def test_a_full_buffer_of_messages_stops_fetching_and_loses_nothing(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=3)
    write(source, topic_name, 3000, 3)
    mirror = run_once(
        tmp_path, source, target, "--whitelist", topic_name, "--queue.size", "20", "--num.producers", "2", group=topic_name,
        consumer="max.partition.fetch.bytes=4096\nfetch.max.bytes=8192\n",
    )  # fmt: skip
    assert mirror.wait() == 0, mirror.text
    assert_same(source, target, topic_name, 3000)


def test_many_partitions_and_many_topics(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    short = topic_name[-8:]
    partitions = {f"{short}.wide": 200} | {f"{short}.{n}": 1 for n in range(100)}
    admin = KafkaAdminClient(bootstrap_servers=source.bootstrap)
    admin.create_topics({name: {"num_partitions": n, "replication_factor": 1} for name, n in partitions.items()})
    admin.close()
    time.sleep(1)
    producer = KafkaProducer(bootstrap_servers=source.bootstrap)
    for number in range(1000):
        producer.send(f"{short}.wide", b"%d" % number, partition=number % 200)
        producer.send(f"{short}.{number % 100}", b"%d" % number)
    producer.flush()
    producer.close()
    mirror = run_once(tmp_path, source, target, "--whitelist", f"{short}[.].*", "--num.streams", "2", group=topic_name)
    assert mirror.wait() == 0, mirror.text
    verdict = compare(source.bootstrap, target.bootstrap, list(partitions))
    assert verdict.same and verdict.records == 2000, verdict.differences
