"""The embedded Spark is a real cluster, and leaves nothing behind."""

from __future__ import annotations

from mirrormaker.embedded.process_tree import command
from mirrormaker.embedded.spark_cluster import SparkCluster
from tests.support.mirror_process import wait_until_gone


def test_two_workers_register_and_nothing_is_left_behind() -> None:
    with SparkCluster() as cluster:
        servers = {worker.pid: command(worker.pid) for worker in cluster.workers if worker.pid is not None}
        directory = cluster.directory
        assert len(servers) == 2
        assert cluster.master.startswith("spark://127.0.0.1:")
        assert cluster.executors() == []  # no application runs
    wait_until_gone(servers)
    assert not directory.exists()
