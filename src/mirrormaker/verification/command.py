"""`verify`: one comparison, in a Spark of its own or in an existing session."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrormaker.errors import OUTAGE, CannotTell, ClusterError, SettingError, describe
from mirrormaker.model.topic_filter import Filter, is_plain, python_matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.properties import PropertiesLike, load
from mirrormaker.spark import class_archive
from mirrormaker.spark.java_regex import java_matcher
from mirrormaker.spark.jvm import first_line
from mirrormaker.spark.session import Engine
from mirrormaker.status.figures import duration
from mirrormaker.verification.comparison import Comparison
from mirrormaker.verification.plan import Time, Window
from mirrormaker.verification.survey import Survey
from mirrormaker.verification.verdict import Verdict

Progress = Callable[[str], None]

# Settings of a session that both kinds of comparisons need. Only tables that are known to be small are broadcast.
_SESSION_SETTINGS = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
# The mirror's Spark never gives up. A comparison that fails should end instead.
_SPARK_SETTINGS = {
    **_SESSION_SETTINGS,
    "spark.task.maxFailures": "4",
    "spark.network.timeout": "120s",
    "spark.executor.heartbeatInterval": "10s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "120s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.executor.memory": "1g",
    "spark.sql.execution.arrow.localRelationThreshold": "48MB",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.adaptive.enabled": "false",
    # Few small plans, each of which runs once: compiling them would take longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_STREAMS = 64  # half of the cores that are requested from a Spark cluster at most
_HEAP = "-Xmx1g"
_JOB_GROUP = "mirrormaker verify"
_JOB_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_PROGRESS_INTERVAL = 2.0  # seconds


@dataclass(frozen=True)
class SparkOptions:
    """How to start a Spark for one comparison."""

    master: str | None = None  # default: all cores of this machine
    settings: Sequence[tuple[str, str]] = ()
    log_file: str | None = None  # default: a temporary file


def verify(
    sources: SourceSettings | PropertiesLike | Sequence[SourceSettings | PropertiesLike],
    target: TargetSettings | PropertiesLike,
    *,
    whitelist: str | None = None,
    blacklist: str | None = None,
    topics: str | Sequence[str] = (),
    since: Time | None = None,
    until: Time | None = None,
    allow_other_writers: bool = False,
    spark: SparkSession | SparkOptions | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Compare the records of source and target: key, value, headers, timestamp and order.

    `sources` and `target` are the property files that the mirror runs with, or their content as mappings. `whitelist`
    or `blacklist` is the mirror's filter; without one, the filter in the sources' files counts. `topics` takes only
    some of the filter's topics; without any filter, it names them. `since` and `until` take only records with
    timestamps between them. `allow_other_writers`: records on the target that the mirror did not write are no
    difference.

    `spark` is a session whose workers have this package: it is neither configured nor stopped. Without one, a Spark is
    started and ended. `progress` is called with a line of text every two seconds; without it, nothing is reported.

    Raise SettingError for a mistake in the arguments, CannotTell if something keeps both sides from being compared.
    """
    source_list = [sources] if isinstance(sources, SourceSettings | str | PathLike | Mapping) else list(sources)
    source_values = [_source(settings) for settings in source_list]
    target_value = target if isinstance(target, TargetSettings) else target_settings(load(target, "target settings"))
    names = [topics] if isinstance(topics, str) else list(topics)
    topic_filter = _topic_filter(whitelist, blacklist, names, source_values)
    window = Window.of(since, until)

    def compare() -> Verdict:
        survey = Survey(source_values, target_value, window)
        try:
            with _engine(spark) as engine:
                survey.run(survey.connect())
                jvm = engine.start_jvm()
                pattern = topic_filter.pattern
                matcher = python_matcher(pattern) if is_plain(pattern) else java_matcher(jvm, pattern)
                chosen = survey.names(topic_filter, matcher, names)
                session = engine.start_session()
                with _report_progress(session.sparkContext, progress):
                    return Comparison(session, survey, allow_other_writers).run(chosen)
        except (ClusterError, *OUTAGE) as error:
            raise CannotTell(describe(error)) from error
        except (Py4JError, PySparkException) as error:
            raise CannotTell(f"Spark has failed: {first_line(error)}") from error
        finally:
            survey.close()

    return _outside_event_loop(compare)


def _source(settings: SourceSettings | PropertiesLike) -> SourceSettings:
    return settings if isinstance(settings, SourceSettings) else source_settings(load(settings, "source settings"))


