"""Batches that cannot be forwarded unchanged: other partitions, other compression, gaps, append times, size limits."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, KafkaAdminClient

from mirrormaker.embedded import Cluster
from tests.support.comparing import assert_mirrored_by_key, assert_same
from tests.support.java_writer import write_with_java
from tests.support.mirror_process import MirrorProcess, run_once
from tests.support.numbered_records import write
from tests.support.reading import end_offsets, in_the_log, read
from tests.support.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


PLAIN = ("fewer", "more", "java", "compacted", "stamped", "tiny", "large")


@pytest.fixture(scope="module")
def mirrored(source: Cluster, target: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Topics of every kind, mirrored by one process with default settings: kind -> topic name."""
    topics = {kind: f"lane-{uuid.uuid4().hex[:8]}.{kind}" for kind in PLAIN}
    compact = {
        "cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000",
    }  # fmt: skip
    source.create_topic(topics["compacted"], partitions=1, config=compact)
    compaction = write_for_compaction(source, topics["compacted"])
    for kind, on_source, on_target in (("fewer", 8, 3), ("more", 3, 8), ("java", 4, 4)):
        source.create_topic(topics[kind], partitions=on_source)
        target.create_topic(topics[kind], partitions=on_target)
    write_with_java(source, *((topics[k], codec, 400, "plain") for k in ("fewer", "more", "java") for codec in CODECS))
    source.create_topic(topics["stamped"], partitions=2, config={"message.timestamp.type": "LogAppendTime"})
    write(source, topics["stamped"], 500, 2, "lz4")
    write(source, topics["stamped"], 500, 2, None, start=500)
    source.create_topic(topics["tiny"], partitions=1)
    with producer(source, linger_ms=0, batch_size=1) as send:
        for number in range(3000):
            send(topics["tiny"], b"value-%d" % number, b"key", headers=[("n", b"%d" % number)], partition=0)
    source.create_topic(topics["large"], partitions=1)
    target.create_topic(topics["large"], partitions=1, config={"max.message.bytes": "20000"})
    with producer(source, linger_ms=100, batch_size=500_000) as send:
        for number in range(1000):
            send(topics["large"], os.urandom(1000), b"%d" % number, partition=0)
    compaction()
    directory = tmp_path_factory.mktemp("mirrored")
    mirror = run_once(directory, source, target, "--whitelist", ",".join(topics.values()), group=topics["java"])
    assert mirror.wait() == 0, mirror.text
    assert "by key, as Java's producer does it" in mirror.text
    return topics


@contextlib.contextmanager
def producer(cluster: Cluster, **settings: Any) -> Iterator[Callable[..., Any]]:
    client = KafkaProducer(bootstrap_servers=cluster.bootstrap, **settings)
    yield client.send
    client.flush()
    client.close()


def write_for_compaction(cluster: Cluster, topic: str) -> Callable[[], None]:
    """Write repeated keys. Return a function that waits until the broker has compacted the log."""
    with producer(cluster, linger_ms=50) as send:
        for number in range(3000):
            send(topic, b"%d" % number * 100, b"key-%d" % (number % 700 if number % 3 else number), partition=0)

    def wait() -> None:
        time.sleep(1.1)
        with producer(cluster) as send:
            send(topic, b"rolls the segment", b"last")
        wait_until("the log is compacted", lambda: len(read(cluster, topic)[0]) <= 2000, 60)

    return wait


@pytest.mark.parametrize(("kind", "there"), [("fewer", 3), ("more", 8)])
def test_records_go_where_their_keys_belong_when_partitions_differ(
    source: Cluster, target: Cluster, mirrored: dict[str, str], kind: str, there: int
) -> None:
    ours, theirs = read(source, mirrored[kind]), read(target, mirrored[kind])
    assert sum(map(len, ours.values())) == 2000
    assert_mirrored_by_key(ours, theirs)
    keyless = [sum(row.key is None for row in rows) for rows in theirs.values()]
    assert min(keyless) > 0.25 * sum(keyless) / there, f"records without a key are not spread evenly: {keyless}"


def test_what_java_wrote_with_every_codec_is_the_same_on_as_many_partitions(
    source: Cluster, target: Cluster, mirrored: dict[str, str]
) -> None:
    assert_same(source, target, mirrored["java"], 2000)


def test_a_compacted_topic_is_mirrored_with_its_gaps(
    source: Cluster, target: Cluster, mirrored: dict[str, str]
) -> None:
    ours = read(source, mirrored["compacted"])[0]
    assert ours[-1].offset - ours[0].offset + 1 > len(ours), "no gaps: nothing is tested"
    newest = {row.key: row.content for row in read(target, mirrored["compacted"])[0]}
    assert newest == {row.key: row.content for row in ours}


