"""How fast and at what price a mirror copies a backlog."""

from __future__ import annotations

from collections.abc import Callable

from bench.logs import batches_in
from bench.measure import Copy, other_load, watch
from bench.results import Figures
from bench.running import running
from bench.stage import Ends, Stage
from bench.tools import Job, NotHere, Tool
from bench.workloads import Workload


def measure(stage: Stage, work: Workload, tool: Tool, tell: Callable[[int], None]) -> tuple[Figures, list[str]]:
    """Let a mirror copy a workload to an empty target: its figures, and what else was noticed."""
    stage.empty_target(work.topic, work.target_partitions)
    ends = Ends(stage.target, work.topic, work.target_partitions)
    job = Job.on(stage, work.topic, work.codec, work.target_codec, tls=work.tls)
    try:
        tool.prepare(job)
    except NotHere as error:
        return {}, [f"not measured: {error}"]
    with running(tool, job) as mirror:
        copy = watch(
            mirror.tree, stage.brokers, mirror.started, ends, work.records, work.limit, lambda: mirror.alive, tell
        )
        if copy.last is None:
            mirror.failed(f"{copy.seen:,} of {work.records:,} records within {work.limit:g} s")
    figures = {"peak_mb": mirror.tree.peak_memory / 1e6} | _figures(copy, work)
    on_target = ends()
    ends.close()
    if on_target != work.records:
        mirror.notes.append(f"{on_target:,} records on the target, {work.records:,} on the source")
    if work.target_codec and on_target:
        codecs = batches_in(stage.target, work.topic).codecs
        if codecs != (work.target_codec,):
            mirror.notes.append(f"the target's batches are {' and '.join(codecs)}, not {work.target_codec}")
    return figures, mirror.notes


def _figures(copy: Copy, work: Workload) -> Figures:
    if copy.first is None:
        return {}
    figures = {"first_record_s": copy.first.time - copy.started, "startup_cpu_s": copy.first.cpu}
    if copy.last is None:
        return figures
    # What was there at the first look is in neither records nor CPU: it was copied before.
    records, seconds = copy.last.records - copy.first.records, copy.last.time - copy.first.time
    if seconds == 0:
        return figures
    megabytes = records * work.record_size / 1e6
    return figures | {
        "records_per_s": records / seconds,
        "mb_per_s": megabytes / seconds,
        "cpu_s_per_gb": (copy.last.cpu - copy.first.cpu) / (megabytes / 1e3),
        "brokers_cpu_s_per_gb": (copy.last.helpers - copy.first.helpers) / (megabytes / 1e3),
        "end_to_end_per_s": work.records / (copy.last.time - copy.started),
        "other_load": other_load(copy.first, copy.last),
    }
