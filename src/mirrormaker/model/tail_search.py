"""Finding the last records of one log in another log, where no committed offset says how far the first one has got.

A *tail* is the last records of one producer in a log, as marks. `TailSearch` looks for tails among the records of another log,
and `SearchTimes` says which parts of that log have to be read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from mirrormaker.wire.records.columns import Records

TAIL = 50  # records of a tail
# Records that must be found in a row where timestamps cannot be compared: short records are often equal.
ENOUGH_UNTIMED = 10
# Bytes of records that were all written at other times, until a tail counts as missing: producers' clocks differ.
SLACK = 16 << 20


class Mark(NamedTuple):
    """What both logs have in common of a record: size and checksum of key, value and headers, and its timestamp."""

    size: int
    checksum: int
    # None where a broker sets its own timestamps; -1 if the record has none.
    timestamp: int | None

    @classmethod
    def of(cls, records: Records, index: int, *, timed: bool = True) -> Mark:
        """Return the mark of one of the records."""
        tail = records.tail(index)
        return cls(len(tail), crc32c(tail), int(records.timestamps[index]) if timed else None)

    @property
    def is_timed(self) -> bool:
        """Return True if the timestamp tells the record from equal ones."""
        return self.timestamp is not None and self.timestamp >= 0


# The last records of one producer, the oldest one first; at least one, and at most `TAIL`.
Tail = tuple[Mark, ...]


class Doubt(Enum):
    """Why it cannot be told where to go on."""

    EQUAL = "equal"  # a tail is there several times
    PARTLY = "partly"  # some records of a tail are there, but not as they follow each other in the tail
    TOO_FAR = "too far"  # more would have to be read than is allowed
    OLDER = "older"  # the other log's first records are in the first log, but not in a tail
    SPREAD = "spread"  # the other log's first records are there, and its records go to several partitions


# The offset after the last record that was found; None if the log has none of the records.
Conclusion = int | Doubt | None


class TailSearch:
    """Looks for several tails at once in a log, whose data records it sees in their order."""

    def __init__(self, tails: Sequence[Tail], latest: int | None = None) -> None:
        """`latest`: records without a timestamp in their tail have none after this one in the log."""
        self._tails, self._latest = list(dict.fromkeys(tails)), latest
        # By size and checksum: the tails that have such records, and the records.
        self._wanted: dict[tuple[int, int], dict[int, set[Mark]]] = defaultdict(lambda: defaultdict(set))
        for number, tail in enumerate(self._tails):
            for mark in tail:
                self._wanted[mark[:2]][number].add(mark)
        times = {mark.timestamp for tail in self._tails for mark in tail}
        self._sizes = np.array([size for size, _ in self._wanted], np.int64)
        self._times = None if None in times else np.array(list(times), np.int64)
        self._before: list[Mark] = []
        # By tail: the offsets where it ends, and the last offset of any of its records.
        self._ends: dict[int, set[int]] = defaultdict(set)
        self._last_seen: dict[int, int] = {}

    @property
    def is_ambiguous(self) -> bool:
        """Return True if a tail was found in several places: whatever follows, its place cannot be told."""
        return any(len(ends) > 1 for ends in self._ends.values())

    def see(self, records: Records) -> None:
        """Look for the tails in the next records of the log."""
        rows = np.flatnonzero(np.isin(records.ends - records.starts, self._sizes))
        if self._times is not None:
            rows = rows[np.isin(records.timestamps[rows], self._times)]
        for row in rows.tolist():
            found, offset = Mark.of(records, row), int(records.offsets[row])
            for number, marks in self._wanted.get(found[:2], {}).items():
                if any(self._fits(mark, found) for mark in marks):
                    self._last_seen[number] = offset
                    if len(self._ends[number]) < 2 and self._is_end(self._tails[number], records, row):
                        self._ends[number].add(offset)
        kept = range(max(0, len(records) - TAIL + 1), len(records))
        self._before = [*self._before, *(Mark.of(records, row) for row in kept)][1 - TAIL :]

    def pass_over(self) -> None:
        """Note that records were left out which belong to no tail: no tail continues beyond them."""
        self._before = []

    def _fits(self, mark: Mark, found: Mark) -> bool:
        """Return True if a record that was found may be the one in the tail."""
        if mark[:2] != found[:2]:
            return False
        if mark.timestamp is not None:
            return mark.timestamp == found.timestamp
        return self._latest is None or found.timestamp is None or found.timestamp <= self._latest

    def _is_end(self, tail: Tail, records: Records, row: int) -> bool:
        """Return True if the tail ends with this record."""
        if row - len(tail) + 1 < -len(self._before):
            return False
        places = range(row, row - len(tail), -1)
        return all(
            self._fits(mark, Mark.of(records, at) if at >= 0 else self._before[at])
            for mark, at in zip(reversed(tail), places, strict=True)
        )

    def conclude(self) -> Conclusion:
        """Return what the records that were seen say.

        Several tails may be found: a mirror that got a new producer id leaves one for each, and the last place counts.
        Tails of other writers are not found at all. But where a record of a tail lies behind that place, and the tail as a
        whole was not found, the place may be wrong.
        """
        if self.is_ambiguous:
            return Doubt.EQUAL
        found = {number: max(ends) for number, ends in self._ends.items() if ends and self._is_proof(number)}
        last = max(found.values(), default=-1)
        if any(seen > last for number, seen in self._last_seen.items() if number not in found):
            return Doubt.PARTLY
        return last + 1 if found else None

    def _is_proof(self, number: int) -> bool:
        tail = self._tails[number]
        return len(tail) >= ENOUGH_UNTIMED or all(mark.is_timed for mark in tail)


class SearchTimes:
    """The times at which the records of tails were written: records of other times need not be read.

    Records follow each other more or less in the order of their timestamps. Where they do not, more is read.
    """

    def __init__(self, tails: Sequence[Tail], latest: int | None = None) -> None:
        """`latest`: records without a timestamp in their tail have none after this one in the log."""
        windows: list[tuple[int, int]] = []
        self._is_everywhere = False
        for tail in tails:
            times = [mark.timestamp for mark in tail if mark.timestamp is not None and mark.timestamp >= 0]
            if len(times) == len(tail):
                windows.append((min(times), max(times)))
            elif latest is not None and all(mark.timestamp is None for mark in tail):
                windows.append((-1, latest))
            else:
                self._is_everywhere = True
        # The windows, joined where they overlap, in their order.
        self._first: list[int] = []
        self._last: list[int] = []
        for first, last in sorted(windows):
            if self._last and first <= self._last[-1]:
                self._last[-1] = max(last, self._last[-1])
            else:
                self._first.append(first)
                self._last.append(last)
        self._idle = 0

    @property
    def is_over(self) -> bool:
        """Return True if nothing is looked for any more."""
        return not self._is_everywhere and not self._first

    @property
    def first(self) -> int | None:
        """Return the first timestamp that is still looked for; None if it may be any."""
        return None if self._is_everywhere or not self._first or self._first[0] < 0 else self._first[0]

    def needs(self, max_timestamp: int) -> bool:
        """Return True if a batch with this newest timestamp may have records of a tail."""
        return self.first is None or max_timestamp >= self.first

    def note(self, first_timestamp: int, max_timestamp: int, size: int) -> bool:
        """Note a batch that was read; return True if the first tails are given up, and the next ones may lie far ahead."""
        if self._is_everywhere:
            return False
        # The windows that ended before this batch was written.
        earlier = bisect_left(self._last, first_timestamp)
        if earlier < len(self._first) and self._first[earlier] <= max_timestamp:
            self._idle = 0
        elif earlier:
            self._idle += size
        if self._idle <= SLACK:
            return False
        del self._first[:earlier], self._last[:earlier]
        self._idle = 0
        return True
