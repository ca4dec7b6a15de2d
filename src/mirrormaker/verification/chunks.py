"""Records as chunks: a few thousand at a time, cut where the content says so, each with one checksum.

A record whose checksum ends in zeros ends a chunk. So the same records fall into the same chunks on both sides, wherever their
offsets are and wherever reading began: what is equal is recognised without bringing any two records together, and only chunks that
one side lacks are looked at record by record.

A *line* is a sequence that a mirror keeps in order: on the source, the records of one partition that go to one target partition;
on the target, the records of one producer in one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirrormaker.verification.hashing import Hashes
from mirrormaker.wire.records.varints import Ints

_WRAP = 1 << 64
_BASE = 0xD1342543DE82EF95  # odd, so that it has an inverse
_INVERSE = pow(_BASE, -1, _WRAP)


class Line(NamedTuple):
    """Whose records: `number` is the target partition on the source's side, and the producer on the target's."""

    side: int  # 0, 1, ... for sources, -1 for the target
    topic: str
    partition: int
    number: int


class Chunk(NamedTuple):
    """Records of one line that follow each other; `closed` if its last record is one that ends a chunk."""

    line: Line
    checksum: int  # of all records, in their order
    records: int
    first: int
    last: int
    closed: bool
    stamped: int  # records whose timestamp is the broker's own

    def then(self, other: Chunk) -> Chunk:
        """Both as one: a checksum of a sequence is made from those of its parts."""
        return self._replace(
            checksum=joined(self.checksum, self.records, other.checksum),
            records=self.records + other.records,
            last=other.last,
            closed=other.closed,
            stamped=self.stamped + other.stamped,
        )


SCHEMA = pa.schema(
    [
        pa.field("span", pa.int32()),
        pa.field("number", pa.int64()),
        pa.field("checksum", pa.int64()),
        pa.field("count", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("stamped", pa.int64()),
        pa.field("trouble", pa.string()),
    ]
)


def joined(left: int, count: int, right: int) -> int:
    return (left + pow(_BASE, count, _WRAP) * right) % _WRAP


class Powers:
    """Of the base and of its inverse, as many as were ever asked for."""

    def __init__(self) -> None:
        self._up = self._down = np.ones(1, np.uint64)

    def __call__(self, count: int) -> tuple[Hashes, Hashes]:
        if len(self._up) < count:
            self._up, self._down = (_powers(base, 2 * count) for base in (_BASE, _INVERSE))
        return self._up[:count], self._down[:count]


def _powers(base: int, count: int) -> Hashes:
    steps = np.full(count, base, np.uint64)
    steps[0] = 1
    return np.cumprod(steps, dtype=np.uint64)


class Chunker:
    """Takes the records of one span in their order; remembers only the chunk of each line that is not closed yet."""

    def __init__(self, side: int, topic: str, partition: int, bits: int) -> None:
        self._where = (side, topic, partition)
        self._ends = np.uint64((1 << bits) - 1)
        self._powers = Powers()
        self._open: dict[int, Chunk] = {}

    def take(self, hashes: Hashes, numbers: Ints, offsets: Ints, stamped: npt.NDArray[np.bool_]) -> list[Chunk]:
        """The chunks that these records close."""
        closed: list[Chunk] = []
        order = None
        if len(numbers) and int(numbers.min()) != int(numbers.max()):
            order = np.argsort(numbers, kind="stable")
            hashes, numbers, offsets, stamped = hashes[order], numbers[order], offsets[order], stamped[order]
        # A part ends behind a record that ends a chunk, and where the next line begins.
        ends = (hashes & self._ends) == 0
        stops = ends.copy()
        stops[-1:] = True
        if order is not None:
            stops[:-1] |= numbers[1:] != numbers[:-1]
        last = np.flatnonzero(stops)
        first = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
        up, down = self._powers(len(hashes))
        sums = np.add.reduceat(hashes * up, first) * down[first] if len(first) else hashes
        marks = np.add.reduceat(stamped.astype(np.int64), first) if len(first) else offsets
        for checksum, number, count, low, high, is_closed, mark in zip(
            sums.tolist(), numbers[first].tolist(), (last - first + 1).tolist(), offsets[first].tolist(),
            offsets[last].tolist(), ends[last].tolist(), marks.tolist(), strict=True,
        ):  # fmt: skip
            chunk = Chunk(Line(*self._where, number), checksum, count, low, high, is_closed, mark)
            begun = self._open.pop(number, None)
            if begun is not None:
                chunk = begun.then(chunk)
            if is_closed:
                closed.append(chunk)
            else:
                self._open[number] = chunk
        return closed

    def rest(self) -> list[Chunk]:
        """What is not closed at the end of the span."""
        return list(self._open.values())


def stitched(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Chunks that lie in two spans or more, put together."""
    for _, parts in groupby(sorted(chunks, key=lambda c: (c.line, c.first)), key=lambda c: c.line):
        begun: Chunk | None = None
        for part in parts:
            begun = begun.then(part) if begun is not None else part
            if begun.closed:
                yield begun
                begun = None
        if begun is not None:
            yield begun
