"""`mirrormaker verify` finds the differences that a test made, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.structs import OffsetAndMetadata

from mirrormaker.embedded import Cluster
from mirrormaker.model.ledger import pack
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.verification.hashing import hash_records
from mirrormaker.wire.records.columns import Records
from tests.support.mirror_process import MirrorProcess
from tests.support.reading import read
from tests.support.transactions import write_transactions
from tests.support.writing import AN_HOUR_AGO, Row, many, rows, write

# The first test waits until all topics are written, and for one comparison of all of them.
pytestmark = pytest.mark.timeout(400)

_SMALL = 5000  # records of a small topic's partition: several chunks
_BIG = 500_000  # of each of four partitions
_PRODUCER = 7700  # the producer id that the ledger names for partition 0
_AT = 3210  # the offset of the record that a test changes
# The offsets at which chunks end.
_ENDS = (np.flatnonzero(hash_records(many(4 * _SMALL), True) & np.uint64(1023) == 0) + 1).tolist()

# A record, and one change of each of its fields.
_ROW = Row(b"the-key", b"the value", AN_HOUR_AGO, (("trace", b"1"),))
_CHANGES = {
    "key": _ROW._replace(key=b"the-kez"),
    "value": _ROW._replace(value=b"the valuf"),
    "headers": _ROW._replace(headers=(("trace", b"2"),)),
    "timestamp": _ROW._replace(timestamp=AN_HOUR_AGO + 1),
}


def verify(directory: Path, source: Cluster, target: Cluster, group: str, *options: str, consumer: str = "") -> Any:
    """Run the command as a user does."""
    (directory / "source.properties").write_text(f"bootstrap.servers={source.bootstrap}\ngroup.id={group}\n{consumer}")
    (directory / "target.properties").write_text(f"bootstrap.servers={target.bootstrap}\n")
    command = [sys.executable, "-m", "mirrormaker.cli", "verify", *options]
    command += ["--consumer.config", "source.properties", "--producer.config", "target.properties"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, env={**os.environ})


def pieces(records: Records, at: int, others: list[Row]) -> list[Records]:
    """Return records, with the one at an index replaced by others."""
    return [records[:at], *([rows(others)] if others else []), records[at + 1 :]]


def without(records: Records, *indexes: int) -> Records:
    keep = np.ones(len(records), np.bool_)
    keep[list(indexes)] = False
    return records[keep]


class Stage:
    """Topics on both sides that no mirror has written, and a ledger as if one had."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self.source, self.target = source, target
        self.name = f"verify-{uuid.uuid4().hex[:8]}"
        self.positions: list[Position] = []
        admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
        self.cluster: str = admin.describe_cluster()["cluster_id"]
        admin.close()

    def topic(
        self,
        kind: str,
        ours: list[list[Records]],
        theirs: list[list[Records]],
        *,
        source: dict[str, str] | None = None,
        target: dict[str, str] | None = None,
        committed: int | None = None,
        cut: int | None = None,
    ) -> str:
        """Create a topic with one partition for each list of records. The ledger says that all of it is mirrored."""
        name = f"{self.name}.{kind}"
        for cluster, parts, config in ((self.source, ours, source), (self.target, theirs, target)):
            cluster.create_topic(name, partitions=len(parts), config=config)
            write(cluster, name, dict(enumerate(parts)))
        cuts = [Cut(p, 0, sum(map(len, right)) if cut is None else cut) for p, right in enumerate(theirs)]
        for partition, left in enumerate(ours):
            offset = sum(map(len, left)) if committed is None else committed
            mine = tuple(cuts[partition : partition + 1] if len(ours) == len(theirs) else cuts)
            identity = Identity(_PRODUCER + partition, 0)
            self.positions.append(Position(name, partition, offset, -1, "", identity, self.cluster, "", 1, mine))
        return name

    def commit(self) -> None:
        consumer = KafkaConsumer(bootstrap_servers=self.source.bootstrap, group_id=self.name, enable_auto_commit=False)
        consumer.assign([TopicPartition(p.topic, p.partition) for p in self.positions])
        consumer.commit(
            {TopicPartition(p.topic, p.partition): OffsetAndMetadata(p.offset, pack(p), -1) for p in self.positions}
        )
        consumer.close()

    def delete(self, cluster: Cluster, topic: str, before: int) -> None:
        """Delete records as retention does."""
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.delete_records({TopicPartition(topic, 0): before})
        admin.close()


