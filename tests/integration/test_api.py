"""The public API: a mirror inside of another program, in a Spark session that exists or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import mirrormaker
from mirrormaker.embedded import Cluster
from tests.support.group_clients import send
from tests.support.reading import read
from tests.support.spark_session import end_session
from tests.support.writing import many, write

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session as users have one: not made by the mirror, and with its own settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    session = builder.master("local[4,100]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    end_session(session)


def files(source: Cluster, target: Cluster, group: str) -> tuple[dict[str, str], dict[str, str]]:
    return {"bootstrap.servers": source.bootstrap, "group.id": group}, {"bootstrap.servers": target.bootstrap}


def test_a_mirror_runs_in_a_session_that_it_neither_configures_nor_stops(
    source: Cluster, target: Cluster, topic_name: str, spark: SparkSession
) -> None:
    source.create_topic(topic_name, partitions=4)
    write(source, topic_name, {p: [many(500)] for p in range(4)})
    assert spark.range(10).count() == 10  # Spark itself adds settings with the first query
    before = dict(spark.sparkContext.getConf().getAll())
    runtime = {key: spark.conf.get(key) for key in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")}
    settings = files(source, target, topic_name)
    with mirrormaker.mirror(*settings, [topic_name], spark=spark, until_caught_up=True) as mirror:
        status = mirror.wait(timeout=120)
    assert (status.records, status.lag, status.partitions, status.running) == (2000, 0, 4, False)
    assert spark.range(10).count() == 10, "the session goes on"
    assert dict(spark.sparkContext.getConf().getAll()) == before
    assert {key: spark.conf.get(key) for key in runtime} == runtime
    verdict = mirrormaker.verify(*settings, [topic_name], spark=spark)
    assert verdict.is_same, verdict.text()
    assert spark.range(10).count() == 10


def test_offsets_are_translated_and_the_map_is_a_dataframe(
    source: Cluster, target: Cluster, topic_name: str, spark: SparkSession
) -> None:
    source.create_topic(topic_name, partitions=2)
    target.create_topic(topic_name, partitions=2)
    write(source, topic_name, {p: [many(100)] for p in range(2)})
    send(target, topic_name, 1_000_000, 7, partitions=1)
    settings = files(source, target, topic_name)
    with mirrormaker.mirror(*settings, [topic_name], spark=spark, until_caught_up=True) as mirror:
        mirror.wait(timeout=120)
    places = mirrormaker.translate(*settings, topic_name, {0: 30, 1: 100})
    assert [(place.to_partition, place.to_offset, place.is_exact) for place in places] == [
        (0, 37, True),
        (1, 100, True),
    ]
    (place,) = mirrormaker.translate(*settings, topic_name, [(0, 37)], back=True)
    assert (place.to_topic, place.to_partition, place.to_offset) == (topic_name, 0, 30)
    # The mirror's own group has committed the ends.
    committed = mirrormaker.translate(*settings, topic_name, group=topic_name)
    assert [(place.offset, place.to_offset) for place in committed] == [(100, 107), (100, 100)]
    with pytest.raises(mirrormaker.MirrorError, match=f"group nobody has committed nothing in {topic_name}"):
        mirrormaker.translate(*settings, topic_name, group="nobody")
    runs = mirrormaker.offset_map(spark, *settings, topic_name)
    assert sorted(tuple(row) for row in runs.collect()) == [
        (topic_name, 0, 0, topic_name, 0, 7, 100, 0),
        (topic_name, 1, 0, topic_name, 1, 0, 100, 0),
    ]
    with pytest.raises(mirrormaker.MirrorError, match="the offset map has nothing of no-such-topic"):
        mirrormaker.offset_map(spark, *settings, ["no-such-topic"])


def test_a_mirror_that_goes_on_is_asked_for_its_status_and_stopped(
    source: Cluster, target: Cluster, topic_name: str, spark: SparkSession
) -> None:
    source.create_topic(topic_name, partitions=2)
    write(source, topic_name, {0: [many(100)]})
    with mirrormaker.mirror(*files(source, target, topic_name), topic_name, spark=spark) as mirror:
        deadline = time.monotonic() + 60
        while not (mirror.status().caught_up and mirror.status().records == 100):
            assert time.monotonic() < deadline, mirror.status()
            time.sleep(0.1)
        write(source, topic_name, {1: [many(50)]})
        while mirror.status().records < 150:
            assert time.monotonic() < deadline, mirror.status()
            time.sleep(0.1)
        with pytest.raises(TimeoutError):
            mirror.wait(timeout=0.2)
    assert not mirror.running
    assert mirror.wait().records == 150
    assert sum(map(len, read(target, topic_name).values())) == 150


def test_a_function_of_the_program_is_the_handler(
    source: Cluster, target: Cluster, topic_name: str, spark: SparkSession
) -> None:
    source.create_topic(topic_name, partitions=1)
    write(source, topic_name, {0: [many(20)]})

    def shorten(record: Any) -> Any:
        return [replace(record, value=record.value[:3])] if record.offset % 2 else []

    settings = files(source, target, topic_name)
    with mirrormaker.mirror(*settings, topic_name, spark=spark, until_caught_up=True, handler=shorten) as mirror:
        mirror.wait(timeout=60)
    values = [row.value for row in mirrormaker.read(spark, settings[1], topic_name).select("value").collect()]
    assert [len(value) for value in values] == [3] * 10


def test_what_ends_a_mirror_is_raised(target: Cluster, topic_name: str, spark: SparkSession) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "group.id": topic_name}
    mirror = mirrormaker.mirror(nowhere, {"bootstrap.servers": target.bootstrap}, topic_name, spark=spark)
    with pytest.raises(mirrormaker.MirrorError, match="the source cluster cannot be reached"):
        mirror.wait(timeout=60)
    assert not mirror.status().running


def test_both_sides_are_data_frames(source: Cluster, target: Cluster, topic_name: str, spark: SparkSession) -> None:
    records = many(2000)
    for cluster, parts in ((source, [records]), (target, [records[:1990]])):
        cluster.create_topic(topic_name, partitions=1)
        write(cluster, topic_name, {0: parts})
    ours, theirs = (mirrormaker.read(spark, settings, topic_name) for settings in files(source, target, "g"))
    assert (ours.count(), theirs.count()) == (2000, 1990)
    assert ours.select("timestamp", "key", "value").exceptAll(theirs.select("timestamp", "key", "value")).count() == 10


def test_the_tour_mirrors_looks_and_verifies(source: Cluster, target: Cluster, topic_name: str, tmp_path: Path) -> None:
    source.create_topic(topic_name, partitions=1)
    write(source, topic_name, {0: [many(2000)]})
    (tmp_path / "source.properties").write_text(f"bootstrap.servers={source.bootstrap}\ngroup.id={topic_name}\n")
    (tmp_path / "target.properties").write_text(f"bootstrap.servers={target.bootstrap}\n")
    done = subprocess.run(
        [sys.executable, str(TOUR), "source.properties", "target.properties", topic_name],
        cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "mirrored 2000 records, lag 0" in done.stdout
    assert "0 records are only on the source" in done.stdout
    assert "both sides hold the same records" in done.stdout
