"""Runs: records whose offsets are consecutive on the source and on the target, as the offset map keeps them.

If runs are so short that storing them all would cost too much, some are left out. The sequence numbers tell how many records lie
between two runs, so a list of runs knows where it is exact. Elsewhere it answers with the earlier end of the range: a reader that
goes on there reads some records again, and misses none.

This module does no input or output.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from mirrormaker.model.packed_runs import PackedRuns, Run, UnpackedRuns, unpacked
from mirrormaker.model.position import Cut
from mirrormaker.wire.records.batch import SEQUENCES


class NotedRun(NamedTuple):
    """A run as a stream reports it, with the sequence number of its first record."""

    source: int
    target: int
    length: int
    sequence: int

    def without_first(self, count: int) -> NotedRun:
        """Return the run without its first records."""
        sequence = (self.sequence + count) % SEQUENCES
        return NotedRun(self.source + count, self.target + count, self.length - count, sequence)


@dataclass(frozen=True, slots=True)
class Translated:
    """The offset at which a reader goes on. The right one lies between `offset` and `latest`, which are equal if it is exact."""

    offset: int
    latest: int

    @property
    def is_exact(self) -> bool:
        """Return True if the offset is the right one, so that nothing is read again."""
        return self.offset == self.latest


@dataclass(slots=True)
class RunList:
    """The runs of one block on one target partition, and the state of that partition at the block's end."""

    # No record of the block lies before this target offset.
    first_offset: int
    # The sequence number after the last run.
    next_sequence: int
    end_offset: int
    end_sequence: int
    # A list that is complete keeps its runs packed; one that changes has them as they are.
    kept: list[Run] | PackedRuns = field(default_factory=list)

    @classmethod
    def at(cls, cut: Cut) -> RunList:
        """Return an empty list that begins at a cut."""
        return cls(cut.offset, cut.sequence, cut.offset, cut.sequence)

    @property
    def runs(self) -> list[Run] | UnpackedRuns:
        """Return the runs in their order."""
        return unpacked(self.kept) if isinstance(self.kept, PackedRuns) else self.kept

    @property
    def count(self) -> int:
        """Return the number of runs."""
        return self.kept.size if isinstance(self.kept, PackedRuns) else len(self.kept)

    @property
    def ends(self) -> tuple[int, int]:
        """Return the offsets after the last run on both sides; -1 if there is none."""
        if isinstance(self.kept, PackedRuns):
            return (self.kept.source_end, self.kept.target_end) if self.kept.size else (-1, -1)
        return (self.kept[-1].source_end, self.kept[-1].target_end) if self.kept else (-1, -1)

    @property
    def unknown(self) -> int:
        """Return how many records after the last run have unknown places."""
        return (self.end_sequence - self.next_sequence) % SEQUENCES

    def packed(self, source: int) -> PackedRuns:
        """Return the runs packed; the block begins at this source offset."""
        return self.kept if isinstance(self.kept, PackedRuns) else PackedRuns.of(self.kept, source, self.first_offset)

    def pack(self, source: int) -> None:
        """Keep the runs packed until one of them changes."""
        with contextlib.suppress(ValueError):  # the writer of the block meets the same error, and reports it
            self.kept = self.packed(source)

    def _open(self) -> list[Run]:
        """Return the runs so that they can be changed."""
        if isinstance(self.kept, PackedRuns):
            self.kept = list(unpacked(self.kept))
        return self.kept

    def add(self, noted: NotedRun) -> bool:
        """Take in a run, which replaces all that is known from its target offset on.

        Return False if it only made the last run longer.
        """
        runs = self._open()
        if runs and (runs[-1].source, runs[-1].target) == (noted.source, noted.target):
            grown = noted.length - runs[-1].length
            runs[-1] = runs[-1]._replace(length=noted.length)
            self.next_sequence = (self.next_sequence + grown) % SEQUENCES
            return grown < 0
        self.truncate(noted.target)
        if runs and noted.source < runs[-1].source_end:
            # A message handler made several records of one: the first one counts.
            copies = runs[-1].source_end - noted.source
            if copies >= noted.length:
                return False
            noted = noted.without_first(copies)
        skipped = (noted.sequence - self.next_sequence) % SEQUENCES
        self.next_sequence = (noted.sequence + noted.length) % SEQUENCES
        last = runs[-1] if runs else None
        if not skipped and last is not None and (last.source_end, last.target_end) == (noted.source, noted.target):
            runs[-1] = last._replace(length=last.length + noted.length)
            return False
        # Numbers that go backwards show that the list is not about these records: then nothing between is known.
        runs.append(Run(noted.source, noted.target, noted.length, skipped if skipped < SEQUENCES // 2 else 1))
        return True

    def truncate(self, target: int) -> bool:
        """Forget all that is known from a target offset on; return True if there was something."""
        if self.ends[1] <= target:
            return False
        runs, forgotten = self._open(), 0
        while runs and runs[-1].target >= target:
            run = runs.pop()
            forgotten += run.length + run.skipped
        if runs and runs[-1].target_end > target:
            forgotten += runs[-1].target_end - target
            runs[-1] = runs[-1]._replace(length=target - runs[-1].target)
        self.next_sequence = (self.next_sequence - forgotten) % SEQUENCES
        return forgotten > 0

    def split(self, cut: Cut) -> RunList:
        """Cut off all that lies at a cut and after it, and return it as a list of its own."""
        later = RunList.at(cut)
        taken = [run for run in self._open() if run.target_end > cut.offset]
        if not taken:
            return later
        if (before := cut.offset - taken[0].target) > 0:
            first = taken[0]
            taken[0] = Run(first.source + before, cut.offset, first.length - before)
        known = sum(run.length for run in taken) + sum(run.skipped for run in taken[1:])
        skipped = (self.next_sequence - cut.sequence - known) % SEQUENCES
        taken[0] = taken[0]._replace(skipped=skipped if skipped < SEQUENCES // 2 else 1)
        later.kept, later.next_sequence = taken, self.next_sequence
        self.truncate(cut.offset)
        return later

    def end_at(self, cut: Cut) -> None:
        """Note the state of the target partition at the end of the block."""
        self.end_offset, self.end_sequence = cut.offset, cut.sequence

    def find(self, source: int, end: int) -> Translated | None:
        """Return the place of the first record at or after a source offset; None if the block, which ends at `end`, has none."""
        if source >= self.ends[0] and not self.unknown:
            return None
        runs = self.runs
        at = bisect_right(runs, source, key=lambda run: run.source_end)
        before = runs[at - 1].target_end if at else self.first_offset
        if at < len(runs):
            run = runs[at]
            if run.source <= source:
                place = run.target + source - run.source
                return Translated(place, place)
            return Translated(before if run.skipped else run.target, run.target)
        if self.unknown and source < end:
            return Translated(before, self.end_offset)
        return None

    def find_source(self, target: int, start: int, end: int) -> Translated | None:
        """Return the source offset of the first record at or after a target offset; None if the block has none."""
        if target >= self.ends[1] and not self.unknown:
            return None
        runs = self.runs
        at = bisect_right(runs, target, key=lambda run: run.target_end)
        before = runs[at - 1].source_end if at else start
        if at < len(runs):
            run = runs[at]
            if run.target <= target:
                place = run.source + target - run.target
                return Translated(place, place)
            return Translated(before if run.skipped else run.source, run.source)
        if self.unknown and target < self.end_offset:
            return Translated(before, end)
        return None
