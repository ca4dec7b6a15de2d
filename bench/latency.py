"""How long a record takes from the producer's clock to the target's log while only a trickle flows."""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Callable

from kafka import KafkaConsumer, TopicPartition

from bench import raw
from bench.measure import watch
from bench.results import Figures
from bench.running import running
from bench.stage import PARTITIONS, Ends, Stage
from bench.tools import Job, Tool
from bench.workloads import Latency
from mirrormaker.embedded import Cluster

_START = 40.0
"""Seconds for a mirror's first record."""

_CATCH_UP = 15.0
"""Seconds for the last records to arrive after the producer has stopped; milliseconds for a mirror that works."""

_STAMP = struct.Struct(">q")


def measure(stage: Stage, work: Latency, tool: Tool, tell: Callable[[int], None]) -> tuple[Figures, list[str]]:
    """Produce at a steady rate while the mirror starts, warms up and is measured; then read the target back."""
    job = Job.on(stage, topic := f"bench-l-{time.time_ns()}", "none")
    stage.source.create_topic(topic, PARTITIONS)
    stage.empty_target(topic, {"message.timestamp.type": "LogAppendTime"})
    ends = Ends(stage.target, topic)
    with _Trickle(stage.source, topic, work) as trickle, running(tool, job) as mirror:
        begin = watch(mirror.tree, stage.brokers, mirror.started, ends, 1, _START, lambda: mirror.alive, tell)
        if begin.first is None:
            mirror.notes += [f"no record within {_START:g} s", mirror.last_words()]
            return {}, mirror.notes
        time.sleep(work.warm_up)
        since = time.time_ns()
        over = time.monotonic() + work.seconds
        while time.monotonic() < over:
            mirror.tree.look_round()
            tell(ends())
            time.sleep(1)
        until = time.time_ns()
        sent = trickle.stop()
        watch(mirror.tree, stage.brokers, time.monotonic(), ends, sent, _CATCH_UP, lambda: mirror.alive, tell)
    arrived = _read(stage.target, topic, ends())
    ends.close()
    if len(arrived) != sent:
        mirror.notes.append(f"{len(arrived):,} records on the target, {sent:,} on the source")
    # The broker's clock has whole milliseconds, cut off: half of one is what that takes away on average.
    delays = sorted(append + 0.5 - stamp / 1e6 for stamp, append in arrived if since <= stamp < until)
    return {
        "first_record_s": begin.first.time - begin.started,
        "peak_mb": mirror.tree.peak_memory / 1e6,
        "p50_ms": percentile(delays, 0.5),
        "p99_ms": percentile(delays, 0.99),
        "p999_ms": percentile(delays, 0.999),
        "samples": len(delays),
    }, mirror.notes


def percentile(ordered: list[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class _Trickle:
    """A thread that sends records one by one, each carrying the time at which it was made."""

    def __init__(self, source: Cluster, topic: str, work: Latency) -> None:
        self._line = raw.Line(source.brokers[0].port)
        self._topic, self._work = topic, work
        self._over = threading.Event()
        self._sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> _Trickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """End, and say how many records were sent."""
        self._over.set()
        self._thread.join()
        return self._sent

    def _run(self) -> None:
        padding = bytes(self._work.record_size - _STAMP.size)
        began = time.monotonic()
        while not self._over.is_set():
            time.sleep(max(0.0, began + self._sent / self._work.rate - time.monotonic()))
            batch = raw.batch([_STAMP.pack(time.time_ns()) + padding])
            raw.check_produced(self._line.ask(raw.produce(self._topic, {self._sent % PARTITIONS: batch})))
            self._sent += 1
        self._line.close()


def _read(target: Cluster, topic: str, records: int) -> list[tuple[int, int]]:
    """Each record's stamp in nanoseconds, and its LogAppendTime in milliseconds."""
    consumer = KafkaConsumer(
        bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    try:
        return [
            (_STAMP.unpack_from(record.value)[0], record.timestamp)
            for _, record in zip(range(records), consumer, strict=False)
        ]
    finally:
        consumer.close()
