"""How long a record takes from the producer's clock to the target's log while only a trickle flows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from kafka import KafkaConsumer, TopicPartition

from bench.measure import moment, other_load, watch
from bench.results import Figures
from bench.running import running
from bench.stage import PARTITIONS, Ends, Stage, create
from bench.tools import Job, Tool
from bench.trickle import STAMP, Trickle
from bench.workloads import Latency
from mirrormaker.embedded import Cluster

_START = 40.0
"""Seconds for a mirror's first record."""

_CATCH_UP = 15.0
"""Seconds for the last records to arrive after the producer has stopped; milliseconds for a mirror that works."""


def measure(stage: Stage, work: Latency, tool: Tool, tell: Callable[[int], None]) -> tuple[Figures, list[str]]:
    """Produce at a steady rate while the mirror starts, warms up and is measured; then read the target back."""
    job = Job.on(stage, topic := f"bench-l-{time.time_ns()}")
    create(stage.source, topic)
    stage.empty_target(topic, config={"message.timestamp.type": "LogAppendTime"})
    ends = Ends(stage.target, topic)
    with Trickle(stage.source.brokers[0].port, topic, work) as trickle, running(tool, job) as mirror:
        helpers = [*stage.brokers, trickle.pid]
        begin = watch(mirror.tree, helpers, mirror.started, ends, 1, _START, lambda: mirror.alive, tell)
        if begin.first is None:
            mirror.failed(f"no record within {_START:g} s")
            return {}, mirror.notes
        time.sleep(work.warm_up)
        since, stamp = moment(mirror.tree, helpers, time.monotonic(), 0), time.time_ns()
        while time.monotonic() < since.time + work.seconds:
            mirror.tree.weigh()
            tell(ends())
            time.sleep(1)
        until = moment(mirror.tree, helpers, time.monotonic(), 0)
        sent = trickle.stop()
        watch(mirror.tree, helpers, time.monotonic(), ends, sent, _CATCH_UP, lambda: mirror.alive, tell)
    arrived = _read(stage.target, topic, ends())
    ends.close()
    if len(arrived) != sent:
        mirror.notes.append(f"{len(arrived):,} records on the target, {sent:,} on the source")
    window = range(stamp, stamp + int(work.seconds * 1e9))
    # The broker's clock has whole milliseconds, cut off: half of one is what that takes away on average.
    delays = sorted(appended + 0.5 - made / 1e6 for made, appended in arrived if made in window)
    if len(delays) < 0.95 * work.rate * work.seconds:
        mirror.notes.append(f"only {len(delays) / work.seconds:.0f} records/s in the window")
    return {
        "first_record_s": begin.first.time - begin.started,
        "peak_mb": mirror.tree.peak_memory / 1e6,
        "p50_ms": percentile(delays, 0.5),
        "p99_ms": percentile(delays, 0.99),
        "p999_ms": percentile(delays, 0.999),
        "samples": len(delays),
        "other_load": other_load(since, until),
    }, mirror.notes


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _read(target: Cluster, topic: str, records: int) -> list[tuple[int, int]]:
    """Each record's stamp in nanoseconds, and its LogAppendTime in milliseconds."""
    consumer = KafkaConsumer(
        bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    try:
        return [
            (STAMP.unpack_from(record.value)[0], record.timestamp)
            for _, record in zip(range(records), consumer, strict=False)
        ]
    finally:
        consumer.close()
