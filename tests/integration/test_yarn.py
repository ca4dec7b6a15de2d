"""The mirror on a real YARN, in client mode, with containers in which nothing of ours is installed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrormaker.embedded import Cluster
from mirrormaker.embedded.yarn_cluster import YarnCluster
from tests.support.comparing import assert_same, wait_until_equal
from tests.support.listening import listening_addresses
from tests.support.mirror_process import MirrorProcess, wait_until_gone
from tests.support.numbered_records import write
from tests.support.waiting import wait_until
from tests.support.yarn_streams import executors_with_streams

pytestmark = pytest.mark.alone  # it measures how soon streams are back

PARTITIONS = 4
BACK_WITHIN = 5.0  # seconds after an executor was killed, with spare slots


@pytest.fixture(scope="module")
def yarn() -> Iterator[YarnCluster]:
    with pytest.MonkeyPatch.context() as patch:
        # The containers' Python has none of our libraries: the job must bring them.
        patch.setenv("PATH", f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}")
        patch.delenv("PYTHONPATH", raising=False)
        patch.delenv("PYSPARK_PYTHON", raising=False)
        with YarnCluster() as cluster:
            for name, value in cluster.environment.items():
                patch.setenv(name, value)
            yield cluster


def test_a_mirror_outlives_its_executors_and_its_application(
    yarn: YarnCluster, source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """One mirror for all of it: each start of an application takes half a minute."""
    source.create_topic(topic_name, partitions=PARTITIONS)
    write(source, topic_name, 400, PARTITIONS)
    options = ("--whitelist", topic_name, "--num.streams", "2", *yarn.options)
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror, within=90)
        assert "on Spark at yarn" in mirror.text
        assert len(yarn.executors()) == len(executors_with_streams(yarn)) == 2, "each has one stream"
        assert listening_addresses(yarn.processes()) == {"127.0.0.1"}

        _kill_an_executor(yarn, mirror)
        write(source, topic_name, 400, PARTITIONS, start=400)
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror, within=10)

        (first,) = yarn.applications()
        yarn.kill_application(first)
        wait_until("the application is killed", lambda: yarn.applications()[0].state == "KILLED")
        write(source, topic_name, 400, PARTITIONS, start=800)
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror, within=90)
        assert "Spark's session was stopped" in mirror.text

        family = {**mirror.descendants(), **yarn.processes()}
        assert mirror.stop() == 0, mirror.text
        wait_until_gone(family, within=10)
    assert_same(source, target, topic_name, 1200)
    killed, ended = yarn.applications()
    wait_until("the application has succeeded", lambda: yarn.applications()[-1].final_status == "SUCCEEDED")
    assert (killed.state, ended.name) == ("KILLED", "mirrormaker")
    assert not yarn.processes(), "nothing is left on the node"
    assert not list(yarn.directory.glob("staging/.sparkStaging/*")), "no staged file is left"


def _kill_an_executor(yarn: YarnCluster, mirror: MirrorProcess) -> None:
    """Kill an executor that runs a stream: the stream must be back soon, in the spare slot of the other one."""
    os.kill(executors_with_streams(yarn)[0], signal.SIGKILL)
    began = time.monotonic()
    mirror.wait_for("is gone", 10)
    mirror.wait_for("is back", BACK_WITHIN)
    assert time.monotonic() - began < BACK_WITHIN, mirror.text
