"""The offset map: every source offset of every kind of topic is translated, and compared with both logs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaProducer

from mirrormaker.embedded import Cluster
from mirrormaker.model.position import MARKED_EPOCH
from tests.support.java_writer import write_with_java
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_truth import stored_map, wrong_translations
from tests.support.reading import Read, in_the_log, read
from tests.support.waiting import wait_until

# Kind of topic: partitions on the source and on the target.
KINDS = {"plain": (2, 2), "shared": (1, 1), "transactions": (2, 2), "compacted": (1, 1), "stamped": (1, 1), "tiny": (1, 1),
         "fewer": (8, 3), "merged": (1, 1), "filtered": (2, 2)}  # fmt: skip
# Topics that more than one mirror writes to, or another one than that of the rest.
OWN_MIRROR = "filtered"
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
}
TIMES = {"message.timestamp.type": "LogAppendTime"}
SETTINGS = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "500"}
# Older brokers cost a minute each: MAP_BROKERS=3.9.2,2.0.1 runs everything with them too.
NEWEST = "4.3.1"
VERSIONS = (NEWEST, *filter(None, os.environ.get("MAP_BROKERS", "").split(",")))
HANDLER = """
def keep(record):
    number = int(record.value.split(b"-")[0])
    return [] if number % 3 == 0 or number % 100 > 90 else [record]
"""


class Mirrored(NamedTuple):
    """Topics by kind, and the mirrored records of the compacted one, as they were before it was compacted further."""

    source: Cluster
    second: Cluster
    target: Cluster
    names: dict[str, str]
    compacted: list[Read]


def send(cluster: Cluster, topic: str, partitions: int, first: int, count: int, **settings: object) -> None:
    """Write records with unique values; the partition is left to the key if there are none to choose from."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, **settings)
    for number in range(first, first + count):
        producer.send(topic, b"%d-" % number * 5, b"key-%d" % (number % 50), partition=number % partitions)
    producer.flush()
    producer.close()


def is_kept(row: Read) -> bool:
    """Return True if the message handler keeps a record."""
    number = int((row.value or b"").split(b"-")[0])
    return not (number % 3 == 0 or number % 100 > 90)


