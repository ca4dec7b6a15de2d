"""One comparison with a Spark of its own, from the first look to the end of its JVM."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from mirrormaker.console.display import duration
from mirrormaker.errors import OUTAGE, CannotTell, ClusterError, describe
from mirrormaker.model.topic_filter import Filter, is_plain, python_matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.spark import class_archive
from mirrormaker.spark.java_regex import java_matcher
from mirrormaker.spark.session import Engine
from mirrormaker.verification.comparison import Comparison
from mirrormaker.verification.plan import Window
from mirrormaker.verification.survey import Survey
from mirrormaker.verification.verdict import Verdict

# A mirror's Spark never gives up; a comparison that fails should say so.
_SETTINGS = {
    "spark.task.maxFailures": "4",
    "spark.network.timeout": "120s",
    "spark.executor.heartbeatInterval": "10s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "120s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.executor.memory": "1g",
    "spark.sql.execution.arrow.localRelationThreshold": "48MB",
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # only what is known to be small
}
_STREAMS = 64  # half of the cores of a cluster that are asked for at most
_HEAP = "-Xmx1g"
_GROUP = "mirrormaker verify"
_EVERY = 2.0  # seconds between lines of progress


def verify(
    sources: Sequence[SourceSettings],
    target: TargetSettings,
    *,
    include: str | None,
    exclude: str | None,
    only: Sequence[str],
    window: Window,
    other_writers: bool,
    spark: tuple[str | None, Sequence[tuple[str, str]], str | None],
) -> Verdict:
    """`spark` is its master, further settings, and a file for its log."""
    master, extra, log = spark
    chosen = Filter.of(include, exclude)
    directory = Path(tempfile.mkdtemp(prefix="mirrormaker-"))
    cores = os.cpu_count() or 1
    engine = Engine(
        master or (None if "PYSPARK_GATEWAY_PORT" in os.environ else f"local[{cores},4]"),
        {**_SETTINGS, **dict(extra)}.items(),
        _STREAMS,
        directory,
        Path(log).absolute() if log else directory / "spark.log",
        [*class_archive.options(), _HEAP],
    )
    look = Survey(sources, target, window)
    try:
        look.run(look.connect())
        java = engine.start_jvm()
        judge = python_matcher(chosen.pattern) if is_plain(chosen.pattern) else java_matcher(java, chosen.pattern)
        names = look.names(chosen, judge, only)
        session = engine.start_session()
        with _progress(session):
            return Comparison(session, look, other_writers).run(names)
    except CannotTell:
        raise
    except (ClusterError, *OUTAGE) as error:
        raise CannotTell(describe(error)) from error
    except Exception as error:
        if type(error).__module__.startswith(("py4j", "pyspark")):
            raise CannotTell(f"Spark has failed: {str(error).strip().splitlines()[0][:300]}") from error
        raise
    finally:
        look.close()
        engine.end()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _progress(session: SparkSession) -> Iterator[None]:
    """A line on stderr every few seconds: how much is read, and how long it will take."""
    context = session.sparkContext
    context.setJobGroup(_GROUP, "comparing source and target")
    done = threading.Event()

    def show() -> None:
        started = time.monotonic()
        tracker = context.statusTracker()
        while not done.wait(_EVERY):
            with contextlib.suppress(Exception):  # the JVM ends while we ask
                for text in _stages(tracker, time.monotonic() - started):
                    print(text, file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _stages(tracker: object, seconds: float) -> list[str]:
    """Of the stage that is at work now."""
    ask: object = tracker
    jobs = ask.getJobIdsForGroup(_GROUP)  # type: ignore[attr-defined]
    for number in jobs:
        job = ask.getJobInfo(number)  # type: ignore[attr-defined]
        if job is None or job.status != "RUNNING":
            continue
        stages = [ask.getStageInfo(stage) for stage in job.stageIds]  # type: ignore[attr-defined]
        known = [stage for stage in stages if stage is not None]
        total, finished = sum(s.numTasks for s in known), sum(s.numCompletedTasks for s in known)
        if not total or finished == total:
            continue
        what = "reading both sides" if len(jobs) == 1 else "looking closer"
        left = f", {duration(seconds * (total - finished) / finished)} left" if finished and len(jobs) == 1 else ""
        return [f"{time.strftime('%H:%M:%S')} {what}: {finished} of {total} parts{left}"]
    return []
