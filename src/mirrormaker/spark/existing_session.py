"""A Spark session that someone else has started, as a place for our jobs."""

from __future__ import annotations

import uuid
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mirrormaker.errors import SparkError, SparkGone
from mirrormaker.spark import shipping


class ExistingSession:
    """A Spark session that someone else has started: jobs run on it, but it is neither configured nor stopped.

    The settings of its SparkContext stay as they are, and some make a difference:

    - `spark.task.maxFailures` (in `local[N,F]` it is F, in `local[N]` 1): a stream that fails more often fails the job.
      The mirror then starts another job. Nothing is lost or sent twice, but all streams pause for some seconds.
    - The number of slots: a stream without a free slot does not run, and every stream keeps its slot while it runs.
    - Network timeouts and heartbeats: Spark replaces a lost executor later. Until then other streams take over.
    - `spark.speculation`: a copy of a stream replaces the first one, which costs time, but no records.
    - `spark.python.daemon.module`: without ours, a stream takes seconds longer to start.
    - `PYSPARK_PYTHON`: in a local session, the Python workers must find this package and its libraries by themselves.
    """

    restarts = False  # only the owner can

    def __init__(self, session: SparkSession) -> None:
        """Take a session whose SparkContext is in this process."""
        if getattr(session, "_jsparkSession", None) is None:
            raise SparkError("this is a Spark Connect session; mirroring needs one with a SparkContext in this process")
        self._context: Any = session.sparkContext
        self.tag = f"mirrormaker-{uuid.uuid4()}"  # the owner may run several mirrors
        self.master: str = self._context.master
        self.is_local = self.master.startswith("local")
        self.given: dict[str, str] = dict(self._context.getConf().getAll())
        self.packs_libraries = False

    @property
    def is_alive(self) -> bool:
        """Return True until the owner stops the session, or its JVM dies."""
        context = self._context._jsc
        try:
            return context is not None and not context.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def start_jvm(self) -> Any:
        """Return the session's JVM."""
        if not self.is_alive:
            raise SparkGone("the Spark session was stopped; start another one, and mirror with that")
        return self._context._jvm

    def is_stopped(self) -> bool:
        """Return True if the owner has stopped the session."""
        return not self.is_alive

    def start_context(self) -> SparkContext:
        """Return the owner's SparkContext."""
        self.start_jvm()
        if not self.is_local:
            shipping.add_to(self._context)
        context: SparkContext = self._context
        return context

    def end(self) -> None:
        """Cancel our jobs that still run; those of the owner go on."""
        if self.is_alive:
            self._context.cancelJobsWithTag(self.tag)
