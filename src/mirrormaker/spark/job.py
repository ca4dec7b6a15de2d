"""The Spark job that copies: positions -> stream -> positions.

One Arrow batch per stream becomes one task; inside it the stream runs for as long as the epoch does. Payload never leaves the
worker: what flows through the DataFrame is where each partition stood, and where it stands in the end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from mirrormaker.model.position import Position
from mirrormaker.worker.stream_task import StreamTask

POSITIONS = pa.schema(
    [
        pa.field("stream", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
    ]
)


def run(spark: SparkSession, work: StreamTask, shares: Sequence[Sequence[Position]]) -> pa.Table:
    """Start one stream per share and wait until all of them have ended."""
    positions = spark.createDataFrame(pa.Table.from_batches([_rows(n, share) for n, share in enumerate(shares)]))
    copied = positions.mapInArrow(stream_of(work), positions.schema)
    return copied.toArrow()


def stream_of(work: StreamTask):  # type: ignore[no-untyped-def]  # mapInArrow takes any callable
    """The function that Spark runs in each task: one stream."""

    def stream(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from mirrormaker.worker.stream import run as run_stream

        (rows,) = batches
        number = rows.column("stream")[0].as_py()
        task = TaskContext.get()
        assert task is not None
        gc.collect()
        gc.freeze()  # Spark collects garbage after every task; what is loaded by now is not worth looking at again
        gc.set_threshold(100_000, 50, 100)  # batches come and go by the thousand and form no cycles: 4 % of the CPU
        yield _rows(number, run_stream(work, number, task.taskAttemptId()))

    return stream


def _rows(number: int, positions: Sequence[Position]) -> pa.RecordBatch:
    """A stream without partitions still needs a row, or Spark would not start it."""
    rows: list[tuple[Any, ...]] = [(number, p.topic, p.partition, p.offset) for p in positions] or [
        (number, None, None, None)
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), POSITIONS, strict=True)],
        schema=POSITIONS,
    )