def test_records_of_an_append_time_topic_keep_the_time_that_readers_saw(
    source: Cluster, target: Cluster, mirrored: dict[str, str]
) -> None:
    assert_same(source, target, mirrored["stamped"], 1000)


def test_tiny_batches_of_a_backlog_arrive_in_few_large_ones(
    source: Cluster, target: Cluster, mirrored: dict[str, str]
) -> None:
    assert len(in_the_log(source, mirrored["tiny"])) > 1000
    assert_same(source, target, mirrored["tiny"], 3000)
    assert len(in_the_log(target, mirrored["tiny"])) < 20


def test_batches_that_are_too_large_for_the_target_are_split(
    source: Cluster, target: Cluster, mirrored: dict[str, str]
) -> None:
    assert_same(source, target, mirrored["large"], 1000)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_are_mirrored_by_key_without_what_was_aborted_if_asked(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path, level: str
) -> None:
    source.create_topic(topic_name, partitions=2)
    target.create_topic(topic_name, partitions=3)
    write_with_java(source, (topic_name, "none", 500, "transactions"), (topic_name, "zstd", 500, "transactions"))
    consumer = f"isolation.level={level}\n"
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name, consumer=consumer)
    assert mirror.wait() == 0, mirror.text
    ours = read(source, topic_name, committed=level == "read_committed")
    assert sum(map(len, ours.values())) == (500 if level == "read_committed" else 1000)
    assert_mirrored_by_key(ours, read(target, topic_name))


def test_compression_type_repacks_what_came_in_another_codec(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=1)
    for number, codec in enumerate((None, "gzip", "zstd", "lz4")):
        write(source, topic_name, 500, 1, codec, start=500 * number)
    mirror = run_once(
        tmp_path, source, target, "--whitelist", topic_name, group=topic_name, producer="compression.type=lz4\n"
    )
    assert mirror.wait() == 0, mirror.text
    assert_same(source, target, topic_name, 2000)
    assert {batch.codec for batch in in_the_log(target, topic_name)} == {"lz4"}


def with_one_record_too_large(source: Cluster, target: Cluster, topic: str) -> None:
    source.create_topic(topic, partitions=2)
    target.create_topic(topic, partitions=2, config={"max.message.bytes": "20000"})
    producer = KafkaProducer(bootstrap_servers=source.bootstrap, linger_ms=100, batch_size=500_000)
    for number in range(200):
        size = 50_000 if number == 101 else 100
        producer.send(topic, os.urandom(size), b"%d" % number, partition=number % 2)
    producer.flush()
    producer.close()