def _plant(stage: Stage) -> Callable[[], None]:
    """Write topics with one kind of difference each; return a function that waits until one is compacted."""
    small = many(_SMALL)
    for field, row in _CHANGES.items():
        stage.topic(f"changed-{field}", [pieces(small, _AT, [_ROW])], [pieces(small, _AT, [row])])
    stage.topic("removed", [[small]], [[without(small, _AT)]])
    stage.topic("removed-first", [[small]], [[without(small, 0)]])
    stage.topic("removed-last", [[small]], [[without(small, _SMALL - 1)]])
    stage.topic("appended", [[small]], [[small, small[-1:]]], cut=_SMALL)
    stage.topic("doubled", [[small]], [[small[: _AT + 1], small[_AT:]]])
    swapped = np.arange(_SMALL)
    swapped[[_AT, _AT + 1]] = _AT + 1, _AT
    stage.topic("swapped", [[small]], [[small[swapped]]])
    # Whole chunks have changed places: one, and the two that followed it.
    first, both = _ENDS[0], _ENDS[2]
    large = many(4 * _SMALL)
    stage.topic("swapped-chunks", [[large]], [[large[first:both], large[:first], large[both:]]])
    stage.topic("no-partition", [[small], [many(_SMALL, _SMALL)]], [[small], []])
    # By key: one target partition has the records of two source partitions, interleaved or one after the other.
    other = many(_SMALL, _SMALL)
    mixed = [part[n : n + 500] for n in range(0, _SMALL, 500) for part in (small, other)]
    stage.topic("fewer", [[small], [other]], [mixed])
    stage.topic("fewer-removed", [[small], [other]], [[small, without(other, _AT)]])
    # Topics without a difference.
    stage.topic("equal", [[small], [many(_SMALL, _SMALL)]], [[small], [many(_SMALL, _SMALL)]])
    stage.topic("behind", [[small]], [[small[:4000]]], committed=4000, cut=4000)
    stage.topic("running", [[small]], [[small[:4500]]], committed=4000, cut=4000)
    stage.topic("stamped", [[small]], [[small]], target={"message.timestamp.type": "LogAppendTime"})
    before = stage.topic("stamped-before", [[small]], [[small]], target={"message.timestamp.type": "LogAppendTime"})
    admin = KafkaAdminClient(bootstrap_servers=stage.target.bootstrap)
    admin.alter_configs([ConfigResource("TOPIC", before, {"message.timestamp.type": "CreateTime"})])
    admin.close()
    later = AN_HOUR_AGO + np.arange(3000)
    updates = rows([Row(b"key-%d" % (n % 700), b"%d" % n, int(later[n])) for n in range(3000)])
    newest = np.arange(3000) >= 2300
    compact = {"cleanup.policy": "compact"}
    stage.topic("compacted-there", [[updates]], [[updates[newest]]], source=compact, target=compact)
    stage.topic("compacted-too-much", [[updates]], [[without(updates[newest], 12)]], source=compact, target=compact)
    again = Row(b"k", b"v", AN_HOUR_AGO)
    ours = [again, again._replace(value=b"w"), again, again._replace(key=b"l")]
    stage.topic("compacted-alike", [[rows(ours)]], [[rows(ours[1:])]], source=compact, target=compact)
    gone = [
        Row(b"k", b"v", AN_HOUR_AGO),
        Row(b"l", b"v", AN_HOUR_AGO),
        Row(b"l", None, AN_HOUR_AGO),
        Row(b"k", None, AN_HOUR_AGO),
    ]
    stage.topic("compacted-no-tombstone", [[rows(gone)]], [[rows(gone[:1])]], source=compact, target=compact)
    quickly = {**compact, "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000", "segment.bytes": "1048576"}
    here = stage.topic("compacted-here", [[updates]], [[updates]], source=quickly)
    stage.topic("retention-here", [[small]], [[small]])
    stage.delete(stage.source, f"{stage.name}.retention-here", 2345)
    stage.topic("retention-there", [[small]], [[small]])
    stage.delete(stage.target, f"{stage.name}.retention-there", 2345)
    # More records are missing than retention has deleted.
    stage.topic("retention-and-more", [[small]], [[small[7:]]])
    stage.delete(stage.target, f"{stage.name}.retention-and-more", 2345)
    stage.topic("retention-and-others", [[small[7:]]], [[small]])
    stage.delete(stage.source, f"{stage.name}.retention-and-others", 2345)
    return lambda: _wait_for_compaction(stage.source, here)


