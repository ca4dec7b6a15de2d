"""Where YARN runs a mirror's streams."""

from __future__ import annotations

from mirrormaker.embedded.process_tree import parents
from mirrormaker.embedded.yarn_cluster import YarnCluster


def executors_with_streams(yarn: YarnCluster) -> list[int]:
    """Return the executors that run a stream: a Python worker, which is a child of the executor's daemon."""
    parent_of = parents()
    daemons = {pid for pid, line in yarn.processes().items() if "mirrormaker.worker.daemon" in line}
    first = {pid for pid in daemons if parent_of.get(pid) not in daemons}
    busy = {parent_of[pid] for pid in first if any(parent_of.get(worker) == pid for worker in daemons)}
    return [pid for pid in yarn.executors() if pid in busy]
