"""The embedded YARN is a real cluster, on loopback only, and leaves nothing behind."""

from __future__ import annotations

from mirrormaker.embedded.process_tree import command
from mirrormaker.embedded.yarn_cluster import YarnCluster
from tests.support.listening import listening_addresses
from tests.support.mirror_process import wait_until_gone


def test_a_node_registers_on_loopback_and_nothing_is_left_behind() -> None:
    with YarnCluster() as cluster:
        assert cluster.node is not None and cluster.node.pid is not None
        node, directory = cluster.node.pid, cluster.directory
        servers = {node: command(node)}
        assert cluster.applications() == []
        assert cluster.executors() == cluster.application_masters() == []
        assert listening_addresses([node]) == {"127.0.0.1"}
    wait_until_gone(servers)
    assert not directory.exists()
