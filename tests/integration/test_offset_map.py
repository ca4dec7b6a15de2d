"""The offset map: every source offset of every kind of topic is translated, and compared with both logs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.position import MARKED_EPOCH
from mirrormaker.wire.records.batch import LOG_APPEND_TIME
from tests.support.map_stage import CALM_WRITE, COMPACTED, KINDS, LATE_FOREIGN, LATE_START, OWN_MIRROR, MapStage
from tests.support.mirror_process import MirrorProcess
from tests.support.offset_truth import Inexact, last_pass, stored_map, wrong_translations
from tests.support.reading import Read, in_the_log, read

SETTINGS = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "500"}
# Older brokers cost a minute and a half each: MAP_BROKERS=3.9.2,2.0.1 runs everything with them too.
NEWEST = "4.3.1"
VERSIONS = (NEWEST, *filter(None, os.environ.get("MAP_BROKERS", "").split(",")))
# A partition notes so many runs at once (worker/run_notes.py).
BURST = 16_384
HANDLER = """
def keep(record):
    number = int(record.value.split(b"-")[0])
    return [] if number % 3 == 0 or number % 100 > 90 else [record]
"""


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
def stage(clusters: tuple[Cluster, Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> MapStage:
    """Topics of every kind, mirrored by mirrors that are killed while all of them are written."""
    source, second, target = clusters
    found = MapStage(source, second, target)
    names = found.names
    found.write_backlog()
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
    both = mirror, handling

    def kill_processes() -> None:
        found.kill(both, with_process=True)
        mirror.start()
        handling.start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)
        with mirror, handling:
            found.wait_until_mirrored(*both)
            found.write_and_kill(1, "lz4", lambda: found.kill(both, with_process=False))
            found.wait_until_mirrored(*both)
            found.write_and_kill(2, "gzip", kill_processes)
            # If compaction has removed skipped records, the first of these ends the wait for them.
            for number, kinds in ((3, KINDS), (4, CALM_WRITE), (5, CALM_WRITE)):
                found.write_some(number)
                found.wait_until_mirrored(*both, kinds)
            assert mirror.stop() == 0, mirror.text
            assert handling.stop() == 0, handling.text
    return found


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mirrormaker` and return what it printed."""
    line = [sys.executable, "-m", "mirrormaker.cli", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_offset_is_translated_as_the_logs_say(stage: MapStage, kind: str) -> None:
    topic = stage.names[kind]
    for cluster in stage.sources(kind):
        found, theirs = stored_map(cluster, stage.target), read(stage.target, topic)
        for partition, rows in stage.ours(kind, cluster).items():
            here = theirs if kind == "fewer" else {partition: theirs[partition]}
            known = found.read((topic, partition))
            assert known.end >= rows[-1].offset + 1
            wrong, ranges = wrong_translations(known, rows, here, rows[-1].offset, once=kind not in COMPACTED)
            assert not wrong, (len(wrong), wrong[:5], list(known.runs())[:10])
            if kind in COMPACTED:
                source_of = {row.value: row.offset for row in rows}
                mirrored = last_pass(known, [(source_of[row.value], row.offset) for row in theirs[0]])
                ranges = _outside_killed_windows(stage, kind, mirrored, ranges)
                if kind == "backlog":
                    ranges = _outside_the_exhausted_backlog(stage, known, mirrored, ranges)
            elif kind == "fewer":
                ranges = _beyond_the_next_write(stage, rows, theirs, ranges)
            elif kind == "late":
                # Nothing tells that a mirror has not brought records from before the log's start already.
                assert {(row.told.offset, row.told.latest) for row in ranges} == {(0, LATE_FOREIGN)}
                ranges = ranges[LATE_START:]
            assert not ranges, (len(ranges), ranges[:5])


def _outside_killed_windows(
    stage: MapStage, kind: str, mirrored: list[tuple[int, int]], ranges: list[Inexact]
) -> list[Inexact]:
    """Return the ranges of other places than those that a killed stream has not reported, and longer ones.

    If a source is compacted further before these records are skipped, their places are not known one by one.
    """
    for kill in stage.kills:
        end = kill.ends[stage.names[kind], 0]
        before = [row for row in mirrored if row[0] < kill.known[kind] and row[1] < end]
        at_kill = [row for row in mirrored if row[1] < end]
        after = next((row[0] for row in mirrored if row[1] >= end), sys.maxsize)
        width = at_kill[-1][1] - before[-1][1]
        ranges = [
            row
            for row in ranges
            if not (before[-1][0] < row.offset < after and row.told.latest - row.told.offset <= width)
        ]
    return ranges


def _outside_the_exhausted_backlog(
    stage: MapStage, known: PartitionMap, mirrored: list[tuple[int, int]], ranges: list[Inexact]
) -> list[Inexact]:
    """Return the ranges of places that the first 16,384 runs have, and of those after the backlog."""
    backlog = stage.quiet[0][1][stage.names["backlog"], 0]
    assert backlog > BURST + 4000 and known.size >= BURST and ranges, "there are more gaps than are noted at once"
    assert max(row.told.latest - row.told.offset for row in ranges) <= backlog - BURST
    return [row for row in ranges if not mirrored[BURST - 1][0] < row.offset < mirrored[backlog][0]]


def _beyond_the_next_write(
    stage: MapStage, ours: list[Read], theirs: dict[int, list[Read]], ranges: list[Inexact]
) -> list[Inexact]:
    """Return the ranges that reach beyond the first record of a write, on either side.

    Quiet moments lie between writes, so there is a report, and the first record after each report has a place of its own.
    """
    topic = stage.names["fewer"]
    source_of = {row.value: row.offset for row in ours}
    found: list[Inexact] = []
    for place, rows in theirs.items():
        pairs = [(source_of[row.value], row.offset) for row in rows if row.value in source_of]
        writes = [0, *(ends[topic, place] for _, ends in stage.quiet)]
        known = [next((pair for pair in pairs if pair[1] >= start), None) for start in writes]
        for row in (row for row in ranges if row.partition == place):
            earliest = max((pair[1] + 1 for pair in known if pair and pair[0] < row.offset), default=0)
            latest = min((pair[1] for pair in known if pair and pair[0] >= row.offset), default=writes[-1])
            if row.told.offset < earliest or row.told.latest > latest:
                found.append(row)
    return found


def test_streams_and_processes_die_with_records_under_way(stage: MapStage) -> None:
    assert len(stage.kills) == 2
    for kill, (_, after) in zip(stage.kills, stage.quiet[1:], strict=False):
        assert kill.waiting == set(KINDS), "the source has records that the target lacks"
        assert len(kill.unreported) >= 3, "the target has records that neither ledger nor map knows"
        for kind, name in stage.names.items():
            assert sum(after[name, number] - kill.ends[name, number] for number in range(KINDS[kind].theirs)) > 0, kind


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_missing_or_there_twice(stage: MapStage, kind: str) -> None:
    assert not stage.missing(kind)
    # A source that was compacted while streams were killed is no longer what was mirrored: some records come again.
    if kind not in COMPACTED:
        theirs = [row.value for rows in read(stage.target, stage.names[kind]).values() for row in rows]
        assert len(set(theirs)) == len(theirs)


def test_after_each_kill_map_and_ledger_agree_with_each_other_and_with_the_logs(stage: MapStage) -> None:
    assert not stage.disagreements, (len(stage.disagreements), stage.disagreements[:5])


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"shared", "late"}))
def test_every_batch_on_the_target_carries_the_mark_of_a_mirror(stage: MapStage, kind: str) -> None:
    for partition in range(KINDS[kind].theirs):
        batches = in_the_log(stage.target, stage.names[kind], partition)
        # Targets keep this number for as long as their records: it never changes.
        assert {batch.producer_epoch for batch in batches} == {19789} == {MARKED_EPOCH}


