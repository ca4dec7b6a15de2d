"""The Spark job that mirrors: one task for each stream, which runs for as long as the job lasts.

Records never leave the executor: nothing goes into a task but its settings, and nothing comes out of it. Positions travel
between driver and streams over the control connection.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark import SparkContext, TaskContext

from mirrormaker.worker.stream_task import StreamTask


class Spark(NamedTuple):
    """A running SparkContext, and the tag by which our jobs in it are cancelled."""

    context: SparkContext
    tag: str


def run(spark: Spark, task: StreamTask, streams: int) -> None:
    """Start so many streams, and wait until all of them have ended."""
    context = spark.context
    # Tags belong to the thread that runs the job.
    context.addJobTag(spark.tag)
    try:
        # An RDD, because a DataFrame would start Spark's SQL engine: that takes a second and a half.
        context.parallelize(range(streams), streams).mapPartitions(stream_of(task)).collect()
    finally:
        context.removeJobTag(spark.tag)


def stream_of(task: StreamTask) -> Any:
    """Return the function that Spark runs in each task: one stream."""

    def stream(numbers: Iterable[int]) -> Iterable[None]:
        from mirrormaker.worker.stream import run as run_stream

        (number,) = numbers
        context = TaskContext.get()
        assert context is not None
        # Spark collects garbage after every task: what is loaded by now need not be looked at again.
        gc.collect()
        gc.freeze()
        # Batches come and go by the thousand and form no cycles. The usual thresholds would cost 4 % of the CPU.
        gc.set_threshold(100_000, 50, 100)
        run_stream(task, number, context.taskAttemptId())
        return ()

    return stream
