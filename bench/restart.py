"""Kill a mirror under load, start it again at once, and measure how long it takes to mirror again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.support.topics import EndOffsets, create_topic

from bench.clusters import BenchClusters
from bench.measure import watch_copy
from bench.mirror_run import running
from bench.results import Figures
from bench.steady_producer import SteadyProducer
from bench.tools import Tool, new_job
from bench.workloads import RestartWorkload

_START = 40.0  # seconds for a mirror's first record
_AGAIN = 90.0  # seconds for the next record after the kill; the Java MirrorMaker's group waits 45 for the killed member
_UNDER_WAY = 0.3  # seconds after the kill in which brokers may still append requests of the killed process
_CATCH_UP = 30.0  # seconds for everything that was produced meanwhile


def measure(
    clusters: BenchClusters, work: RestartWorkload, tool: Tool, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    """Return how long the killed mirror's successor takes, and notes on everything unusual."""
    load = work.load
    job = new_job(clusters, topic := f"bench-restart-{time.time_ns()}")
    create_topic(clusters.source, topic, load.partitions)
    clusters.empty_target(topic, load.partitions)
    ends = EndOffsets(clusters.target, topic, load.partitions)
    with SteadyProducer(clusters.source.brokers[0].port, topic, load) as producer, running(tool, job) as killed:
        start = watch_copy(killed.tree, [], killed.started, ends.records, 1, _START, killed.is_alive, progress)
        if start.first is None:
            killed.failed(f"no record arrived within {_START:g} s")
            return {}, killed.notes
        figures = {"first_record_s": start.first.time - start.started}
        time.sleep(work.settle)
        os.killpg(killed.process.pid, signal.SIGKILL)
        with running(tool, job) as mirror:
            time.sleep(_UNDER_WAY)
            before = ends.records()
            again = watch_copy(
                mirror.tree, [], mirror.started, ends.records, before + 1, _AGAIN, mirror.is_alive, progress
            )
            if again.last is None:
                mirror.failed(f"no record arrived within {_AGAIN:g} s of the kill")
                return figures, mirror.notes
            figures["restart_s"] = again.last.time - mirror.started
            sent = producer.stop()
            watch_copy(mirror.tree, [], time.monotonic(), ends.records, sent, _CATCH_UP, mirror.is_alive, progress)
            time.sleep(1)  # records that are sent twice would come now
    on_target = ends.records()
    ends.close()
    if on_target != sent:
        mirror.notes.append(f"the target holds {on_target:,} records, the source {sent:,}")
    return figures, mirror.notes
