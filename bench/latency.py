"""Measure how long records take from the producer's clock to the target's log, and what that costs, at a steady rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
from tests.support.process_measurements import cpu_seconds
from tests.support.topics import EndOffsets, create_topic

from bench.clusters import BenchClusters
from bench.measure import moment, other_load, watch_copy
from bench.mirror_run import running
from bench.results import Figures
from bench.steady_producer import CREATED, SteadyProducer
from bench.tools import Tool, new_job
from bench.workloads import LatencyWorkload
from mirrormaker.embedded import Cluster
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack

_START = 40.0  # seconds for a mirror's first record
_CPUS = ("mirror_cpu", "source_cpu", "target_cpu")
_CATCH_UP = 15.0  # seconds for the last records after the producer has stopped; milliseconds are usual
_BATCHES = 10_000  # that are unpacked together


def measure(
    clusters: BenchClusters, work: LatencyWorkload, tool: Tool, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    """Produce at a steady rate while the mirror starts, warms up and is measured; then read the target."""
    job = new_job(clusters, topic := f"bench-l-{time.time_ns()}")
    create_topic(clusters.source, topic, work.partitions)
    clusters.empty_target(topic, work.partitions, {"message.timestamp.type": "LogAppendTime"})
    ends = EndOffsets(clusters.target, topic, work.partitions)
    with SteadyProducer(clusters.source.brokers[0].port, topic, work) as producer, running(tool, job) as mirror:
        helpers = [*clusters.brokers, producer.pid]
        start = watch_copy(mirror.tree, helpers, mirror.started, ends.records, 1, _START, mirror.is_alive, progress)
        if start.first is None:
            mirror.failed(f"no record arrived within {_START:g} s")
            return {}, mirror.notes
        time.sleep(work.warm_up)
        since, since_ns = moment(mirror.tree, helpers, time.monotonic(), 0), time.time_ns()
        brokers = [cpu_seconds([pid]) for pid in clusters.brokers]
        while time.monotonic() < since.time + work.seconds:
            mirror.tree.measure_memory()
            progress(ends.records())
            time.sleep(1)
        until = moment(mirror.tree, helpers, time.monotonic(), 0)
        used = (cpu_seconds([pid]) - before for pid, before in zip(clusters.brokers, brokers, strict=True))
        cpus = [until.mirror_cpu - since.mirror_cpu, *used]
        sent = producer.stop()
        watch_copy(mirror.tree, helpers, time.monotonic(), ends.records, sent, _CATCH_UP, mirror.is_alive, progress)
    arrived = _read(clusters.target, topic, work.partitions)
    ends.close()
    if len(arrived) != sent:
        mirror.notes.append(f"the target holds {len(arrived):,} records, the source {sent:,}")
    window = range(since_ns, since_ns + int(work.seconds * 1e9))
    # LogAppendTime is cut off to whole milliseconds, which takes away half a millisecond on average.
    delays = sorted(appended + 0.5 - created / 1e6 for created, appended in arrived if created in window)
    if len(delays) < 0.95 * work.rate * work.seconds:
        mirror.notes.append(f"only {len(delays) / work.seconds:.0f} records/s arrived during the measurement")
    return {
        "first_record_s": start.first.time - start.started,
        "peak_mb": mirror.tree.peak_memory / 1e6,
        "p50_ms": percentile(delays, 0.5),
        "p99_ms": percentile(delays, 0.99),
        "p999_ms": percentile(delays, 0.999),
        "samples": len(delays),
        **dict(zip(_CPUS, (100 * cpu / (until.time - since.time) for cpu in cpus), strict=True)),
        "other_load": other_load(since, until),
    }, mirror.notes


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _read(target: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Return when each record was created, in nanoseconds, and its LogAppendTime, in milliseconds.

    The broker's files are read: a consumer would take longer for a million records than the measurement.
    """
    found: list[tuple[int, int]] = []
    for partition in range(partitions):
        for log in sorted((target.directory / "broker-1" / f"{topic}-{partition}").glob("*.log")):
            for run in split(memoryview(log.read_bytes())):
                if isinstance(run, Batches):
                    found += _times(run)
    return found


def _times(batches: Batches) -> Iterator[tuple[int, int]]:
    for number in range(0, len(batches), _BATCHES):
        records = unpack(batches.part(number, number + _BATCHES))
        keys, key_sizes = records.keys()
        _, values = varints.read(records.data, keys + key_sizes.clip(0))
        created = records.data[values[:, None] + np.arange(CREATED.size)].view(">i8")[:, 0]
        yield from zip(created.tolist(), records.timestamps.tolist(), strict=True)
