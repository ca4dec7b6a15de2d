"""What one cursor counts for the status page and the metrics, told to the desk as what is new since the last report.

A batch costs about 0.4 microseconds here. Latency is from the timestamp of a batch's newest record to the target's answer, and
counts for every record in it: looking at each one would mean to unpack it.
"""

from __future__ import annotations

from bisect import bisect_left
from time import time
from typing import TYPE_CHECKING

from mirrormaker.control.control_messages import CounterReport

if TYPE_CHECKING:
    from mirrormaker.worker.outlet import Entry

# Milliseconds; the last class, of whatever is older, has no bound.
BOUNDS = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 30_000,
    60_000, 300_000, 3_600_000, 86_400_000,
)  # fmt: skip
CLASSES = len(BOUNDS) + 1
_BOUNDS = tuple(map(float, BOUNDS))  # floats among themselves are compared in half the time


class Counters:
    """Batches by lane, latencies, and what had to be done again."""

    __slots__ = ("as_is", "late", "late_ms", "resumes", "retries", "unpacked")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.as_is = self.unpacked = self.retries = self.resumes = 0
        self.late = [0] * CLASSES  # records by class of latency
        self.late_ms = 0.0  # all latencies added up; below zero if a producer's clock is ahead of ours

    def delivered(self, entry: Entry) -> None:
        if entry.unit.counts:  # only what was packed here has them
            self.unpacked += 1
        else:
            self.as_is += 1
        timestamp, count = entry.batch.max_timestamp, entry.count
        if timestamp >= 0:  # old messages have none
            late = time() * 1000.0 - timestamp
            self.late[bisect_left(_BOUNDS, late)] += count
            self.late_ms += late * count

    def news(self) -> CounterReport | None:
        """Return what was counted since the last call; None if nothing was."""
        if not (self.as_is or self.unpacked or self.retries or self.resumes):
            return None
        counts = tuple((at, count) for at, count in enumerate(self.late) if count)
        milliseconds = max(0, round(self.late_ms))
        news = CounterReport(self.as_is, self.unpacked, counts, milliseconds, self.retries, self.resumes)
        self._begin()
        return news
