"""Measure how fast a mirror copies a backlog, and what it costs."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.support.topics import EndOffsets

from bench.batch_statistics import batch_statistics
from bench.clusters import BenchClusters
from bench.measure import Copy, other_load, watch_copy
from bench.mirror_run import running
from bench.results import Figures
from bench.tools import NotAvailable, Tool, new_job
from bench.workloads import Workload


def measure(
    clusters: BenchClusters, work: Workload, tool: Tool, progress: Callable[[int], None], streams: int = 2
) -> tuple[Figures, list[str]]:
    """Let a mirror copy a workload to an empty target. Return its figures, and notes on everything unusual."""
    clusters.empty_target(work.topic, work.target_partitions)
    ends = EndOffsets(clusters.target, work.topic, work.target_partitions)
    job = new_job(clusters, work.topic, work.codec, work.target_codec, tls=work.tls, streams=streams)
    try:
        tool.prepare(job)
    except NotAvailable as error:
        return {}, [f"not measured: {error}"]
    with running(tool, job) as mirror:
        copy = watch_copy(
            mirror.tree,
            clusters.brokers,
            mirror.started,
            ends.records,
            work.records,
            work.limit,
            mirror.is_alive,
            progress,
        )
        if copy.last is None:
            mirror.failed(f"only {copy.records:,} of {work.records:,} records arrived within {work.limit:g} s")
    figures = {"peak_mb": mirror.tree.peak_memory / 1e6} | _figures(copy, work)
    on_target = ends.records()
    ends.close()
    if on_target != work.records:
        mirror.notes.append(f"the target holds {on_target:,} records, the source {work.records:,}")
    if work.target_codec and on_target:
        codecs = batch_statistics(clusters.target, work.topic).codecs
        if codecs != (work.target_codec,):
            mirror.notes.append(f"the target's batches use {' and '.join(codecs)}, not {work.target_codec}")
    return figures, mirror.notes


def _figures(copy: Copy, work: Workload) -> Figures:
    if copy.first is None:
        return {}
    figures = {"first_record_s": copy.first.time - copy.started, "startup_cpu_s": copy.first.mirror_cpu}
    if copy.last is None:
        return figures
    # Records that were there at the first sight count neither as records nor as CPU time.
    records, seconds = copy.last.records - copy.first.records, copy.last.time - copy.first.time
    if seconds == 0:
        return figures
    megabytes = records * work.record_size / 1e6
    mirror, brokers = copy.last.mirror_cpu - copy.first.mirror_cpu, copy.last.helpers_cpu - copy.first.helpers_cpu
    return figures | {
        "records_per_s": records / seconds,
        "mb_per_s": megabytes / seconds,
        "cpu_s_per_gb": mirror / (megabytes / 1e3),
        "brokers_cpu_s_per_gb": brokers / (megabytes / 1e3),
        "share_of_limit": (mirror + brokers) / ((os.cpu_count() or 1) * seconds),
        "end_to_end_per_s": work.records / (copy.last.time - copy.started),
        "other_load": other_load(copy.first, copy.last),
    }
