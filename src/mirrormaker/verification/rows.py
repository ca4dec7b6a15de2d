"""Records as rows of a DataFrame: one row for each record that is compared by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mirrormaker.errors import ClusterError
from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.hashing import hash_ranges
from mirrormaker.verification.matching import TopicMatch
from mirrormaker.verification.plan import TARGET, PartitionRange, TopicPlan
from mirrormaker.verification.spans import (
    ArrowTask,
    HashedSlice,
    Span,
    TaskInput,
    is_arriving,
    read_span,
    split_range,
)
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.varints import Ints

COLUMNS = (
    "plan int, side int, partition int, target_partition int, producer_id long, offset long, hash long, key long,"
    " tombstone boolean, compared boolean, error string"
)
_SCHEMA = pa.schema(
    [
        pa.field("plan", pa.int32()),
        pa.field("side", pa.int32()),
        pa.field("partition", pa.int32()),
        # The partition that the record is in, or should be in.
        pa.field("target_partition", pa.int32()),
        pa.field("producer_id", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("hash", pa.int64()),
        # The key's checksum, and whether the value is null: only of compacted topics.
        pa.field("key", pa.int64()),
        pa.field("tombstone", pa.bool_()),
        # False for records after those that are compared: they may supersede others in a compacted topic.
        pa.field("compared", pa.bool_()),
        # A row with an error has nothing else.
        pa.field("error", pa.string()),
    ]
)
_NEAR = 10_000  # offsets: reading on across such a gap costs less than another span

ChunkRanges = dict[int, tuple[Ints, Ints]]  # by selector of the series: first and last offsets of its chunks


def spans_to_read(plans: Sequence[TopicPlan], matches: Sequence[TopicMatch]) -> dict[Span, ChunkRanges | None]:
    """Return the spans to read again, each with the chunks that are wanted of it; None if all of it is wanted."""
    spans: dict[Span, ChunkRanges | None] = {}
    for number, (plan, match) in enumerate(zip(plans, matches, strict=True)):
        chunks: dict[tuple[int, int], list[Chunk]] = defaultdict(list)
        for chunk in (*match.source_only, *match.target_only):
            chunks[chunk.series.side, chunk.series.partition].append(chunk)
        for part in (*plan.sources, *plan.targets):
            if plan.compacted:
                # Any later record may supersede an earlier one, so the whole partition is read.
                spans |= dict.fromkeys(split_range(number, part, part.start, part.end))
                continue
            for group in _neighbours(chunks[part.side, part.partition]):
                start, stop = group[0].first, max(chunk.last for chunk in group) + 1
                spans |= dict.fromkeys(split_range(number, part, start, stop), _ranges(group))
    return spans


def _neighbours(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Yield groups of chunks that overlap or nearly touch: those of different series are interleaved."""
    group: list[Chunk] = []
    stop = 0
    for chunk in sorted(chunks, key=lambda c: c.first):
        if group and chunk.first > stop + _NEAR:
            yield group
            group = []
        stop = max(stop, chunk.last + 1)
        group.append(chunk)
    if group:
        yield group


def _ranges(chunks: Sequence[Chunk]) -> ChunkRanges:
    by_selector: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        by_selector[chunk.series.selector].append(chunk)
    return {
        selector: (np.array([c.first for c in found], np.int64), np.array([c.last for c in found], np.int64))
        for selector, found in by_selector.items()
    }


def row_task(task: TaskInput, spans: Sequence[Span], ranges: Sequence[ChunkRanges | None]) -> ArrowTask:
    """Return the function with which Spark's tasks read spans as rows."""

    def read_spans(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read_rows(task, spans[number], ranges[number])

    return read_spans


def _read_rows(task: TaskInput, span: Span, ranges: ChunkRanges | None) -> Iterator[pa.RecordBatch]:
    plan = task.plans[span.plan]
    part = next(p for p in (*plan.sources, *plan.targets) if (p.side, p.partition) == (span.side, span.partition))
    try:
        with task.open_log(span.side) as log:
            for hashed in read_span(task, span, log, with_arriving=ranges is None):
                batch = _batch(span, part, plan, hashed, ranges)
                if batch.num_rows:
                    yield batch
    except ClusterError as error:
        yield pa.RecordBatch.from_arrays(
            [pa.array([str(error) if field.name == "error" else None], field.type) for field in _SCHEMA], schema=_SCHEMA
        )


def _batch(
    span: Span, part: PartitionRange, plan: TopicPlan, hashed: HashedSlice, ranges: ChunkRanges | None
) -> pa.RecordBatch:
    log, hashes, selectors = hashed
    if ranges is not None:
        keep = np.zeros(len(selectors), np.bool_)
        for selector, (firsts, lasts) in ranges.items():
            at = np.searchsorted(firsts, log.records.offsets, side="right") - 1
            keep |= (selectors == selector) & (at >= 0) & (log.records.offsets <= lasts[np.maximum(at, 0)])
        log, hashes, selectors = log.select(keep), hashes[keep], selectors[keep]
    records, count = log.records, len(log.records)
    compared = records.offsets < part.stop
    if span.side == TARGET:
        compared &= ~is_arriving(log, plan.limits_of(span.partition))
    keys, tombstones = pa.nulls(count, pa.int64()), pa.nulls(count, pa.bool_())
    if plan.compacted:
        start, size = records.keys()
        keys = pa.array(hash_ranges(records.data, start, np.maximum(size, 0)).view(np.int64), mask=size < 0)
        tombstones = pa.array(varints.read(records.data, start + np.maximum(size, 0))[0] < 0)
    target_partitions = np.full(count, span.partition) if span.side == TARGET else selectors
    columns = [
        pa.array(np.full(count, span.plan, np.int32)), pa.array(np.full(count, span.side, np.int32)),
        pa.array(np.full(count, span.partition, np.int32)), pa.array(target_partitions.astype(np.int32)),
        pa.array(log.producer_ids), pa.array(records.offsets), pa.array(hashes.view(np.int64)), keys, tombstones,
        pa.array(compared), pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
