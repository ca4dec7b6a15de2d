"""Notes of one outlet for the offset map: which source offsets the acknowledged records came from.

Most partitions are one run for ever: their notes are one row that becomes longer. Noting a batch takes less than a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mirrormaker.model.numbers import LoggedBatch
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut
from mirrormaker.wire.records.batch import SEQUENCES
from mirrormaker.wire.records.varints import Ints

# So many runs may be noted at once, and so many more from one report to the next, which are half a second apart: enough for a
# compacted backlog, and for transactions of 30 ms for ever. The map knows how many records are left out beyond that.
_BURST, _PER_REPORT = 16_384, 16
# The same where records spread over several target partitions, so that nearly every record is a run of its own.
_SPREAD_BURST, _SPREAD_PER_REPORT = 16, 1


class RunNotes:
    """The runs that were acknowledged since the last report. Slots: there may be thousands of outlets."""

    __slots__ = (
        "_budget", "_closed", "_is_spread", "_length", "_noted_to", "_sequence", "_source_end", "_target_end", "has_news",
    )  # fmt: skip

    def __init__(self, *, is_spread: bool) -> None:
        """`is_spread`: the records of the source partition go to several target partitions."""
        self._is_spread = is_spread
        self._budget = _SPREAD_BURST if is_spread else _BURST
        self._closed: list[NotedRun] = []
        # The last run, which may become longer; its length is 0 if there is none.
        self._source_end = self._target_end = -1
        self._length = self._sequence = 0
        self._noted_to = -1  # the source offset after the last record that was noted
        self.has_news = False

    def note(self, source: int, target: int, count: int, sequence: int) -> None:
        """Note records with consecutive offsets on both sides, the first of which has this sequence number."""
        if source == self._source_end and target == self._target_end:
            self._source_end += count
            self._target_end += count
            self._length += count
            self._noted_to = self._source_end
            self.has_news = True
            return
        if source < self._noted_to:
            # A message handler made several records of one, and they came in two batches: the first one counts.
            copies = self._noted_to - source
            if copies < count:
                self.note(source + copies, target + copies, count - copies, (sequence + copies) % SEQUENCES)
            return
        self._close()
        if self._budget > 0:
            self._budget -= 1
            self._noted_to = source + count
            self._source_end, self._target_end = source + count, target + count
            self._length, self._sequence = count, sequence
            self.has_news = True

    def note_offsets(self, sources: Ints, target: int, sequence: int) -> None:
        """Note records with consecutive target offsets and consecutive numbers, which come from any source offsets."""
        steps = np.diff(sources)
        starts = np.flatnonzero(steps != 1) + 1
        bounds = [0, *starts.tolist(), len(sources)]
        if self._is_spread:
            bounds = bounds[:2]
        for start, stop in pairwise(bounds):
            # A message handler may make several records of one: the first one counts.
            first = start + 1 if start and steps[start - 1] == 0 else start
            if first < stop:
                self.note(int(sources[first]), target + first, stop - first, (sequence + first) % SEQUENCES)

    def restart(self, target: int) -> None:
        """Forget the records from a target offset on: they are noted again when they are found there."""
        self._close()
        self._closed = [
            run if run.target + run.length <= target else run._replace(length=target - run.target)
            for run in self._closed
            if run.target < target
        ]
        self._noted_to = self._closed[-1].source + self._closed[-1].length if self._closed else -1

    def collect(self) -> tuple[NotedRun, ...]:
        """Return the runs that are new or longer since the last call."""
        runs = tuple(self._closed)
        if self._length:
            start = self._source_end - self._length, self._target_end - self._length
            runs += (NotedRun(*start, self._length, self._sequence),)
        self._closed.clear()
        self.has_news = False
        if self._is_spread:
            self._budget = min(_SPREAD_BURST, self._budget + _SPREAD_PER_REPORT)
        else:
            self._budget = min(_BURST, self._budget + _PER_REPORT)
        return runs

    def _close(self) -> None:
        """End the last run."""
        if self._length:
            start = self._source_end - self._length, self._target_end - self._length
            self._closed.append(NotedRun(*start, self._length, self._sequence))
        self._source_end = self._target_end = -1
        self._length = 0


class SkippedPlaces:
    """The places of records after a cut that the target's log holds, in the order of their numbers.

    They count only once the last record that is skipped was seen to be the last one in the log. A source that was compacted
    further has fewer records than the log, and then each of them would be noted at the place of an earlier one.
    """

    __slots__ = ("_found", "_runs", "_sequence")

    def __init__(self, cut: Cut) -> None:
        # The number of the next record that is skipped. The map knows those that are ahead already: they lie before the cut.
        self._sequence = (cut.sequence - cut.ahead) % SEQUENCES
        self._found: list[LoggedBatch] = []
        self._runs: list[NotedRun] = []

    def found(self, logged: Sequence[LoggedBatch]) -> None:
        """Take in our batches in the log after the cut."""
        self._found = list(logged)

    def skip(self, sources: Ints) -> None:
        """Take in the source offsets of the next records."""
        runs = self._runs
        for source in sources.tolist():
            sequence, self._sequence = self._sequence, (self._sequence + 1) % SEQUENCES
            while self._found and _distance(sequence, self._found[0].last_sequence) < 0:
                del self._found[0]
            if not self._found or (behind := _distance(self._found[0].base_sequence, sequence)) < 0:
                continue  # its place is unknown
            target = self._found[0].base_offset + behind
            last = runs[-1] if runs else None
            if last is not None and (last.source + last.length, last.target + last.length) == (source, target):
                runs[-1] = last._replace(length=last.length + 1)
            else:
                runs.append(NotedRun(source, target, 1, sequence))

    def confirmed(self) -> list[NotedRun]:
        """Return the runs of all records that were skipped: they are the ones in the log."""
        runs, self._runs = self._runs, []
        return runs


def _distance(first: int, second: int) -> int:
    """Return how far the second sequence number comes after the first one; negative if it comes before."""
    return (second - first + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
