"""Runs as bytes: as the offset map's topic has them, and as complete blocks keep them in memory.

A run is four varints: its source and target offsets, each counted from the end of the run before, its length, and how many records
lie between the two runs at unknown places. That is about four bytes; the same run as Python objects takes 160.

This module does no input or output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol.codec import varint

_NUMBERS = 4  # of each run
_MOST_DIGITS = 9  # bytes of a varint: offsets have 63 bits
_MOST_OFFSET = 1 << 62
# Runs that are kept unpacked after their use, of the lists that were used last: 2 MB.
_CACHED_RUNS = 1 << 16


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


class UnpackedRuns:
    """The runs of a packed list for a moment, as a table of numbers: a fifth of the memory that a list of `Run` takes."""

    __slots__ = ("_rows",)

    def __init__(self, rows: npt.NDArray[np.int64]) -> None:
        """`rows` are source offset, target offset, length and skipped records of each run."""
        self._rows = rows

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._rows)

    def __getitem__(self, index: int) -> Run:
        """Return one run."""
        return Run(*self._rows[index].tolist())

    def __iter__(self) -> Iterator[Run]:
        """Yield the runs in their order."""
        return (Run(*row) for row in self._rows.tolist())


class PackedRuns(NamedTuple):
    """Runs, packed. The offsets of the first one are counted from `source` and `target`."""

    data: bytes
    size: int
    source: int
    target: int
    # The offsets after the last run.
    source_end: int
    target_end: int

    @classmethod
    def of(cls, runs: Sequence[Run] | UnpackedRuns, source: int, target: int) -> PackedRuns:
        """Pack runs. Raise ValueError if they are not in the order of both sides, or begin before the given offsets."""
        out = bytearray()
        ends = source, target
        for run in runs:
            numbers = run.source - ends[0], run.target - ends[1], run.length, run.skipped
            out += bytes(numbers) if min(numbers) >= 0 and max(numbers) < 0x80 else b"".join(map(varint, numbers))
            ends = run.source_end, run.target_end
        return cls(bytes(out), len(runs), source, target, *ends)

    @classmethod
    def read(cls, data: memoryview, count: int, source: int, target: int) -> PackedRuns:
        """Take so many runs from the beginning of stored bytes. Raise BadFrame if they are damaged."""
        part = np.frombuffer(data[: count * _NUMBERS * _MOST_DIGITS], np.uint8)
        ends = np.flatnonzero(part < 0x80)[: count * _NUMBERS]
        if len(ends) < count * _NUMBERS:
            raise BadFrame("a block has fewer runs than it says")
        size = int(ends[-1]) + 1 if count else 0
        packed = cls(bytes(data[:size]), count, source, target, source, target)
        numbers = _numbers(packed.data)
        if float(numbers.sum(dtype=np.float64)) > _MOST_OFFSET - max(source, target):
            raise BadFrame("a block has offsets with more than 63 bits")
        advance = numbers.sum(axis=0).tolist()
        return packed._replace(source_end=source + advance[0] + advance[2], target_end=target + advance[1] + advance[2])


def unpacked(packed: PackedRuns) -> UnpackedRuns:
    """Return the runs of a packed list."""
    return _cache.unpacked(packed)


class _Cache:
    """The lists that were unpacked last."""

    def __init__(self) -> None:
        self._found: dict[PackedRuns, UnpackedRuns] = {}
        self._runs = 0

    def unpacked(self, packed: PackedRuns) -> UnpackedRuns:
        # Threads may do this at the same time: at worst, a list is unpacked twice.
        found = self._found.pop(packed, None)
        if found is None:
            found = UnpackedRuns(_rows(packed))
            self._runs += packed.size
        self._found[packed] = found
        while self._runs > _CACHED_RUNS and len(self._found) > 1:
            oldest = next(iter(self._found))
            if self._found.pop(oldest, None) is not None:
                self._runs -= oldest.size
        return found


_cache = _Cache()


def _rows(packed: PackedRuns) -> npt.NDArray[np.int64]:
    """Return source offset, target offset, length and skipped records of each run."""
    rows = _numbers(packed.data)
    before = np.cumsum(rows[:, 2]) - rows[:, 2]  # records of all runs before each one
    rows[:, 0] = np.cumsum(rows[:, 0]) + before + packed.source
    rows[:, 1] = np.cumsum(rows[:, 1]) + before + packed.target
    return rows


def _numbers(data: bytes) -> npt.NDArray[np.int64]:
    """Decode varints that follow each other, four in a row. Raise BadFrame for one with more than 63 bits."""
    digits = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(digits < 0x80) + 1
    if len(ends) == len(digits):
        return digits.astype(np.int64).reshape(-1, _NUMBERS)
    starts = np.concatenate(([0], ends[:-1]))
    sizes = ends - starts
    if int(sizes.max()) > _MOST_DIGITS:
        raise BadFrame("a number of a block has more than 63 bits")
    places = np.arange(len(digits)) - np.repeat(starts, sizes)
    values = (digits & 0x7F).astype(np.int64) << (7 * places)
    numbers: npt.NDArray[np.int64] = np.add.reduceat(values, starts).reshape(-1, _NUMBERS)
    return numbers
