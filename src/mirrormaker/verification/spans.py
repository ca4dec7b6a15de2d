"""Spans: ranges of offsets that Spark tasks read, and the reading of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirrormaker.verification.hashing import Hashes, hash_records
from mirrormaker.verification.log_reader import LogReader, LogSlice
from mirrormaker.verification.plan import TARGET, PartitionRange, TopicPlan, Window
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.records.murmur2 import by_key
from mirrormaker.wire.records.varints import Ints

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # what `mapInArrow` takes

_SPANS_PER_CORE = 8  # so that progress is visible, and no core waits long for the last task
_MIN_OFFSETS, _MAX_OFFSETS = 50_000, 500_000  # of one span


class Span(NamedTuple):
    """Some offsets of one partition."""

    plan: int  # index of the topic's plan in `TaskInput.plans`
    side: int
    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class TaskInput:
    """The input of a Spark job's tasks. It travels in the closure, so that no secret is in Spark's configuration."""

    # How to reach each side, and True if only committed records count there.
    endpoints: dict[int, tuple[Endpoint, bool]]
    plans: tuple[TopicPlan, ...]
    window: Window
    spans: tuple[Span, ...]

    def open_log(self, side: int) -> LogReader:
        """Return a reader of one side's logs."""
        return LogReader(*self.endpoints[side])


class HashedSlice(NamedTuple):
    """Records of a span, with the checksum of each record and the selector of its series."""

    log: LogSlice
    hashes: Hashes
    selectors: Ints


def plan_spans(plans: Sequence[TopicPlan], cores: int) -> list[Span]:
    """Return everything that is to be compared, as spans of a moderate size."""
    total = sum(plan.size for plan in plans)
    size = max(_MIN_OFFSETS, min(_MAX_OFFSETS, total // (cores * _SPANS_PER_CORE)))
    return [
        span
        for number, plan in enumerate(plans)
        for part in (*plan.sources, *plan.targets)
        for span in split_range(number, part, part.start, part.stop, size)
    ]


def split_range(plan: int, part: PartitionRange, start: int, stop: int, size: int = _MAX_OFFSETS) -> list[Span]:
    """Return a range of a partition's offsets as spans of at most `size`."""
    return [Span(plan, part.side, part.partition, at, min(at + size, stop)) for at in range(start, stop, size)]


def balance(spans: Sequence[Span], cores: int) -> tuple[list[Span], int]:
    """Return the spans in an order that gives each Spark task large and small ones, and the number of tasks."""
    total = sum(span.stop - span.start for span in spans)
    tasks = min(len(spans), max(cores, total // _MIN_OFFSETS))
    by_size = sorted(spans, key=lambda span: span.start - span.stop)
    return [span for number in range(tasks) for span in by_size[number::tasks]], tasks


def read_span(task: TaskInput, span: Span, log: LogReader, with_arriving: bool = False) -> Iterator[HashedSlice]:
    """Yield the records of a span that lie in the window of timestamps.

    Records on the target that are still arriving are left out, unless `with_arriving` is set.
    """
    plan = task.plans[span.plan]
    limits = {} if with_arriving or span.side != TARGET else plan.limits_of(span.partition)
    for part in log.read(plan.name, span.partition, span.start, span.stop):
        keep = task.window.contains(part.records.timestamps)
        if limits:
            keep &= ~is_arriving(part, limits)
        if not keep.all():
            part = part.select(keep)
        if not len(part.records):
            continue
        if span.side == TARGET:
            selectors = part.producer_ids
        elif span.side in plan.by_key:
            selectors = by_key(part.records, span.partition, len(plan.targets))
        else:
            selectors = np.full(len(part.records), span.partition, np.int64)
        hashes = hash_records(part.records, plan.compares_timestamps, plan.keeps_headers)
        yield HashedSlice(part, hashes, selectors)


def is_arriving(part: LogSlice, limits: dict[int, int]) -> npt.NDArray[np.bool_]:
    """Return True for each record that lies after its producer's arrival limit."""
    arriving = np.zeros(len(part.records), np.bool_)
    for producer_id, limit in limits.items():
        arriving |= (part.producer_ids == producer_id) & (part.records.offsets >= limit)
    return arriving
