"""Ranges of offsets, one for each Spark task, and what a task needs to know to read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mirrormaker.verification.hashing import Hashes, contents
from mirrormaker.verification.log_reader import Logs, Piece
from mirrormaker.verification.plan import TARGET, Part, TopicPlan, Window
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.records.murmur2 import by_key
from mirrormaker.wire.records.varints import Ints

_TASKS = 8  # for each core: progress is seen, and the last tasks are not waited for long
_SMALLEST, _LARGEST = 50_000, 500_000  # offsets of a task


class Span(NamedTuple):
    """Some offsets of one partition."""

    topic: int  # which plan
    side: int
    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class Job:
    """What all tasks are told; travels inside Spark's closure, so secrets stay out of its configuration."""

    endpoints: dict[int, tuple[Endpoint, bool]]  # of each side, and whether only committed records count
    plans: tuple[TopicPlan, ...]
    window: Window
    spans: tuple[Span, ...]


class Seen(NamedTuple):
    """Records of a span that count: checksums, and the number of the line that each is in."""

    piece: Piece
    hashes: Hashes
    numbers: Ints


def spans(plans: Sequence[TopicPlan], cores: int) -> list[Span]:
    """All that is to be compared, in parts that are not too large."""
    total = sum(plan.size for plan in plans)
    size = max(_SMALLEST, min(_LARGEST, total // (cores * _TASKS)))
    found = []
    for number, plan in enumerate(plans):
        for part in (*plan.sources, *plan.targets):
            found += cut(number, part, part.start, part.until, size)
    return found


def cut(number: int, part: Part, start: int, stop: int, size: int = _LARGEST) -> list[Span]:
    return [Span(number, part.side, part.partition, at, min(at + size, stop)) for at in range(start, stop, size)]


def dealt(spans: Sequence[Span], cores: int) -> tuple[list[Span], int]:
    """In such an order that each of Spark's tasks gets its share of large and small ones, and the number of tasks."""
    total = sum(span.stop - span.start for span in spans)
    tasks = min(len(spans), max(cores, total // _SMALLEST))
    by_size = sorted(spans, key=lambda span: span.start - span.stop)
    return [span for number in range(tasks) for span in by_size[number::tasks]], tasks


def look(job: Job, span: Span, logs: Logs, beyond: bool = False) -> Iterator[Seen]:
    """Read a span. Records of a producer behind its limit are still arriving: left out, unless `beyond` wants them."""
    plan = job.plans[span.topic]
    limits = {producer: limit for (t, producer), limit in plan.limits.items() if t == span.partition}
    for piece in logs.read(plan.name, span.partition, span.start, span.stop):
        keep = _in_window(piece, job.window)
        if span.side == TARGET and not beyond and limits:
            keep &= ~arriving(piece, limits)
        if not keep.all():
            piece = piece.part(keep)
        if not len(piece.records):
            continue
        if span.side == TARGET:
            numbers = piece.producers
        elif span.side in plan.by_key:
            numbers = by_key(piece.records, span.partition, len(plan.targets))
        else:
            numbers = np.full(len(piece.records), span.partition, np.int64)
        yield Seen(piece, contents(piece.records, plan.timestamps, plan.headers), numbers)


def arriving(piece: Piece, limits: dict[int, int]) -> npt.NDArray[np.bool_]:
    """Written behind the place where the position of their producer stood."""
    found = np.zeros(len(piece.records), np.bool_)
    for producer, limit in limits.items():
        found |= (piece.producers == producer) & (piece.records.offsets >= limit)
    return found


def _in_window(piece: Piece, window: Window) -> npt.NDArray[np.bool_]:
    keep = np.ones(len(piece.records), np.bool_)
    if window.since is not None:
        keep &= piece.records.timestamps >= window.since
    if window.until is not None:
        keep &= piece.records.timestamps < window.until
    return keep


def opened(job: Job, side: int) -> Logs:
    return Logs(*job.endpoints[side])