def _plant_big(stage: Stage) -> None:
    """Write a large topic with all kinds of differences, far apart."""
    parts = [many(_BIG, n * _BIG) for n in range(4)]
    some = [_ROW, _ROW._replace(value=b"another value")]
    ours = [
        _two(parts[0], some),
        pieces(parts[1], 7, [_ROW]),
        pieces(parts[2], 499_990, [_ROW]),
        [parts[3]],
        [many(_SMALL, 4 * _BIG)],
    ]
    theirs = [_two(parts[0], [_CHANGES["value"], some[1]._replace(timestamp=AN_HOUR_AGO + 1)])]
    theirs += [pieces(parts[1], 7, [_CHANGES["key"]]), pieces(parts[2], 499_990, [_CHANGES["headers"]])]
    swapped = np.arange(_BIG)
    swapped[[300_000, 300_001]] = 300_001, 300_000
    last = without(parts[3][swapped], 250_000)
    theirs += [[last[:400_001], last[400_000:]], []]
    stage.topic("big", ours, theirs)


def _two(records: Records, others: list[Row]) -> list[Records]:
    """Return records, with two of them replaced by others."""
    return [records[:100_000], rows(others[:1]), records[100_001:200_000], rows(others[1:]), records[200_001:]]


def _wait_for_compaction(cluster: Cluster, topic: str) -> None:
    """Wait until a topic is compacted. Brokers spare the active segment; more records make them begin another."""
    deadline = time.monotonic() + 60
    while len(read(cluster, topic)[0]) > 2000:
        write(cluster, topic, {0: [rows([Row(b"rolls", b"the segment", int(time.time() * 1000))])]})
        assert time.monotonic() < deadline, "the broker does not compact"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def found(source: Cluster, target: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the results of one comparison by kind of topic, the whole result, and stderr."""
    stage = Stage(source, target)
    compaction = _plant(stage)
    _plant_big(stage)
    compaction()
    stage.commit()
    done = verify(
        tmp_path_factory.mktemp("verify"), source, target, stage.name, "--json", "--whitelist", f"{stage.name}[.].*"
    )
    assert done.returncode == 1, done.stderr
    whole = json.loads(done.stdout)
    yield {topic["topic"].split(".")[1]: topic for topic in whole["topics"]} | {"whole": whole, "stderr": done.stderr}


_DIFFERENT = ("missing", "changed", "doubled", "extra", "out_of_order")


def differences(topic: dict[str, Any]) -> dict[str, int]:
    return {kind: topic[kind] for kind in _DIFFERENT if topic[kind]}


@pytest.mark.parametrize("field", _CHANGES)
def test_a_changed_record_is_found_and_the_field_is_named(found: dict[str, Any], field: str) -> None:
    topic = found[f"changed-{field}"]
    assert differences(topic) == {"changed": 1}, topic
    (line,) = topic["differences"]
    assert f"{field} changed: source offset {_AT}, target offset {_AT}" in line
    assert topic["same"] == _SMALL - 1


@pytest.mark.parametrize(
    ("kind", "expected", "words"),
    [
        ("removed", {"missing": 1}, f"missing: source offset {_AT}, on the target after offset {_AT - 1}"),
        ("removed-first", {"missing": 1}, "missing: source offset 0, on the target before its first record"),
        ("removed-last", {"missing": 1}, f"missing: source offset {_SMALL - 1}"),
        ("doubled", {"doubled": 1}, f"twice: source offset {_AT}, again at target offset {_AT + 1}"),
        ("appended", {"doubled": 1}, f"twice: source offset {_SMALL - 1}, again at target offset {_SMALL}"),
        ("retention-and-more", {"missing": 7}, "missing: source offset 2345"),
        ("retention-and-others", {"extra": 7}, "unknown to the source: target offset 2345"),
        ("swapped", {"out_of_order": 1}, "out of order: source offset"),
        ("swapped-chunks", {"out_of_order": _ENDS[0]}, "out of order: source offset 0"),
        ("fewer-removed", {"missing": 1}, f"fewer-removed-1: missing: source offset {_AT}"),
        ("no-partition", {"missing": _SMALL}, "missing: source offset 0"),
        ("compacted-too-much", {"missing": 1}, "missing: source offset 2312"),
        ("compacted-no-tombstone", {"missing": 1}, "missing: source offset 3"),
    ],
)
def test_what_was_planted_is_found(found: dict[str, Any], kind: str, expected: dict[str, int], words: str) -> None:
    assert differences(found[kind]) == expected, found[kind]
    assert words in found[kind]["differences"][0]


def test_each_of_them_is_found_in_two_million_records(found: dict[str, Any]) -> None:
    """One removed, one doubled, two swapped, one changed in each of its fields, and an empty partition."""
    expected = {"missing": 1 + _SMALL, "changed": 4, "doubled": 1, "out_of_order": 1}
    assert differences(found["big"]) == expected, found["big"]
    assert found["big"]["same"] == 4 * _BIG - 6


@pytest.mark.parametrize(
    ("kind", "same", "causes"),
    [
        ("equal", 2 * _SMALL, {}),
        ("fewer", 2 * _SMALL, {}),
        ("behind", 4000, {"not_yet_mirrored": 1000}),
        ("running", 4000, {"not_yet_mirrored": 1000}),
        ("stamped", _SMALL, {}),
        ("stamped-before", _SMALL, {}),
        ("compacted-there", 700, {"compacted": 2300}),
        ("compacted-alike", 3, {"compacted": 1}),
        ("retention-here", _SMALL - 2345, {"deleted_on_source": 2345}),
        ("retention-there", _SMALL - 2345, {"deleted_on_target": 2345}),
    ],
)
def test_what_is_no_difference_is_counted_by_its_cause(
    found: dict[str, Any], kind: str, same: int, causes: dict[str, int]
) -> None:
    topic = found[kind]
    assert not differences(topic), topic
    assert topic["same"] == same
    counted = {
        key: number for key, number in topic.items()
        if isinstance(number, int) and number and key not in ("same", "source_partitions", "target_partitions")
    }  # fmt: skip
    assert counted == causes


def test_what_a_broker_has_compacted_is_no_difference(found: dict[str, Any]) -> None:
    topic = found["compacted-here"]
    assert not differences(topic), topic
    assert topic["compacted"] > 1000
    assert topic["same"] + topic["compacted"] == 3000


@pytest.mark.parametrize("kind", ["stamped", "stamped-before"])
def test_timestamps_of_the_target_broker_are_not_compared_and_that_is_said(found: dict[str, Any], kind: str) -> None:
    assert "timestamps are not compared" in found[kind]["notes"][0]


def test_no_content_is_shown(found: dict[str, Any]) -> None:
    shown = json.dumps(found["whole"]) + found["stderr"]
    assert "the-key" not in shown and "the value" not in shown
    assert "of" in found["stderr"] and "parts" in found["stderr"]  # the lines of progress


# -- a real mirror


def test_a_mirror_that_runs_is_verified_with_transactions_and_other_writers_from_8_to_3_partitions(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    spread, shared = f"{topic_name}.spread", f"{topic_name}.shared"
    source.create_topic(spread, partitions=8)
    target.create_topic(spread, partitions=3)
    source.create_topic(shared, partitions=1)
    target.create_topic(shared, partitions=1)
    write(source, spread, {n: [many(3000, n * 3000)] for n in range(8)})
    write_transactions(source, shared)
    write(target, shared, {0: [many(10, 5)]})
    committed = "isolation.level=read_committed\n"
    options = ("--whitelist", f"{spread},{shared}", "--num.streams", "1")
    with MirrorProcess(
        tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name, consumer=committed
    ) as mirror:
        mirror.wait_until(lambda: _ends(target, spread) == 24_000 and _ends(target, shared) == 40)
        write(target, shared, {0: [many(10, 25)]})
        mirror.wait_until(lambda: _committed(source, topic_name, shared) == _ends(source, shared))
        window = ("--from", str(AN_HOUR_AGO + 1), "--to", str(int(time.time() * 1000)))
        producer = KafkaProducer(bootstrap_servers=source.bootstrap, linger_ms=0)

        def trickle(process: subprocess.Popen[str]) -> None:
            while process.poll() is None:
                producer.send(spread, b"%d" % time.monotonic_ns(), b"%d" % (time.monotonic_ns() % 500))
                time.sleep(0.01)

        command = [sys.executable, "-m", "mirrormaker.cli", "verify", "--allow.other.writers", *window]
        command += ["--consumer.config", str(mirror.source_file), "--producer.config", str(mirror.target_file)]
        command += ["--whitelist", f"{topic_name}.*", "--topics", f"{spread}, {shared}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            trickle(process)
            out, err = process.communicate()
        producer.close()
        assert mirror.stop() == 0, mirror.text
    assert process.returncode == 0, out + err
    # Seven records are older than the window, and two of the 20 that others wrote.
    line, _, *table = out.splitlines()
    assert line == "same: 2 topics, 24,023 equal records"
    cells = {row.split()[0]: row.split() for row in table}
    assert cells[spread][1:5] == ["8", "->", "3", "23,993"]
    assert cells[shared][1:3] == ["1", "30"] and cells[shared][-1] == "18", out


def _ends(cluster: Cluster, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        where = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        return sum(consumer.end_offsets(where).values())
    finally:
        consumer.close()


def _committed(cluster: Cluster, group: str, topic: str) -> int:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        found = admin.list_group_offsets({group: None})
        return int(found[group][TopicPartition(topic, 0)].offset)
    finally:
        admin.close()


# -- from Python

_SCRIPT = """
import sys

from pyspark.sql import SparkSession

from mirrormaker.verification.command import verify

source, target, group, topic = sys.argv[1:]
sides = {"bootstrap.servers": source, "group.id": group}, {"bootstrap.servers": target}

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def settings():
    return dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.shuffle.partitions")


spark.range(3).count()  # the first use of SQL adds settings of its own
before = settings()
verdict = verify(*sides, whitelist=f"(?:{topic})", spark=spark)
print(verdict.line, verdict.is_same, verdict.exit_code, verdict.topics[0].counts["missing"])
assert settings() == before
assert SparkSession.getActiveSession() is spark
assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
assert spark.range(3).count() == 3
spark.stop()

for _ in range(2):
    print(verify(*sides, topics=topic).line)
"""


def test_python_compares_in_an_existing_session_and_in_its_own(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    stage = Stage(source, target)
    records = many(_SMALL)
    topic = stage.topic("python", [[records]], [[without(records, _AT)]])
    stage.commit()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, source.bootstrap, target.bootstrap, stage.name, topic],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = f"different: 1 missing (1 topic, {_SMALL - 1:,} equal records)"
    assert done.stdout.splitlines() == [f"{line} False 1 1", line, line]
    assert "parts" not in done.stderr
