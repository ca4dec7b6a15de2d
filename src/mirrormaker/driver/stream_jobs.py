"""The Spark jobs that run the streams of one flow; normally the first one lasts as long as the mirror."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.errors import SparkGone
from mirrormaker.events import event
from mirrormaker.events.process_events import JobEnded
from mirrormaker.spark import job
from mirrormaker.spark.jvm import first_line
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.worker.stream_task import StreamTask

_NUMBERS = itertools.count(1)  # of jobs, also across flows: a newer job's streams replace an older one's
_PAUSE = 1.0  # seconds before another job, or another attempt to start Spark


class StreamJobs:
    """Starts a job, and another whenever one ends early."""

    def __init__(
        self,
        spark: Callable[[], Awaitable[job.Spark]],
        task: Callable[[], StreamTask],
        scheduler: Scheduler,
        report: event.Report,
    ) -> None:
        """`spark` returns the running SparkContext, or a new one if it has died; `task` describes the streams."""
        self._spark, self._task, self._scheduler, self._report = spark, task, scheduler, report
        self._running: asyncio.Future[None] | None = None

    async def run(self, is_stopping: Callable[[], bool]) -> None:
        """Keep a job running until the flow stops."""
        while not is_stopping():
            try:
                spark = await self._spark()
            except Exception as error:
                # A first start that fails needs somebody's help. A later one may have been killed in its turn.
                if isinstance(error, SparkGone) or not self._scheduler.has_seen_streams:
                    raise
                self._report(JobEnded(first_line(error)))
                await asyncio.sleep(_PAUSE)
                continue
            task = replace(self._task(), job=next(_NUMBERS))
            self._running = run_in_thread(partial(job.run, spark, task, self._scheduler.streams))
            try:
                await asyncio.shield(self._running)
            except Exception as error:
                if not is_stopping():
                    self._report(JobEnded(first_line(error)))
                    await asyncio.sleep(_PAUSE)

    async def wait(self, seconds: float) -> None:
        """Wait until the running job has ended, but not for longer than `seconds`."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=seconds)
