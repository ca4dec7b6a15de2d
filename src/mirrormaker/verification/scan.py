"""The first Spark job: read every record of both sides once, and return chunks with checksums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from mirrormaker.errors import CannotTell, ClusterError
from mirrormaker.verification.chunks import Chunk, Chunker, Series, join_chunks
from mirrormaker.verification.spans import ArrowTask, Span, TaskInput, balance, read_span

_MIN_BITS = 10  # a chunk has about a thousand records
_MAX_CHUNKS = 1 << 18  # of one side in the driver's memory, with 400 bytes each; more records make larger chunks

_COLUMNS = (
    "span int, selector long, checksum long, records long, first long, last long, closed boolean, broker_stamped long,"
    " error string"
)
_SCHEMA = pa.schema(
    [
        pa.field("span", pa.int32()),
        pa.field("selector", pa.int64()),
        pa.field("checksum", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("closed", pa.bool_()),
        pa.field("broker_stamped", pa.int64()),
        pa.field("error", pa.string()),
    ]
)


def scan(spark: SparkSession, task: TaskInput, cores: int) -> list[Chunk]:
    """Return the chunks of all spans. Raise CannotTell if a log cannot be read."""
    if not task.spans:
        return []
    spans, tasks = balance(task.spans, cores)
    task = replace(task, spans=tuple(spans))
    rows = spark.range(0, len(spans), 1, tasks).mapInArrow(_task(task), _COLUMNS).toArrow()
    return list(join_chunks(_chunks(task, rows)))


def _task(task: TaskInput) -> ArrowTask:
    records = sum(plan.size for plan in task.plans) // 2
    bits = max(_MIN_BITS, (records // _MAX_CHUNKS).bit_length())

    def scan_spans(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _scan_span(task, number, task.spans[number], bits)

    return scan_spans


def _scan_span(task: TaskInput, number: int, span: Span, bits: int) -> pa.RecordBatch:
    """Return a row for each chunk of a span, or one row that says why it cannot be read."""
    chunker = Chunker(span.side, task.plans[span.plan].name, span.partition, bits)
    chunks: list[Chunk] = []
    try:
        with task.open_log(span.side) as log:
            for part in read_span(task, span, log):
                chunks += chunker.add(part.hashes, part.selectors, part.log.records.offsets, part.log.broker_stamped)
    except ClusterError as error:
        return _batch([(number, 0, 0, 0, 0, 0, False, 0, str(error))])
    return _batch(
        [
            (
                number,
                c.series.selector,
                _signed(c.checksum),
                c.records,
                c.first,
                c.last,
                c.closed,
                c.broker_stamped,
                None,
            )
            for c in (*chunks, *chunker.open_chunks())
        ]
    )


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(_SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _signed(number: int) -> int:
    """Return a 64-bit checksum as Spark's long."""
    return number - (1 << 64) if number >> 63 else number


def _chunks(task: TaskInput, rows: pa.Table) -> Iterator[Chunk]:
    known: dict[tuple[int, int], Series] = {}
    for row in zip(*(rows.column(field.name).to_pylist() for field in _SCHEMA), strict=True):
        number, selector, checksum, records, first, last, closed, broker_stamped, error = row
        if error is not None:
            raise CannotTell(error)
        series = known.get((number, selector))
        if series is None:
            span = task.spans[number]
            series = Series(span.side, task.plans[span.plan].name, span.partition, selector)
            known[number, selector] = series
        yield Chunk(series, checksum % (1 << 64), records, first, last, closed, broker_stamped)