def test_small_batches_are_packed_into_few_large_ones(stage: MapStage) -> None:
    ours, theirs = (in_the_log(cluster, stage.names["tiny"]) for cluster in (stage.source, stage.target))
    assert {batch.count for batch in ours} == {1}
    assert max(batch.count for batch in theirs) >= 100
    assert len(theirs) < len(ours) - 200


def test_times_of_the_sources_broker_are_sent_as_those_of_a_producer(stage: MapStage) -> None:
    topic = stage.names["stamped"]
    ours, theirs = (in_the_log(cluster, topic) for cluster in (stage.source, stage.target))
    assert all(batch.attributes & LOG_APPEND_TIME for batch in ours)
    assert not any(batch.attributes & LOG_APPEND_TIME for batch in theirs)
    here, there = (read(cluster, topic)[0] for cluster in (stage.source, stage.target))
    assert [row.timestamp for row in here] == [row.timestamp for row in there]


def test_records_of_aborted_transactions_stay_away(stage: MapStage) -> None:
    topic = stage.names["transactions"]
    for partition, rows in read(stage.source, topic).items():
        kept = read(stage.target, topic)[partition]
        assert 0.15 < 1 - len(kept) / len(rows) < 0.45


def test_translate_prints_both_ways_and_needs_no_source(stage: MapStage, tmp_path: Path) -> None:
    source, target, topic = stage.source, stage.target, stage.names["plain"]
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
