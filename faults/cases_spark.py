"""Faults of Spark: its executors, its JVM, and its whole application."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.parse
import urllib.request
from pathlib import Path

from faults.case import Case, Result, SeparateCase
from faults.scenario import Scenario
from faults.several_topics import SeveralTopics
from mirrormaker.embedded import Cluster
from mirrormaker.embedded.spark_cluster import SparkCluster

_STUCK = 20.0  # seconds
_BACK = 60.0  # seconds until all topics flow again


def kill_an_executor(scenario: Scenario) -> None:
    """Kill a random executor."""
    executors = scenario.clusters.spark.executors()
    assert executors, "the mirror has no executor"
    with scenario.fault():
        os.kill(scenario.generator.choice(executors), signal.SIGKILL)


def stuck_jvm(directory: Path, result: Result) -> None:
    """Freeze Spark's JVM: the streams do not need it, so nothing may stand still."""
    quiet = {"auto.create.topics.enable": "false"}
    with (
        Cluster(name="stuck-source", settings=quiet) as source,
        Cluster(name="stuck-target", settings=quiet) as target,
        SeveralTopics(result, directory, source, target) as several,
    ):
        several.start()
        jvm = several.mirror.jvm()
        with several.trouble("Spark's JVM is frozen"):
            os.kill(jvm, signal.SIGSTOP)
            try:
                time.sleep(_STUCK)
            finally:
                os.kill(jvm, signal.SIGCONT)
            several.wait_until_flowing(several.calm, _BACK)
        several.finish()


def stopped_application(directory: Path, result: Result) -> None:
    """Stop the mirror's application on the Spark master: its SparkContext is stopped, and its JVM lives on."""
    quiet = {"auto.create.topics.enable": "false"}
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with (
        Cluster(name="stopped-source", settings=quiet) as source,
        Cluster(name="stopped-target", settings=quiet) as target,
        SparkCluster() as spark,
        SeveralTopics(
            result, directory, source, target, ("calm-0", "calm-1", "calm-2"), "--spark.master", spark.master
        ) as several,
    ):
        several.start()
        for _ in range(2):
            result.rounds += 1
            stopped = time.monotonic()
            _stop_application(spark)
            time.sleep(5)
            try:
                took = several.wait_until_flowing(several.calm, _BACK)
                result.notes.append(f"all topics flowed at most {took + 5:.1f} s after the application was stopped")
            except AssertionError as error:
                result.problems.append(str(error).splitlines()[0])
                break
            finally:
                pauses = (several.watch.longest_pause(topic, stopped) for topic in several.calm)
                result.longest_pause = max(result.longest_pause, *pauses)
        several.finish()


def _stop_application(spark: SparkCluster) -> None:
    """Send the form of the application on the master's web page, with all of its fields, as a browser does."""
    page = f"http://127.0.0.1:{spark.page}"
    with urllib.request.urlopen(page, timeout=10) as answer:
        form = re.search(r'(?s)<form action="app/kill/".*?</form>', answer.read().decode())
    assert form is not None, "the master shows no running application"
    fields = re.findall(r'name="(\w+)" value="([^"]*)"', form[0])
    with urllib.request.urlopen(f"{page}/app/kill/", urllib.parse.urlencode(fields).encode(), timeout=10):
        pass


CASES = (
    Case(
        "kill-executor", "an executor of a Spark cluster is killed", kill_an_executor, processes=1, rounds=10, limit=10,
        cluster=True,
    ),
)  # fmt: skip

SEPARATE = (
    SeparateCase("stuck-jvm", "Spark's JVM is frozen for 20 s", stuck_jvm, limit=2),
    SeparateCase(
        "stopped-application", "the mirror's application is stopped on the Spark master", stopped_application, limit=40
    ),
)