@pytest.fixture(scope="module", params=VERSIONS)
def clusters(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """Two sources and a target."""
    version = request.param
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        names = ["second"] if version == NEWEST else ["second", "first", "there"]
        new = [Cluster(version, settings=SETTINGS, name=f"{name}-{version}", heap="256m") for name in names]
        for cluster in pool.map(Cluster.start, new):
            stack.callback(cluster.stop)
        if version == NEWEST:
            new += [request.getfixturevalue("source"), request.getfixturevalue("target")]
        second, source, target = new
        yield source, second, target


@pytest.fixture(scope="module")
def topics(clusters: tuple[Cluster, Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    """Topics of every kind, mirrored in parts by mirrors that are killed several times."""
    source, second, target = clusters
    names = {kind: f"map-{uuid.uuid4().hex[:6]}.{kind}" for kind in KINDS}
    for kind, (ours, theirs) in KINDS.items():
        config = COMPACT if kind == "compacted" else TIMES if kind == "stamped" else {}
        source.create_topic(names[kind], partitions=ours, config=config)
        target.create_topic(names[kind], partitions=theirs)
    second.create_topic(names["merged"], partitions=1)

    compacted: dict[bytes | None, Read] = {}

    def look_at_compacted() -> None:
        """Remember the source's records: it may be compacted further after they were mirrored."""
        compacted.update((row.value, row) for row in read(source, names["compacted"])[0])

    def write(first: int) -> None:
        send(source, names["plain"], 2, first, 500, linger_ms=5)
        send(source, names["shared"], 1, first, 300, linger_ms=1)
        send(target, names["shared"], 1, 1_000_000 + first, 50)
        send(source, names["merged"], 1, first, 300, linger_ms=1)
        send(second, names["merged"], 1, 1_000_000 + first, 300, linger_ms=2)
        send(source, names["filtered"], 2, first, 500, linger_ms=5)
        send(source, names["compacted"], 1, first, 1000, linger_ms=50)
        send(source, names["stamped"], 1, first, 300)
        send(source, names["tiny"], 1, first, 300, linger_ms=0, batch_size=1)
        send(source, names["fewer"], 8, first, 800, linger_ms=5)
        look_at_compacted()

    def mirrored(kind: str) -> int:
        return sum(row.value is not None for rows in read(target, names[kind]).values() for row in rows)

    def kept() -> int:
        return sum(is_kept(row) for rows in read(source, names["filtered"]).values() for row in rows)

    write(0)
    write_with_java(source, (names["transactions"], "none", 500, "streams"))
    time.sleep(1.1)  # segment.ms: the next record rolls the segment, and closed segments are compacted
    send(source, names["compacted"], 1, 5000, 1)
    wait_until("the log is compacted", lambda: len(read(source, names["compacted"])[0]) < 900, 60)
    compacted.clear()
    look_at_compacted()
    directory = tmp_path_factory.mktemp("map")
    other = directory / "second.properties"
    other.write_text(f"bootstrap.servers={second.bootstrap}\ngroup.id={names['merged']}\n")
    mirror = MirrorProcess(
        directory, source.bootstrap, target.bootstrap, "--consumer.config", str(other),
        "--whitelist", ",".join(name for kind, name in names.items() if kind != OWN_MIRROR),
        "--num.streams", "2", group=names["plain"], consumer="isolation.level=read_committed\n",
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("filter")
    (directory / "map_handler.py").write_text(HANDLER)
    handling = MirrorProcess(
        directory, source.bootstrap, target.bootstrap, "--whitelist", names["filtered"], "--message.handler",
        "map_handler:keep", group=names["filtered"],
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        with mirror, handling:
            mirror.wait_until(lambda: mirrored("plain") == 500 and mirrored("fewer") == 800, 120)
            handling.wait_until(lambda: mirrored("filtered") == kept(), 120)
            with ThreadPoolExecutor() as pool:
                writing = pool.submit(write, 10_000)
                # Streams die with records under way, on the target and in no report.
                mirror.wait_until(lambda: mirrored("plain") > 500)
                for worker in (*mirror.python_workers()[:2], *handling.python_workers()[:1]):
                    os.kill(worker, signal.SIGKILL)
                writing.result()
            write_with_java(source, (names["transactions"], "lz4", 500, "streams"))
            mirror.wait_until(lambda: mirrored("plain") == 1000)
            write(20_000)
            mirror.kill()
            handling.kill()
            write(30_000)
            mirror.start()
            handling.start()
            mirror.wait_until(lambda: mirrored("plain") == 2000 and mirrored("fewer") == 3200)
            mirror.wait_until(lambda: mirrored("shared") == 1400 and mirrored("tiny") == 1200)
            mirror.wait_until(lambda: mirrored("merged") == 2400)
            handling.wait_until(lambda: mirrored("filtered") == kept())
            assert mirror.stop() == 0, mirror.text
            assert handling.stop() == 0, handling.text
    on_target = {row.value for row in read(target, names["compacted"])[0]}
    seen = sorted((row for row in compacted.values() if row.value in on_target), key=lambda row: row.offset)
    yield Mirrored(source, second, target, names, seen)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mirrormaker` and return what it printed."""
    line = [sys.executable, "-m", "mirrormaker.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_offset_is_translated_as_the_logs_say(topics: Mirrored, kind: str) -> None:
    topic, target = topics.names[kind], topics.target
    for source in (topics.source, topics.second) if kind == "merged" else (topics.source,):
        found = stored_map(source, target)
        ours, theirs = read(source, topic, committed=True), read(target, topic)
        if kind == "compacted":
            ours = {0: topics.compacted}
        for partition, rows in ours.items():
            here = theirs if kind == "fewer" else {partition: theirs[partition]}
            partition_map = found.read((topic, partition))
            assert partition_map.end >= rows[-1].offset + 1
            mirrored = [row for row in rows if is_kept(row)] if kind == "filtered" else rows
            wrong, inexact = wrong_translations(partition_map, mirrored, here, rows[-1].offset)
            assert not wrong, (len(wrong), wrong[:5], list(partition_map.runs())[:10])
            # A stream that is killed before it has reported leaves it to the log to tell what it sent. If the source is compacted
            # further meanwhile, the places of these records are not known one by one: the map says so, and names no later one.
            if kind == "compacted":
                assert inexact <= 2 * 1000, "mirrors were killed during two writes"
            elif kind == "fewer":
                told = [partition_map.translate(p, at) for p in partition_map.places for at in range(rows[-1].offset)]
                # Reports come every half second, and a write has 800 records for all target partitions.
                assert max(place.latest - place.offset for place in told) <= 800
            else:
                assert not inexact


@pytest.mark.parametrize("kind", ["plain", "transactions", "compacted", "tiny", "fewer", "filtered"])
def test_every_batch_on_the_target_carries_the_mark_of_a_mirror(topics: Mirrored, kind: str) -> None:
    for partition in range(KINDS[kind][1]):
        batches = in_the_log(topics.target, topics.names[kind], partition)
        # Targets keep this number for as long as their records: it never changes.
        assert {batch.producer_epoch for batch in batches} == {19789} == {MARKED_EPOCH}


def test_translate_prints_both_ways_and_needs_no_source(topics: Mirrored, tmp_path: Path) -> None:
    source, target, topic = topics.source, topics.target, topics.names["plain"]
    here, there = tmp_path / "source.properties", tmp_path / "target.properties"
    there.write_text(f"bootstrap.servers={target.bootstrap}\n")
    found = stored_map(source, target).read((topic, 0))
    for servers in (source.bootstrap, "127.0.0.1:9"):
        here.write_text(f"bootstrap.servers={servers}\ngroup.id=g\n")
        files = ("--consumer.config", str(here), "--producer.config", str(there), "--topic", topic, "--json")
        done = command("translate", *files, "--offsets", "0:7,0:400")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        assert [row["to_offset"] for row in rows] == [found.translate(("", 0), offset).offset for offset in (7, 400)]
        done = command("translate", *files, "--back", "--offsets", f"0:{rows[1]['to_offset']}")
        assert [row["to_offset"] for row in json.loads(done.stdout)] == [400]
    done = command("translate", *files, "--offsets", "77:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the offset map has nothing of {topic}-77" in done.stderr
