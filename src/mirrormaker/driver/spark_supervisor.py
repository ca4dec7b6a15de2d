"""Spark as the driver needs it: a JVM to match topic names, a SparkContext to run streams, and another one when either has died."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from mirrormaker.errors import SparkError, SparkGone
from mirrormaker.events import event
from mirrormaker.events.process_events import JvmDied, PackingLibraries, SessionStopped
from mirrormaker.model.topic_filter import Filter, Matcher, is_plain, python_matcher
from mirrormaker.spark.existing_session import ExistingSession
from mirrormaker.spark.java_regex import java_matcher
from mirrormaker.spark.job import Spark
from mirrormaker.spark.jvm import first_line
from mirrormaker.spark.session import Engine
from mirrormaker.wire.transport.threads import run_in_thread


class SparkSupervisor:
    """Starts Spark once, and again after its JVM has died."""

    def __init__(self, engine: Engine | ExistingSession, log: Path, filter: Filter, report: event.Report) -> None:
        self._engine, self._log, self._filter, self._report = engine, log, filter, report
        self._jvm: asyncio.Future[Any] | None = None
        self._context: asyncio.Future[SparkContext] | None = None
        self._matcher: Matcher | None = None

    async def matcher(self) -> Matcher:
        """Return Java's matcher for topic names, or Python's if the pattern is so plain that it makes no difference."""
        if is_plain(self._filter.pattern):
            return python_matcher(self._filter.pattern)
        await self._ensure_jvm()
        assert self._matcher is not None
        return self._matcher

    async def running(self) -> Spark:
        """Return the SparkContext; start one if there is none, or if its JVM has died; raise SparkGone if that cannot be."""
        await self._ensure_jvm()
        if self._context is not None and self._context.done() and await run_in_thread(self._engine.is_stopped):
            # Someone has stopped the SparkContext, or a cluster manager has ended the application.
            self._report(SessionStopped())
            self._context = None
        if self._context is None:
            if self._engine.packs_libraries:
                self._report(PackingLibraries())
            self._context = run_in_thread(self._engine.start_context)
        try:
            return Spark(await asyncio.shield(self._context), self._engine.tag)
        except SparkGone:
            raise
        except Exception as error:
            self._context = None
            raise SparkError(f"Spark did not start: {first_line(error)} (its log: {self._log})") from error

    def end(self) -> None:
        """End Spark."""
        self._engine.end()

    async def _ensure_jvm(self) -> None:
        if self._jvm is None or (self._jvm.done() and not self._engine.is_alive):
            if self._jvm is not None and self._engine.restarts:
                self._report(JvmDied())
            self._context, self._matcher = None, None
            self._jvm = run_in_thread(self._engine.start_jvm)
        jvm = await asyncio.shield(self._jvm)
        if self._matcher is None:
            # PySpark loads pandas before the first call to the JVM.
            self._matcher = await run_in_thread(lambda: java_matcher(jvm, self._filter.pattern))
