"""The public functions and classes: `import mirrormaker` offers them by name.

Importing this module loads neither PySpark nor the engine; each call imports what it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mirrormaker.errors import MirrorError
from mirrormaker.model.offset_translation import Translation
from mirrormaker.verification.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrormaker.console.log_display import LogDisplay
    from mirrormaker.driver.process import MirrorDriver
    from mirrormaker.settings.clients import SourceSettings, TargetSettings
    from mirrormaker.settings.options import RunOptions

# A property file's path, or its content.
Settings = str | PathLike[str] | Mapping[str, str]
Time = int | datetime  # milliseconds since 1970, or the same as Python has it
MessageHandler = Callable[[Any], Any]

_ANSWER_WITHIN = 10.0  # seconds for the mirror's thread to answer a question


@dataclass(frozen=True)
class MirrorStatus:
    """A mirror at one moment."""

    running: bool
    records: int
    bytes: int
    lag: int
    partitions: int
    flowing: int
    waiting: int
    stopped: int
    lag_unknown: int = 0
    streams_at_work: int = 0

    @property
    def caught_up(self) -> bool:
        """True if every partition flows, or did until the mirror ended, and the source says that nothing is left to copy."""
        is_all_known = self.partitions > 0 and self.stopped == self.lag_unknown == 0
        return is_all_known and self.lag == 0 and (self.flowing == self.partitions or not self.running)


class Mirror:
    """A running mirror. Use it as a context manager: leaving the block stops the mirror in good order."""

    def __init__(
        self,
        options: RunOptions,
        sources: list[SourceSettings],
        target: TargetSettings,
        spark: SparkSession | None,
    ) -> None:
        """Start mirroring in a thread of its own. Call `mirrormaker.mirror` instead."""
        self._configuration = (options, sources, target, spark)
        self._driver: MirrorDriver | None = None
        self._display: LogDisplay | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Future[int] = Future()
        self._started = threading.Event()
        self._last: MirrorStatus | None = None
        self._thread = threading.Thread(target=self._run, name="mirrormaker", daemon=True)
        self._thread.start()
        self._started.wait()

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """True until the mirror has ended."""
        return not self._ended.done()

    def status(self) -> MirrorStatus:
        """Return the mirror's totals now, or those at its end."""
        if self._last is None and self._loop is not None and self.running:
            # RuntimeError and CancelledError: the mirror ends just now.
            with contextlib.suppress(TimeoutError, FutureCancelled, RuntimeError):
                return asyncio.run_coroutine_threadsafe(self._ask(), self._loop).result(_ANSWER_WITHIN)
        return self._last or MirrorStatus(self.running, 0, 0, 0, 0, 0, 0, 0)

    def wait(self, timeout: float | None = None) -> MirrorStatus:
        """Wait until the mirror has ended, and return its last status. Raise its error, or TimeoutError."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the mirror still runs after {timeout:g} s")
        code = self._ended.result()
        if code != 0:
            reasons = self._display.complaints if self._display is not None else []
            raise MirrorError("; ".join(reasons) or f"the mirror ended with exit code {code}")
        return self.status()

    def stop(self) -> None:
        """End the mirror in good order, and wait for it: answers in, positions committed, group left."""
        loop, driver = self._loop, self._driver
        if loop is not None and driver is not None and self.running:
            with contextlib.suppress(RuntimeError):  # it ends just now
                loop.call_soon_threadsafe(driver.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            code = asyncio.run(self._mirror())
        except BaseException as error:
            self._started.set()
            self._ended.set_exception(error)
        else:
            self._ended.set_result(code)

    async def _mirror(self) -> int:
        from mirrormaker.console.log_display import LogDisplay
        from mirrormaker.driver.process import MirrorDriver

        options, sources, target, spark = self._configuration
        self._loop = asyncio.get_running_loop()
        self._display = LogDisplay()
        self._driver = MirrorDriver(options, sources, target, display=self._display, spark=spark)
        self._started.set()
        try:
            return await self._driver.run(handle_signals=False)
        finally:
            self._last = replace(self._status_now(), running=False)

    async def _ask(self) -> MirrorStatus:
        return self._status_now()

    def _status_now(self) -> MirrorStatus:
        assert self._driver is not None
        totals = self._driver.totals()
        return MirrorStatus(
            True,
            totals.records,
            totals.bytes,
            totals.lag,
            totals.partitions,
            totals.flowing,
            totals.waiting,
            totals.stopped,
            totals.lag_unknown,
            totals.streams_at_work,
        )


def mirror(
    source: Settings | Sequence[Settings],
    target: Settings,
    topics: str | Sequence[str],
    *,
    spark: SparkSession | None = None,
    streams: int = 2,
    until_caught_up: bool = False,
    handler: str | MessageHandler | None = None,
    options: Mapping[str, str | bool] | None = None,
) -> Mirror:
    """Start to mirror topics from one or several sources to the target, and return at once.

    `source` and `target` are settings as in `--consumer.config` and `--producer.config`: a file's path, or a mapping. `topics` is
    a regular expression, or a list of names. The streams run in `spark`, or else in the program's active session: neither is
    configured nor stopped. Without a session, Spark is started, and ended with the mirror. With `until_caught_up` the mirror ends
    when everything is copied that was there at its start. `handler` is a message handler: a function, or `"package.module:name"`.
    `options` are further options of `mirrormaker run` by their names; flags take True:
    `{"abort.on.send.failure": "false", "accept.new.target": True}`.
    """
    from mirrormaker.settings.call_arguments import run_settings

    run_options, sources, target_settings = run_settings(
        source, target, topics, streams, until_caught_up, handler, options or {}
    )
    return Mirror(run_options, sources, target_settings, spark or _active_session())


def verify(
    source: Settings | Sequence[Settings],
    target: Settings,
    topics: str | Sequence[str],
    *,
    spark: SparkSession | None = None,
    since: Time | None = None,
    until: Time | None = None,
) -> Verdict:
    """Compare source and target by content, as a Spark job; a mirror may run meanwhile.

    Arguments are those of `mirror`; `since` and `until` limit the comparison to records of that time.
    """
    from mirrormaker.settings.call_arguments import many, pattern
    from mirrormaker.verification.command import verify

    return verify(
        many(source), target, whitelist=pattern(topics), since=since, until=until, spark=spark or _active_session()
    )


def read(
    spark: SparkSession,
    settings: Settings,
    topics: str | Sequence[str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> DataFrame:
    """Return the records that topics hold now as a DataFrame.

    Columns: topic, partition, offset, timestamp, key, value, headers and producer_id. `settings` are those of either cluster: a
    file's path, or a mapping. This call fixes the range of offsets, so the DataFrame shows the same records however often it is
    used, unless retention removes some. `isolation.level=read_committed` leaves out aborted transactions.
    """
    from mirrormaker.reading import read

    return read(spark, settings, topics, since=since, until=until)


def translate(
    source: Settings,
    target: Settings,
    topic: str,
    offsets: Mapping[int, int] | Iterable[tuple[int, int]] | None = None,
    *,
    group: str | None = None,
    back: bool = False,
    source_id: str = "",
) -> list[Translation]:
    """Return where offsets of a source topic are on the target; with `back`, where offsets of the target are on the source.

    `offsets` are partitions and offsets. With `group` they are those that the consumer group has committed: on the source, or
    with `back` on the target. The offset map on the target answers; the source may be gone. `source_id` is the id of its
    cluster, needed if it does not answer and the target has maps of several clusters that have the topic.
    """
    from mirrormaker.reading import translate

    return translate(source, target, topic, offsets, group, back, source_id)


def offset_map(
    spark: SparkSession, source: Settings, target: Settings, topics: str | Sequence[str], *, source_id: str = ""
) -> DataFrame:
    """Return the offset map of source topics as a DataFrame: a row for each run of records, consecutive on both sides.

    Columns: topic, partition and offset of the run's first record, to_topic, to_partition and to_offset of the same record on the
    target, records, and unknown_before: so many records between the run before and this one have unknown places. `source_id` is
    as in `translate`.
    """
    from mirrormaker.reading import read_offset_map

    return read_offset_map(spark, source, target, topics, source_id)


def _active_session() -> SparkSession | None:
    """Return the Spark session that this program works with: a process can have one SparkContext only."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()
