"""Cut records into chunks of about a thousand, each with one checksum.

A chunk ends after a record whose own checksum ends in zeros. The content alone decides that, so the same records fall
into the same chunks on both sides, whatever their offsets are and wherever reading began. Equal chunks are equal
records; only chunks that one side lacks are compared record by record.

A *series* is a sequence of records whose order a mirror keeps. On the source, it is the records of one partition that
go to one target partition; on the target, the records of one producer in one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mirrormaker.verification.hashing import Hashes
from mirrormaker.wire.records.varints import Ints

# The checksum of records with hashes h0, h1, h2 ... is h0 + h1 * _BASE + h2 * _BASE² ..., modulo 2^64.
_MODULUS = 1 << 64
_BASE = 0xD1342543DE82EF95  # odd, so that it has an inverse
_INVERSE = pow(_BASE, -1, _MODULUS)


class Series(NamedTuple):
    """A sequence of records whose order a mirror keeps."""

    side: int
    topic: str
    partition: int
    # The target partition if `side` is a source, the producer id if it is the target.
    selector: int


class Chunk(NamedTuple):
    """Consecutive records of one series."""

    series: Series
    checksum: int
    records: int  # how many
    first: int  # offset
    last: int  # offset
    closed: bool  # False if the chunk goes on in another span, or at the end of a series
    broker_stamped: int  # how many records have the broker's own timestamp

    def followed_by(self, other: Chunk) -> Chunk:
        """Return both as one chunk."""
        return self._replace(
            checksum=(self.checksum + pow(_BASE, self.records, _MODULUS) * other.checksum) % _MODULUS,
            records=self.records + other.records,
            last=other.last,
            closed=other.closed,
            broker_stamped=self.broker_stamped + other.broker_stamped,
        )


class Chunker:
    """Cut the records of one span into chunks; hold only one open chunk of each series."""

    def __init__(self, side: int, topic: str, partition: int, bits: int) -> None:
        """`bits`: a record whose checksum ends in so many zeros ends a chunk."""
        self._partition = (side, topic, partition)
        self._mask = np.uint64((1 << bits) - 1)
        self._powers = self._inverse_powers = np.ones(1, np.uint64)
        self._open: dict[int, Chunk] = {}

    def add(self, hashes: Hashes, selectors: Ints, offsets: Ints, broker_stamped: npt.NDArray[np.bool_]) -> list[Chunk]:
        """Take the span's next records; return the chunks that they close."""
        count = len(hashes)
        if not count:
            return []
        is_one_series = int(selectors.min()) == int(selectors.max())
        if not is_one_series:
            order = np.argsort(selectors, kind="stable")
            hashes, selectors, offsets = hashes[order], selectors[order], offsets[order]
            broker_stamped = broker_stamped[order]
        # A piece ends after a record that ends a chunk, where the next series begins, and with the last record.
        ends_chunk = (hashes & self._mask) == 0
        ends_piece = ends_chunk.copy()
        ends_piece[-1] = True
        if not is_one_series:
            ends_piece[:-1] |= selectors[1:] != selectors[:-1]
        last = np.flatnonzero(ends_piece)
        first = np.concatenate([[0], last[:-1] + 1])
        self._grow_powers(count)
        checksums = np.add.reduceat(hashes * self._powers[:count], first) * self._inverse_powers[first]
        stamped = np.add.reduceat(broker_stamped.astype(np.int64), first)
        closed: list[Chunk] = []
        for checksum, selector, records, low, high, is_closed, stamps in zip(
            checksums.tolist(), selectors[first].tolist(), (last - first + 1).tolist(), offsets[first].tolist(),
            offsets[last].tolist(), ends_chunk[last].tolist(), stamped.tolist(), strict=True,
        ):  # fmt: skip
            chunk = Chunk(Series(*self._partition, selector), checksum, records, low, high, is_closed, stamps)
            begun = self._open.pop(selector, None)
            if begun is not None:
                chunk = begun.followed_by(chunk)
            if is_closed:
                closed.append(chunk)
            else:
                self._open[selector] = chunk
        return closed

    def open_chunks(self) -> list[Chunk]:
        """Return the chunks that are not closed at the end of the span."""
        return list(self._open.values())

    def _grow_powers(self, count: int) -> None:
        if len(self._powers) < count:
            self._powers, self._inverse_powers = (_powers(base, 2 * count) for base in (_BASE, _INVERSE))


def _powers(base: int, count: int) -> Hashes:
    steps = np.full(count, base, np.uint64)
    steps[0] = 1
    return np.cumprod(steps, dtype=np.uint64)


def join_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Put chunks together that lie in two spans or more."""
    for _, pieces in groupby(sorted(chunks, key=lambda c: (c.series, c.first)), key=lambda c: c.series):
        begun: Chunk | None = None
        for piece in pieces:
            begun = begun.followed_by(piece) if begun is not None else piece
            if begun.closed:
                yield begun
                begun = None
        if begun is not None:
            yield begun
