"""Figures that streams have reported, added up for as long as the process lives: counts never go back."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from mirrormaker.control.control_messages import CounterReport, Report
from mirrormaker.status.latency import quantiles
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.worker.counters import CLASSES

_PACE_OVER = 5.0  # seconds: a pace covers the last 5 to 10
_LATENCY_OVER = 30.0  # seconds: latencies and lanes cover the last 30 to 60
_NO_LATENCIES = (0,) * CLASSES


class Figures(NamedTuple):
    """The counts at one moment: a copy that another thread may read."""

    records: int
    bytes: int
    batches_forwarded: int
    batches_repacked: int
    retries: int
    resumes: int
    latency_counts: tuple[int, ...]
    latency_ms: int


class Counted:
    """The counts of one partition, or of all partitions together."""

    __slots__ = (
        "_lately",
        "_paces",
        "batches_forwarded",
        "batches_repacked",
        "bytes",
        "latency_counts",
        "latency_ms",
        "records",
        "resumes",
        "retries",
    )

    def __init__(self) -> None:
        self.records = self.bytes = self.batches_forwarded = self.batches_repacked = self.retries = self.resumes = 0
        self.latency_counts = [0] * CLASSES
        self.latency_ms = 0
        self._paces = [(time.monotonic(), 0, 0)] * 2  # (time, records, bytes)
        # (time, forwarded batches, repacked batches, latencies)
        self._lately = [(time.monotonic(), 0, 0, _NO_LATENCIES)] * 2

    def add(self, records: int, size: int, counters: CounterReport | None) -> None:
        """Add what is new in a stream's report."""
        self.turn(time.monotonic())
        self.records += records
        self.bytes += size
        if counters is not None:
            self.batches_forwarded += counters.batches_forwarded
            self.batches_repacked += counters.batches_repacked
            self.retries += counters.retries
            self.resumes += counters.resumes
            self.latency_ms += counters.latency_ms
            for at, count in counters.latency_counts:
                self.latency_counts[at] += count

    def turn(self, now: float) -> None:
        """Remember the present counts now and then, so that paces can be computed from them.

        Everything that adds or reads counts calls it first, so a partition that is idle and not looked at costs nothing.
        """
        if (idle := now - self._paces[1][0]) >= _PACE_OVER:
            paces = (now, self.records, self.bytes)
            # After a longer pause, all that was counted is too old to be part of a pace.
            self._paces = [paces if idle >= 2 * _PACE_OVER else self._paces[1], paces]
        if (idle := now - self._lately[1][0]) >= _LATENCY_OVER:
            latest = (now, self.batches_forwarded, self.batches_repacked, tuple(self.latency_counts))
            self._lately = [latest if idle >= 2 * _LATENCY_OVER else self._lately[1], latest]

    def pace(self, now: float) -> tuple[float, float]:
        """Return records and bytes per second."""
        self.turn(now)
        since, records, size = self._paces[0]
        seconds = max(1.0, now - since)
        return (self.records - records) / seconds, (self.bytes - size) / seconds

    @property
    def figures(self) -> Figures:
        """A copy of all counts."""
        return Figures(
            self.records,
            self.bytes,
            self.batches_forwarded,
            self.batches_repacked,
            self.retries,
            self.resumes,
            tuple(self.latency_counts),
            self.latency_ms,
        )

    @property
    def lately(self) -> list[int]:
        """Records of the last minute or so, by class of latency."""
        self.turn(time.monotonic())
        return [count - before for count, before in zip(self.latency_counts, self._lately[0][3], strict=True)]

    @property
    def latency(self) -> tuple[float, ...] | None:
        """Latency quantiles of the last minute or so, in milliseconds."""
        return quantiles(self.lately)

    @property
    def lane(self) -> str:
        """The lanes in use in the last minute or so."""
        self.turn(time.monotonic())
        _, forwarded, repacked, _ = self._lately[0]
        ways = (
            "batches" if self.batches_forwarded > forwarded else "",
            "records" if self.batches_repacked > repacked else "",
        )
        return " and ".join(filter(None, ways))


@dataclass
class StreamFigures:
    """Figures of one stream's processes: each attempt counts its CPU time from zero."""

    at_work: bool = False
    starts: int = 0
    buffer: int = 0
    memory: int = 0
    cpu: float = 0.0
    counted: Counted = field(default_factory=Counted)  # what its processes have reported
    _last_cpu: float = 0.0

    def arrived(self) -> None:
        """Note that an attempt has started."""
        self.at_work, self._last_cpu = True, 0.0
        self.starts += 1

    def left(self) -> None:
        """Note that an attempt has ended."""
        self.at_work, self.buffer, self.memory = False, 0, 0

    def reported(self, report: Report) -> None:
        """Take in the figures of a report."""
        self.buffer, self.memory = report.buffer_bytes, report.memory_bytes
        self.cpu += max(0.0, report.cpu_seconds - self._last_cpu)
        self._last_cpu = report.cpu_seconds


class Counts:
    """The counts of one source."""

    def __init__(self) -> None:
        self.all = Counted()
        self.partitions: dict[TopicPartition, Counted] = defaultdict(Counted)
        self.streams: dict[int, StreamFigures] = defaultdict(StreamFigures)
        self.rebalances = 0

    def add(
        self, key: TopicPartition, records: int, size: int, counters: CounterReport | None, stream: int | None = None
    ) -> None:
        """Add what a stream has reported of one partition and is new."""
        if records or size or counters:
            self.all.add(records, size, counters)
            self.partitions[key].add(records, size, counters)
            if stream is not None:
                self.streams[stream].counted.add(records, size, None)
