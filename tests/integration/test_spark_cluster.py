"""The mirror on a Spark cluster of two workers, where nothing of ours is installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import mirrormaker
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.spark_cluster import SparkCluster
from tests.support.comparing import assert_same, wait_until_equal
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import write
from tests.support.waiting import wait_until

PARTITIONS = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2, cores=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "127.0.0.1")
    # The executors' Python has none of our libraries: the job must bring them.
    monkeypatch.setenv("PATH", f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_a_killed_executor_costs_seconds(
    spark: SparkCluster, source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=PARTITIONS)
    write(source, topic_name, 400, PARTITIONS)
    options = ("--whitelist", topic_name, "--num.streams", "2", "--spark.master", spark.master)
    addresses = (source.bootstrap, target.bootstrap)
    with MirrorProcess(tmp_path, *addresses, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror, within=90)
        assert f"on Spark at {spark.master}" in mirror.text
        os.kill(spark.executors()[0], signal.SIGKILL)
        write(source, topic_name, 400, PARTITIONS, start=400)
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror, within=20)
        family = mirror.descendants()
        assert mirror.stop() == 0, mirror.text
        wait_until_gone(family)
    assert_same(source, target, topic_name, 800)
    wait_until("no executor is left", lambda: not spark.executors(), 10)


def test_under_spark_submit_a_stop_is_not_clean_but_exact(
    spark: SparkCluster, source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=PARTITIONS)
    write(source, topic_name, 400, PARTITIONS)
    prepared = MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, group=topic_name)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", spark.master]
    command += [str(Path(mirrormaker.__file__).parents[2] / "bin" / "submit.py"), "run"]
    options = ["--consumer.config", str(prepared.source_file), "--producer.config", str(prepared.target_file)]
    options += ["--whitelist", topic_name]
    command += options
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with prepared.output.open("wb") as log:
        mirror = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    prepared.process = mirror
    try:
        wait_until_equal(source, target, topic_name, PARTITIONS, prepared, within=90)
        write(source, topic_name, 400, PARTITIONS, start=400)
        family = prepared.descendants()
        os.kill(mirror.pid, signal.SIGTERM)
        assert mirror.wait(20) != 0, "Spark handles the signal itself"
        wait_until_gone(family)
    finally:
        if mirror.poll() is None:
            mirror.kill()
            mirror.wait()
    command = [sys.executable, "-m", "mirrormaker.cli", "submit", "--spark.master", spark.master]
    command += [*options, "--exit.when.caught.up"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert again.returncode == 0, again.stderr
    assert_same(source, target, topic_name, 800)
