"""The first Spark job: every record of both sides is read once, and becomes part of a chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from mirrormaker.errors import CannotTell, ClusterError
from mirrormaker.verification.chunks import SCHEMA, Chunk, Chunker, Line, stitched
from mirrormaker.verification.spans import Job, Span, dealt, look, opened

_COLUMNS = "span int, number long, checksum long, count long, first long, last long, closed boolean, stamped long, trouble string"
_MEAN = 10  # bits: a chunk has about a thousand records
_MOST = 1 << 18  # chunks of a side that the driver holds, with 400 bytes each; of more records they are larger


def bits(records: int) -> int:
    """How many zeros end a chunk."""
    return max(_MEAN, (records // _MOST).bit_length())


def run(spark: SparkSession, job: Job, cores: int) -> list[Chunk]:
    """The chunks of all spans, put together."""
    if not job.spans:
        return []
    ordered, tasks = dealt(job.spans, cores)
    job = replace(job, spans=tuple(ordered))
    rows = spark.range(0, len(ordered), 1, tasks).mapInArrow(_task(job), _COLUMNS).toArrow()
    return list(stitched(_chunks(job, rows)))


def _task(job: Job):  # type: ignore[no-untyped-def]  # mapInArrow takes any callable
    size = bits(sum(plan.size for plan in job.plans) // 2)

    def scan(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _rows(number, _scanned(job, job.spans[number], size))

    return scan


def _scanned(job: Job, span: Span, size: int) -> list[Chunk] | str:
    """The chunks of a span, or why there are none."""
    chunker = Chunker(span.side, job.plans[span.topic].name, span.partition, size)
    found: list[Chunk] = []
    try:
        with opened(job, span.side) as logs:
            for seen in look(job, span, logs):
                found += chunker.take(seen.hashes, seen.numbers, seen.piece.records.offsets, seen.piece.stamped)
    except ClusterError as error:
        return str(error)
    return found + chunker.rest()


def _rows(number: int, found: list[Chunk] | str) -> pa.RecordBatch:
    rows = [(number, 0, 0, 0, 0, 0, False, 0, found)] if isinstance(found, str) else [
        (number, c.line.number, _signed(c.checksum), c.records, c.first, c.last, c.closed, c.stamped, None) for c in found
    ]  # fmt: skip
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _chunks(job: Job, rows: pa.Table) -> Iterable[Chunk]:
    lines: dict[tuple[int, int], Line] = {}
    for row in zip(*(rows.column(field.name).to_pylist() for field in SCHEMA), strict=True):
        number, line, checksum, count, first, last, closed, stamped, trouble = row
        if trouble is not None:
            raise CannotTell(trouble)
        span = job.spans[number]
        known = lines.get((number, line))
        if known is None:
            known = lines[number, line] = Line(span.side, job.plans[span.topic].name, span.partition, line)
        yield Chunk(known, checksum % (1 << 64), count, first, last, closed, stamped)