def test_a_record_that_is_too_large_alone_ends_the_mirror_with_its_name(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    with_one_record_too_large(source, target, topic_name)
    mirror = run_once(tmp_path, source, target, "--whitelist", topic_name, group=topic_name)
    assert mirror.wait() == 1
    last = mirror.text.strip().splitlines()[-1]
    assert last.startswith(f"mirrormaker: {topic_name}-1: the record at source offset 50 cannot be delivered"), last
    assert "max.message.bytes of 20000" in last
    assert [row.key for row in read(target, topic_name)[1]] == [b"%d" % n for n in range(1, 101, 2)]


def test_a_record_that_fits_since_the_limit_was_raised_on_both_sides_is_mirrored(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """The mirror has read the limit at its start. It ended with exit code 1 here."""
    for cluster in (source, target):
        cluster.create_topic(topic_name, partitions=1, config={"max.message.bytes": "20000"})
    with MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, "--whitelist", topic_name, group=topic_name
    ) as mirror:
        for limit, size in ((20_000, 10_000), (100_000, 50_000), (1_000_000, 500_000)):
            for cluster in (target, source):
                admin = KafkaAdminClient(bootstrap_servers=[cluster.bootstrap])
                admin.alter_configs([ConfigResource("TOPIC", topic_name, {"max.message.bytes": str(limit)})])
                admin.close()
            with producer(source, linger_ms=0) as send:
                for value in (b"before", os.urandom(size), b"after"):
                    send(topic_name, value, partition=0)
            wanted = end_offsets(source, topic_name, 1)
            mirror.wait_until(lambda wanted=wanted: end_offsets(target, topic_name, 1) == wanted)  # type: ignore[misc]
        assert mirror.stop() == 0, mirror.text
    assert_same(source, target, topic_name, 9)


def test_records_that_are_never_taken_are_written_down_and_the_rest_arrives_if_asked(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Mirror a record that is too large, and records without a key for a compacted topic, which the broker refuses."""
    large, compacted = f"{topic_name}.large", f"{topic_name}.compacted"
    with_one_record_too_large(source, target, large)
    source.create_topic(compacted, partitions=1)
    target.create_topic(compacted, partitions=1, config={"cleanup.policy": "compact"})
    with producer(source, linger_ms=100) as send:
        for number in range(100):
            send(compacted, b"%d" % number, None if number in (30, 31, 77) else b"%d" % number, partition=0)
    file = tmp_path / "undelivered.jsonl"
    options = (
        "--whitelist",
        f"{large},{compacted}",
        "--abort.on.send.failure",
        "false",
        "--undelivered.file",
        str(file),
    )
    mirror = run_once(tmp_path, source, target, *options, group=topic_name)
    assert mirror.wait() == 0, mirror.text
    assert "4 records could not be delivered" in mirror.text
    lines = sorted((json.loads(line) for line in file.read_text().splitlines()), key=lambda line: str(line["topic"]))
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [
        (compacted, 0, 30), (compacted, 0, 31), (compacted, 0, 77), (large, 1, 50),
    ]  # fmt: skip
    assert "max.message.bytes" in lines[-1]["cause"]
    assert "INVALID_RECORD (87)" in lines[0]["cause"]
    found = read(target, large)
    assert [row.key for row in found[1]] == [b"%d" % n for n in range(1, 200, 2) if n != 101]
    assert len(found[0]) == 100
    kept = [b"%d" % n for n in range(100) if n not in (30, 31, 77)]
    assert [row.value for row in read(target, compacted)[0]] == kept


def test_partitions_can_be_chosen_by_key_or_kept_as_the_user_says(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    kept, keyed = f"{topic_name}.kept", f"{topic_name}.keyed"
    for topic, there in ((kept, 5), (keyed, 3)):
        source.create_topic(topic, partitions=3)
        target.create_topic(topic, partitions=there)
        producer = KafkaProducer(bootstrap_servers=source.bootstrap)
        for number in range(300):  # into partitions that the partitioner would not choose
            producer.send(topic, b"%d" % number, b"k%d" % (number % 17), partition=number % 3)
        producer.flush()
        producer.close()
    mirror = run_once(tmp_path, source, target, "--whitelist", kept, group=kept, producer="partition.by=same\n")
    assert mirror.wait() == 0, mirror.text
    assert {p: [row.content for row in rows] for p, rows in read(target, kept).items() if rows} == {
        p: [row.content for row in rows] for p, rows in read(source, kept).items()
    }
    mirror = run_once(tmp_path, source, target, "--whitelist", keyed, group=keyed, producer="partition.by=key\n")
    assert mirror.wait() == 0, mirror.text
    assert_mirrored_by_key(read(source, keyed), read(target, keyed))


def test_the_same_partition_on_fewer_partitions_is_refused(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=3)
    target.create_topic(topic_name, partitions=2)
    mirror = run_once(
        tmp_path, source, target, "--whitelist", topic_name, group=topic_name, producer="partition.by=same\n"
    )
    assert mirror.wait() == 1
    last = mirror.text.strip().splitlines()[-1]
    assert f"{topic_name} has 3 partitions on the source and 2 on the target: with partition.by=same" in last, last
    assert "Traceback" not in mirror.text


def test_a_target_that_is_given_more_partitions_goes_on_by_key(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=3)
    target.create_topic(topic_name, partitions=2)
    write_with_java(source, (topic_name, "none", 300, "plain"))
    options = ("--whitelist", topic_name, "--progress.interval.ms", "500")
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_until(lambda: sum(map(len, read(target, topic_name).values())) >= 300, 60)
        admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
        admin.create_partitions({topic_name: 4})
        admin.close()
        mirror.wait_for("3 partitions on the source and 4 on the target now; going on at source offset", 30)
        write_with_java(source, (topic_name, "lz4", 300, "plain"))
        mirror.wait_until(lambda: sum(map(len, read(target, topic_name).values())) >= 600, 30)
        assert mirror.stop() == 0, mirror.text
    found = read(target, topic_name)
    after = {p: [r for r in rows if (r.value or b"").startswith(b"lz4")] for p, rows in found.items()}
    origin = {
        p: [r for r in rows if (r.value or b"").startswith(b"lz4")] for p, rows in read(source, topic_name).items()
    }
    assert_mirrored_by_key(origin, after)
    assert all(after.values())
