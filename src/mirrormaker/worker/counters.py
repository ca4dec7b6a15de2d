"""The counters of one cursor, for the status page and the metrics.

Each report to the driver has what is new since the last one. Counting a batch takes about 0.4 microseconds. The latency
of a batch is the time from its newest record's timestamp to the target's acknowledgement, and counts for every record
in it: the others' timestamps could be had only by unpacking the batch.
"""

from __future__ import annotations

import resource
from bisect import bisect_left
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from mirrormaker.control.control_messages import CounterReport

if TYPE_CHECKING:
    from mirrormaker.worker.outlet import Entry

# Upper bounds of the latency classes in milliseconds; one more class has no upper bound.
BOUNDS = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000,
    30_000, 60_000, 300_000, 3_600_000, 86_400_000,
)  # fmt: skip
CLASSES = len(BOUNDS) + 1
# Comparing floats with floats takes half the time.
_BOUNDS = tuple(map(float, BOUNDS))


class Counters:
    """Batches by lane, latencies, retries and resumes since the last report."""

    __slots__ = ("batches_forwarded", "batches_repacked", "latency_counts", "latency_ms", "resumes", "retries")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.batches_forwarded = self.batches_repacked = self.retries = self.resumes = 0
        self.latency_counts = [0] * CLASSES  # records by latency class
        # The sum over all records; negative if a producer's clock is ahead of ours.
        self.latency_ms = 0.0

    def delivered(self, entry: Entry) -> None:
        """Count an acknowledged batch."""
        if entry.unit.counts:  # a forwarded batch has none
            self.batches_repacked += 1
        else:
            self.batches_forwarded += 1
        timestamp, count = entry.batch.max_timestamp, entry.count
        if timestamp >= 0:  # messages of format 0 have no timestamp
            latency = time() * 1000.0 - timestamp
            self.latency_counts[bisect_left(_BOUNDS, latency)] += count
            self.latency_ms += latency * count

    def collect(self) -> CounterReport | None:
        """Return what was counted since the last call; None if nothing was."""
        if not (self.batches_forwarded or self.batches_repacked or self.retries or self.resumes):
            return None
        counts = tuple((at, count) for at, count in enumerate(self.latency_counts) if count)
        milliseconds = max(0, round(self.latency_ms))
        report = CounterReport(
            self.batches_forwarded, self.batches_repacked, counts, milliseconds, self.retries, self.resumes
        )
        self._reset()
        return report


def cpu_seconds() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def memory_bytes() -> int:
    """Return the resident bytes of this process; their peak where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
