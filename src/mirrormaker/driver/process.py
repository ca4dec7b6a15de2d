"""The whole process of `mirrormaker run`: flows, control server, Spark, status page, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import time
import traceback
from collections.abc import Coroutine
from typing import Any

from pyspark.sql import SparkSession

from mirrormaker.console.display import Display
from mirrormaker.console.log_display import LogDisplay
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.flow import Flow, Wiring
from mirrormaker.driver.instance_ids import InstanceIds
from mirrormaker.driver.loop_watch import LoopWatch
from mirrormaker.driver.observer import Earlier, ObservedSource, Rows, take_snapshot
from mirrormaker.driver.spark_supervisor import SparkSupervisor
from mirrormaker.driver.summary import guarantee, name_of, opening_lines
from mirrormaker.errors import OUTAGE, ClusterError, MirrorError, describe_any
from mirrormaker.events.process_events import (
    Finished,
    HelperFailed,
    LostInTotal,
    SourceBack,
    SourceFailed,
    StoppedInTotal,
    Stopping,
    UndeliveredInFile,
    WaitingForSpark,
)
from mirrormaker.kafka_errors import Scope
from mirrormaker.model.topic_filter import Filter
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.spark.archive_process import build_archive_later
from mirrormaker.spark.existing_session import ExistingSession
from mirrormaker.spark.job import Spark
from mirrormaker.spark.session import Engine, new_directory, new_engine
from mirrormaker.status.counts import Counts
from mirrormaker.status.documents import Status
from mirrormaker.status.figures import SnapshotSums, Totals, duration
from mirrormaker.status.http_server import StatusServer
from mirrormaker.status.snapshot import Snapshot
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.worker.handler import load_handler, load_listener

_RETRY_AFTER = 5.0  # seconds until a source that failed is tried again
_SUMMARY_WITHIN = 5.0  # seconds that the summary waits for slower sources


class MirrorDriver:
    """Everything that one `mirrormaker run` owns."""

    def __init__(
        self,
        options: RunOptions,
        sources: list[SourceSettings],
        target: TargetSettings,
        *,
        display: LogDisplay | None = None,
        spark: SparkSession | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`display` replaces the one on stderr. `spark` is used as it is; otherwise Spark is started, and ended.

        `engine` is one whose JVM is on its way up; its directory is removed in the end.
        """
        self.options, self.sources, self.target = options, sources, target
        self.filter = Filter.of(options.include, options.exclude)
        self._handler = load_handler(options.message_handler, options.handler_object)
        self._listener = load_listener(*options.rebalance_listener) if options.rebalance_listener else None
        self.flows: list[Flow] = []
        self._control = ControlServer()
        self._engine: Engine | ExistingSession
        if spark is None:
            streams = options.num_streams * len(sources)
            engine = engine or new_engine(options.spark_master, options.spark_conf, streams, options.log_file)
            self._engine, self._directory, self._log = engine, engine.directory, engine.log
        else:
            self._engine = ExistingSession(spark)
            self._directory, self._log = new_directory(options.log_file)
        self.display = display or Display(options.progress_interval, self.totals, as_json=options.log_format == "json")
        self._counts = [Counts() for _ in sources]  # they outlive flows
        self._instance_ids = InstanceIds(self.display.report)
        self._members: dict[int, str] = {}  # group instance id, by source
        self._troubles: dict[int, str] = {}  # why a source is not mirrored at the moment
        self._earlier: dict[int, Earlier] = {}  # what flows did that failed and were replaced, by source
        self._stopping = asyncio.Event()
        self._status: StatusServer | None = None
        self._loop_watch = LoopWatch()
        self._rows = Rows()
        self._sums = SnapshotSums()
        self._spark = SparkSupervisor(self._engine, self._log, self.filter, self.display.report)

    async def run(self, *, handle_signals: bool = True) -> int:
        """Mirror until stopped; return the exit code."""
        await self._control.open(*self._control_addresses())
        for name in (signal.SIGINT, signal.SIGTERM) if handle_signals else ():
            asyncio.get_running_loop().add_signal_handler(name, self._stop_by_signal, name)
        starting: asyncio.Future[Spark] | None = None
        try:
            self.flows = [self._new_flow(number) for number in range(len(self.sources))]
            # Spark takes seconds to start; Kafka is asked meanwhile.
            starting = asyncio.ensure_future(self._spark.running())
            starting.add_done_callback(lambda task: task.cancelled() or task.exception())
            await self._open_status()
            unreachable = await self._connect()
        except BaseException:
            if starting is not None:
                starting.cancel()
            self._spark.end()
            await self._close()
            raise
        runs = [asyncio.create_task(self._keep(number, unreachable.get(number))) for number in range(len(self.sources))]
        archive = build_archive_later(self._engine, self.display.report)
        watching = [
            self._beside("the display of the progress", self._show_progress()),
            self._beside("the watch over the event loop", self._loop_watch.run()),
            self._beside("the preparation of the archive", archive),
        ]
        failure: BaseException | None = None
        try:
            done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
            failure = next((t.exception() for t in done if t.exception()), None)
        finally:
            self.stop()
            await asyncio.gather(*runs, return_exceptions=True)
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
            starting.cancel()
            self.display.stop()
            await self._control.close()
            try:
                self._spark.end()
            finally:
                await self._close()
        return self._conclude(failure)

    def _beside(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that records do not need: if it dies, it is said, and they flow on."""
        task = asyncio.create_task(work)
        watch(task, lambda error: self.display.report(HelperFailed(name, describe_any(error))))
        return task

    def stop(self) -> None:
        """End all flows in good order."""
        self._stopping.set()
        for flow in self.flows:
            flow.stop()

    def _stop_by_signal(self, which: signal.Signals) -> None:
        self.display.report(Stopping(which.name))
        self.stop()

    async def _close(self) -> None:
        if self._status is not None:
            self._status.close()
        await self._control.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._instance_ids.release()

    # -- flows

    def _new_flow(self, number: int) -> Flow:
        settings = self.sources[number]
        if number not in self._members:
            self._members[number] = settings.instance_id or self._instance_ids.allocate(settings.group_id)
        wiring = Wiring(
            self.options,
            self.target,
            self.filter,
            self._spark.matcher,
            self._spark.running,
            self._control,
            self._log,
            self.display.report,
            self._listener,
        )
        flow = Flow(number, settings, wiring, self._members[number])
        flow.scheduler.counts = self._counts[number]
        self._control.register(number, flow.scheduler)
        if self._stopping.is_set():
            flow.stop()
        return flow

    async def _connect(self) -> dict[int, MirrorError]:
        """Reach all clusters; return the sources that cannot be reached, which must not keep the others waiting."""
        found = await asyncio.gather(*(flow.connect() for flow in self.flows), return_exceptions=True)
        failed = {number: error for number, error in enumerate(found) if error is not None}
        if len(failed) == len(self.flows) or any(not isinstance(error, ClusterError) for error in failed.values()):
            raise next(iter(failed.values()))
        return {number: error for number, error in failed.items() if isinstance(error, MirrorError)}

    async def _keep(self, number: int, failure: MirrorError | None) -> None:
        """Mirror one source for as long as the process runs; its failure does not end the others, and is tried again."""
        while True:
            if failure is None:
                failure = await self._run_flow(self.flows[number])
                if failure is None:
                    return
            if str(failure) != self._troubles.get(number):
                self._troubles[number] = str(failure)
                self.display.report(SourceFailed(str(failure), has_others=len(self.sources) > 1))
            if not isinstance(failure, ClusterError):
                return  # another attempt would not change it
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _RETRY_AFTER)
            if self._stopping.is_set():
                return
            failure = await self._reconnect(number)

    async def _run_flow(self, flow: Flow) -> MirrorError | None:
        """Run a flow to its end; return its failure, or raise it if it ends the process."""
        back = self._beside(f"the look whether {name_of(flow)} is back", self._report_back(flow))
        try:
            await flow.run()
            return None
        except Exception as error:
            failure = _failure_of(flow, error)
        finally:
            back.cancel()
        # A source that has worked once may work again; with a single source, a failure at the start ends the process.
        has_worked = flow.ready.is_set() or flow.number in self._earlier
        may_recover = isinstance(failure, ClusterError) and has_worked
        if failure.scope is Scope.PROCESS or (not may_recover and len(self.sources) == 1):
            raise failure
        return failure

    async def _reconnect(self, number: int) -> MirrorError | None:
        if self.flows[number].was_started:
            self._earlier[number] = self._earlier.get(number, Earlier()).plus(self.flows[number])
            self.flows[number] = self._new_flow(number)
        try:
            await self.flows[number].connect()
        except Exception as error:
            failure = _failure_of(self.flows[number], error)
            if failure.scope is Scope.PROCESS:
                raise
            return failure
        return None

    async def _report_back(self, flow: Flow) -> None:
        """Report that a source is mirrored again, once it is: its clusters may answer before that."""
        await flow.ready.wait()
        if self._troubles.pop(flow.number, None):
            self.display.report(SourceBack(name_of(flow)))

    # -- for people

    async def _open_status(self) -> None:
        """Serve the status page, if one is wanted, from before the clusters are reached until the last line."""
        settings = self.options.status
        if settings is not None:
            documents = Status(self.snapshot, self.display.events, settings.max_partitions)
            self._status = StatusServer(settings, documents)
            self.display.show(f"status     {await self._status.open()}")

    async def _show_progress(self) -> None:
        while not any(flow.ready.is_set() for flow in self.flows):
            await asyncio.sleep(0.1)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(flow.ready.wait() for flow in self.flows)), _SUMMARY_WITHIN)
        for line in self._summary():
            self.display.show(line)
        started = asyncio.get_running_loop().time()
        while not any(flow.scheduler.has_seen_streams for flow in self.flows):
            waited = asyncio.get_running_loop().time() - started
            if waited >= 5 and int(waited) % 5 == 0:
                self.display.report(WaitingForSpark(waited))
            await asyncio.sleep(1)
        self.display.start()
        while True:
            self.display.tick()
            await asyncio.sleep(1)

    def _summary(self) -> list[str]:
        place = "this machine" if self._engine.is_local else self._engine.master
        return opening_lines(
            self.options, self.filter, self.flows, self._troubles, self.target, self.guarantee(), place
        )

    def guarantee(self) -> tuple[str, str]:
        """Return what the mirror promises, and why."""
        is_deterministic = self._handler is None or self._handler.is_deterministic
        return guarantee(self.target, self.flows, is_deterministic)

    def snapshot(self) -> Snapshot:
        """Return the mirror in all its parts."""
        sources = [
            ObservedSource(
                flow,
                self._earlier.get(number, Earlier()),
                self._members[number],
                self._troubles.get(number, ""),
            )
            for number, flow in enumerate(self.flows)
        ]
        return take_snapshot(
            sources,
            self._rows,
            self.guarantee(),
            self.target.buffer_bytes,
            self._loop_watch,
            self._stopping.is_set(),
        )

    def totals(self) -> Totals:
        """Return the mirror's totals."""
        if not self.flows:
            return Totals(0, 0, 0, 0, 0, 0, 0)  # it is just starting
        return self._sums.totals(self.snapshot(), time.monotonic())

    def _conclude(self, failure: BaseException | None) -> int:
        """Report the last lines; return the exit code."""
        totals = self.totals()
        earlier = [self._earlier.get(number, Earlier()) for number in range(len(self.flows))]
        stopped = [owned.stop_reason for flow in self.flows for owned in flow.scheduler if owned.stop_reason]
        report, complain = self.display.report, self.display.complain
        if failure is None or self._earlier or any(flow.ready.is_set() for flow in self.flows):
            report(Finished(totals.records, totals.bytes / 1e6, duration(self.display.seconds), totals.missing))
        for before, flow in zip(earlier, self.flows, strict=True):
            if count := before.undelivered + flow.undelivered.count:
                report(UndeliveredInFile(count, str(flow.undelivered.path)))
            for lost in [*before.lost, *flow.renumbering.lost]:
                report(LostInTotal(lost))
        for reason in stopped:
            report(StoppedInTotal(reason))
        if failure is not None:
            if not isinstance(failure, MirrorError):
                raise failure
            complain(str(failure))
            return failure.exit_code
        waits = self.options.exit_when_caught_up
        behind = [
            name_of(flow)
            for number, flow in enumerate(self.flows)
            if waits and number not in self._troubles and not flow.goals.were_reached
        ]
        if waits and not behind and not any(flow.membership.topics for flow in self.flows):
            complain(f"no topic matches {self.filter.pattern}")
            return 1
        left_out = [trouble.reason for flow in self.flows for trouble in flow.topic_sync.troubles.values()]
        for trouble in [*self._troubles.values(), *left_out]:
            complain(trouble)
        if stopped:
            complain(f"{len(stopped)} partitions could not be mirrored to the end")
        if behind:
            complain(f"stopped before the mirror had caught up with {' and '.join(behind)}")
        return 1 if self._troubles or left_out or stopped or behind else 0

    # -- addresses

    def _control_addresses(self) -> tuple[str, str]:
        """Return where the control server listens, and the address under which streams reach it."""
        if self._engine.is_local:
            return "127.0.0.1", "127.0.0.1"
        host = self._engine.given.get("spark.driver.host") or _driver_host()
        return self._engine.given.get("spark.driver.bindAddress") or host, host


def _failure_of(flow: Flow, error: Exception) -> MirrorError:
    """Return why a source is not mirrored. A bug of ours is the trouble of one source, which is tried again."""
    if isinstance(error, MirrorError) and not isinstance(error, OUTAGE):
        return error
    if not isinstance(error, OUTAGE):
        traceback.print_exception(error)
    return ClusterError(f"{name_of(flow)}: {describe_any(error)}")


def _driver_host() -> str:
    """Return the address at which executors reach this machine."""
    if "SPARK_LOCAL_IP" in os.environ:
        return os.environ["SPARK_LOCAL_IP"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        # Connecting a datagram socket sends nothing: it only chooses the interface.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"
