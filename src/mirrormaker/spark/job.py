"""The Spark job that mirrors: positions -> stream -> positions.

One Arrow batch per stream becomes one task, and the stream runs in that task for as long as the job lasts. Records
never leave the executor. The DataFrame carries only where each partition stood when the job began, and where it stands
at the end.
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


def run(spark: SparkSession, task: StreamTask, shares: Sequence[Sequence[Position]]) -> pa.Table:
    """Start one stream per share, wait until all of them have ended, and return their last positions."""
    positions = _data_frame(spark, pa.Table.from_batches([_rows(n, share) for n, share in enumerate(shares)]))
    copied = positions.mapInArrow(stream_of(task), positions.schema)
    return copied.toArrow()


def _data_frame(spark: SparkSession, table: pa.Table) -> Any:
    """Return the table as a DataFrame, and leave the process's active session as it is.

    PySpark would make `spark` the active one for all threads, also where the rest of the program works with another.
    """
    sessions: Any = SparkSession
    active = sessions._activeSession
    try:
        return spark.createDataFrame(table)
    finally:
        sessions._activeSession = active


def stream_of(task: StreamTask):  # type: ignore[no-untyped-def]  # mapInArrow takes any callable
    """Return the function that Spark runs in each task: one stream."""

    def stream(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from mirrormaker.worker.stream import run as run_stream

        (rows,) = batches
        number = rows.column("stream")[0].as_py()
        context = TaskContext.get()
        assert context is not None
        # Spark collects garbage after every task: what is loaded by now need not be looked at again.
        gc.collect()
        gc.freeze()
        # Batches come and go by the thousand and form no cycles. The usual thresholds would cost 4 % of the CPU.
        gc.set_threshold(100_000, 50, 100)
        yield _rows(number, run_stream(task, number, context.taskAttemptId()))

    return stream


def _rows(number: int, positions: Sequence[Position]) -> pa.RecordBatch:
    """Return a stream's positions as rows; without any, one empty row, because Spark starts no task without rows."""
    rows: list[tuple[Any, ...]] = [(number, p.topic, p.partition, p.offset) for p in positions] or [
        (number, None, None, None)
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, f.type) for column, f in zip(zip(*rows, strict=True), POSITIONS, strict=True)],
        schema=POSITIONS,
    )
