"""Runs: records whose offsets are consecutive on the source and on the target, as the offset map keeps them.

If runs are so short that storing them all would cost too much, some are left out. The sequence numbers tell how many records lie
between two runs, so a list of runs knows where it is exact. Elsewhere it answers with the earlier end of the range: a reader that
goes on there reads some records again, and misses none.

This module does no input or output.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

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


class Run(NamedTuple):
    """Records with consecutive offsets on both sides; `skipped` more lie between the run before and this one, at unknown places."""

    source: int
    target: int
    length: int
    skipped: int = 0

    @property
    def source_end(self) -> int:
        """Return the source offset after the run."""
        return self.source + self.length

    @property
    def target_end(self) -> int:
        """Return the target offset after the run."""
        return self.target + self.length


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
    runs: list[Run] = field(default_factory=list)

    @classmethod
    def at(cls, cut: Cut) -> RunList:
        """Return an empty list that begins at a cut."""
        return cls(cut.offset, cut.sequence, cut.offset, cut.sequence)

    @property
    def unknown(self) -> int:
        """Return how many records after the last run have unknown places."""
        return (self.end_sequence - self.next_sequence) % SEQUENCES

    def add(self, noted: NotedRun) -> bool:
        """Take in a run, which replaces all that is known from its target offset on.

        Return False if it only made the last run longer.
        """
        runs = self.runs
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
        runs, forgotten = self.runs, 0
        while runs and runs[-1].target >= target:
            run = runs.pop()
            forgotten += run.length + run.skipped
        if runs and runs[-1].target_end > target:
            forgotten += runs[-1].target_end - target
            runs[-1] = runs[-1]._replace(length=target - runs[-1].target)
        self.next_sequence = (self.next_sequence - forgotten) % SEQUENCES
        return forgotten > 0

    def end_at(self, cut: Cut) -> None:
        """Note the state of the target partition at the end of the block."""
        self.end_offset, self.end_sequence = cut.offset, cut.sequence

    def find(self, source: int, end: int) -> Translated | None:
        """Return the place of the first record at or after a source offset; None if the block, which ends at `end`, has none."""
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