def _topic_filter(
    whitelist: str | None, blacklist: str | None, topics: Sequence[str], sources: Sequence[SourceSettings]
) -> Filter:
    if whitelist is not None and blacklist is not None:
        raise SettingError("whitelist and blacklist contradict each other: give one of them")
    if whitelist is not None or blacklist is not None:
        return Filter.of(whitelist, blacklist)
    filters = {(source.include, source.exclude) for source in sources}
    if len(filters) == 1 and any(next(iter(filters))):
        return Filter.of(*next(iter(filters)))
    if topics:
        return Filter.of(".*", None)
    raise SettingError("it is not clear which topics to compare: give a whitelist, a blacklist, or topics")


def _outside_event_loop(function: Callable[[], Verdict]) -> Verdict:
    """Call a function that runs event loops of its own. In a notebook one runs already, so it gets another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return function()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function).result()


# -- Spark


class _ExistingSpark:
    """The caller's Spark session, in the shape of an `Engine`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def start_jvm(self) -> Any:
        """Return the session's JVM."""
        return self._session.sparkContext._jvm

    def start_session(self) -> SparkSession:
        """Return a new session of the same Spark application, so that the caller's settings stay as they are."""
        session = self._session.newSession()
        for key, value in _SESSION_SETTINGS.items():
            session.conf.set(key, value)
        return session

    def end(self) -> None:
        """Make the caller's session the active one again, as every call of `createDataFrame` does."""
        self._session.createDataFrame([], "nothing int")


@contextlib.contextmanager
def _engine(spark: SparkSession | SparkOptions | None) -> Iterator[Engine | _ExistingSpark]:
    """Yield a Spark that is ready to start, or the existing one; end what was started."""
    engine: Engine | _ExistingSpark
    directory: Path | None = None
    if spark is None or isinstance(spark, SparkOptions):
        context: Any = SparkContext
        if context._active_spark_context is not None:
            raise SettingError("this process has a Spark session already: pass it as spark=")
        directory = Path(tempfile.mkdtemp(prefix="mirrormaker-"))
        engine = _new_engine(spark or SparkOptions(), directory)
    else:
        engine = _ExistingSpark(spark)
    try:
        yield engine
    finally:
        engine.end()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)


def _new_engine(options: SparkOptions, directory: Path) -> Engine:
    default_master = None if "PYSPARK_GATEWAY_PORT" in os.environ else f"local[{os.cpu_count() or 1},4]"
    return Engine(
        options.master or default_master,
        {**_SPARK_SETTINGS, **dict(options.settings)}.items(),
        _STREAMS,
        directory,
        Path(options.log_file).absolute() if options.log_file else directory / "spark.log",
        [*class_archive.options(with_sql=True), _HEAP],
    )


@contextlib.contextmanager
def _report_progress(context: SparkContext, progress: Progress | None) -> Iterator[None]:
    """Call `progress` every two seconds with what the jobs of this thread have done."""
    if progress is None:
        yield
        return
    report = progress
    before = {key: context.getLocalProperty(key) for key in _JOB_GROUP_PROPERTIES}
    context.setJobGroup(_JOB_GROUP, "comparing source and target")
    done = threading.Event()

    def watch() -> None:
        started = time.monotonic()
        tracker = context.statusTracker()
        while not done.wait(_PROGRESS_INTERVAL):
            try:
                line = _progress_line(tracker, time.monotonic() - started)
            except Exception:
                # The JVM may end while it is asked, which py4j reports in many ways.
                continue
            if line:
                report(f"{time.strftime('%H:%M:%S')} {line}")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(Py4JError, OSError):
            for key, value in before.items():
                context.setLocalProperty(key, value)


def _progress_line(tracker: StatusTracker, seconds: float) -> str:
    """Return how far the running job is; empty if none runs."""
    jobs = tracker.getJobIdsForGroup(_JOB_GROUP)
    for number in jobs:
        job = tracker.getJobInfo(number)
        if job is None or job.status != "RUNNING":
            continue
        stages = [stage for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
        total, finished = sum(s.numTasks for s in stages), sum(s.numCompletedTasks for s in stages)
        if not total or finished == total:
            continue
        # The first job reads everything. Later jobs compare records, and nobody knows how many of them will come.
        if len(jobs) > 1:
            return f"comparing record by record: {finished} of {total} parts"
        left = f", {duration(seconds * (total - finished) / finished)} left" if finished else ""
        return f"reading both sides: {finished} of {total} parts{left}"
    return ""
