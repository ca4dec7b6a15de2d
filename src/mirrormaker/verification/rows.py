"""Both sides as rows, one for each record that needs a closer look: read by Spark's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from mirrormaker.errors import ClusterError
from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.hashing import spans as hashed
from mirrormaker.verification.matching import Matched
from mirrormaker.verification.plan import TARGET, Part, TopicPlan
from mirrormaker.verification.spans import Job, Seen, Span, arriving, cut, look, opened
from mirrormaker.wire.records import varints
from mirrormaker.wire.records.varints import Ints

COLUMNS = (
    "topic int, side int, partition int, place int, producer long, offset long, hash long, key long, tombstone boolean,"
    " beyond boolean, trouble string"
)
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.int32()),
        pa.field("side", pa.int32()),
        pa.field("partition", pa.int32()),
        pa.field("place", pa.int32()),  # the target partition that it is in, or belongs to
        pa.field("producer", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("hash", pa.int64()),
        pa.field("key", pa.int64()),  # its checksum; only of compacted topics
        pa.field("tombstone", pa.bool_()),
        pa.field("beyond", pa.bool_()),  # later than what is compared: matters only to compaction
        pa.field("trouble", pa.string()),
    ]
)
_NEAR = 10_000  # offsets: reading on costs less than another task

Wanted = dict[int, tuple[Ints, Ints]]  # of each line: where its chunks begin and end


def spans_to_read(plans: Sequence[TopicPlan], found: Sequence[Matched]) -> dict[Span, Wanted | None]:
    """What has to be read again, and which chunks of it; None: all of it."""
    spans: dict[Span, Wanted | None] = {}
    for number, (plan, matched) in enumerate(zip(plans, found, strict=True)):
        chunks = _by_partition([*matched.left, *matched.right])
        for part in (*plan.sources, *plan.targets):
            if plan.compacted:  # what supersedes a record may be anywhere
                spans |= dict.fromkeys(cut(number, part, part.start, part.end))
                continue
            for start, stop, inside in _ranges(chunks.get((part.side, part.partition), [])):
                spans |= dict.fromkeys(cut(number, part, start, stop), _wanted(inside))
    return spans


def _by_partition(chunks: Sequence[Chunk]) -> dict[tuple[int, int], list[Chunk]]:
    found: dict[tuple[int, int], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        found[chunk.line.side, chunk.line.partition].append(chunk)
    return found


def _ranges(chunks: Sequence[Chunk]) -> Iterator[tuple[int, int, list[Chunk]]]:
    """Chunks of different lines lie among each other: those that overlap or nearly touch are read together."""
    held: list[Chunk] = []
    stop = 0
    for chunk in sorted(chunks, key=lambda c: c.first):
        if held and chunk.first > stop + _NEAR:
            yield held[0].first, stop, held
            held = []
        held.append(chunk)
        stop = max(stop if len(held) > 1 else 0, chunk.last + 1)
    if held:
        yield held[0].first, stop, held


def _wanted(chunks: Sequence[Chunk]) -> Wanted:
    lines: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        lines[chunk.line.number].append(chunk)
    return {
        number: (np.array([c.first for c in mine], np.int64), np.array([c.last for c in mine], np.int64))
        for number, mine in lines.items()
    }


def task(job: Job, spans: Sequence[Span], wanted: Sequence[Wanted | None]):  # type: ignore[no-untyped-def]
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(job, spans[number], wanted[number])

    return rows


def _read(job: Job, span: Span, wanted: Wanted | None) -> Iterator[pa.RecordBatch]:
    plan = job.plans[span.topic]
    part = next(p for p in (*plan.sources, *plan.targets) if (p.side, p.partition) == (span.side, span.partition))
    try:
        with opened(job, span.side) as logs:
            for seen in look(job, span, logs, beyond=wanted is None):
                batch = _batch(span, part, plan, seen, wanted)
                if batch.num_rows:
                    yield batch
    except ClusterError as error:
        yield pa.RecordBatch.from_arrays(
            [pa.array([str(error) if field.name == "trouble" else None], field.type) for field in SCHEMA], schema=SCHEMA
        )


def _batch(span: Span, part: Part, plan: TopicPlan, seen: Seen, wanted: Wanted | None) -> pa.RecordBatch:
    piece, hashes, numbers = seen
    if wanted is not None:
        keep = np.zeros(len(numbers), np.bool_)
        for number, (firsts, lasts) in wanted.items():
            at = np.searchsorted(firsts, piece.records.offsets, side="right") - 1
            keep |= (numbers == number) & (at >= 0) & (piece.records.offsets <= lasts[np.maximum(at, 0)])
        piece, hashes, numbers = piece.part(keep), hashes[keep], numbers[keep]
    records, count = piece.records, len(piece.records)
    offsets = records.offsets
    beyond = offsets >= part.until
    if span.side == TARGET:
        limits = {producer: limit for (t, producer), limit in plan.limits.items() if t == span.partition}
        beyond |= arriving(piece, limits)
    keys, tombstones = pa.nulls(count, pa.int64()), pa.nulls(count, pa.bool_())
    if plan.compacted:
        start, size = records.keys()
        keys = pa.array(hashed(records.data, start, np.maximum(size, 0)).view(np.int64), mask=size < 0)
        tombstones = pa.array(varints.read(records.data, start + np.maximum(size, 0))[0] < 0)
    places = np.full(count, span.partition) if span.side == TARGET else numbers
    columns = [
        pa.array(np.full(count, span.topic, np.int32)), pa.array(np.full(count, span.side, np.int32)),
        pa.array(np.full(count, span.partition, np.int32)), pa.array(places.astype(np.int32)),
        pa.array(piece.producers), pa.array(offsets), pa.array(hashes.view(np.int64)), keys, tombstones,
        pa.array(beyond), pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
