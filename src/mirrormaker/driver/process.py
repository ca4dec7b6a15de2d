"""The whole process: flows, the desk, Spark, signals, and what people see."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from mirrormaker.console.display import Display, Totals, duration
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.flow import Flow, Wiring
from mirrormaker.driver.observer import look
from mirrormaker.errors import (
    OUTAGE,
    AbortError,
    ClusterError,
    MirrorError,
    SettingError,
    describe,
)
from mirrormaker.model.topic_filter import Filter, Matcher, is_plain, python_matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.spark.java_regex import java_matcher
from mirrormaker.spark.jvm import first_line
from mirrormaker.spark.session import Engine
from mirrormaker.status.counts import Counts
from mirrormaker.status.documents import Status
from mirrormaker.status.http_server import StatusServer
from mirrormaker.wire.records.compression import CODECS
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.worker.handler import load_handler, load_listener

_TRY_AGAIN = 5.0  # seconds until a source is tried again that could not be mirrored


class Mirror:
    """Everything that one `mirrormaker run` owns."""

    def __init__(self, options: RunOptions, sources: list[SourceSettings], target: TargetSettings) -> None:
        self.options, self.sources, self.target = options, sources, target
        self.filter = Filter.of(options.include, options.exclude)
        self.handler = load_handler(*options.message_handler) if options.message_handler else None
        self.listener = load_listener(*options.rebalance_listener) if options.rebalance_listener else None
        self.flows: list[Flow] = []
        self.control = ControlServer()
        self.directory = Path(tempfile.mkdtemp(prefix="mirrormaker-"))
        self.log = Path(options.log_file).absolute() if options.log_file else self.directory / "spark.log"
        self.display = Display(options.progress_interval, self.snapshot, as_json=options.log_format == "json")
        self.counts = [Counts() for _ in sources]  # they outlive flows
        self._slots: list[IO[str]] = []
        self._instances: dict[int, str] = {}
        self._troubles: dict[int, str] = {}  # why a source is not mirrored at the moment
        self._ended: list[Flow] = []  # that others have replaced
        self._stopping = asyncio.Event()
        self._status: StatusServer | None = None
        streams = options.num_streams * len(sources)
        self._jvm: asyncio.Future[Any] | None = None
        self._session: asyncio.Future[SparkSession] | None = None
        self._judge: Matcher | None = None
        self.engine = Engine(options.spark_master, options.spark_conf, streams, self.directory, self.log)

    async def run(self) -> int:
        """Mirror; the result is the exit code."""
        await self.control.open(*self._desk_addresses())
        for name in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(name, self._stop, name)
        self.flows = [self._new_flow(number) for number in range(len(self.sources))]
        try:
            await self._open_status()
            unreachable = await self._connect()
        except BaseException:
            self._close_status()
            await self.control.close()
            self._clean_up()
            raise
        started = asyncio.ensure_future(self.spark())  # it takes seconds, and Kafka is asked meanwhile
        started.add_done_callback(lambda task: task.cancelled() or task.exception())
        runs = [asyncio.create_task(self._keep(number, unreachable.get(number))) for number in range(len(self.sources))]
        watch = asyncio.create_task(self._watch())
        failure: BaseException | None = None
        try:
            done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
            failure = next((t.exception() for t in done if t.exception()), None)
        finally:
            self._stopping.set()
            for flow in self.flows:
                flow.stop()
            await asyncio.gather(*runs, return_exceptions=True)
            watch.cancel()
            started.cancel()
            self.display.stop()
            await self.control.close()
            self.engine.end()
            self._close_status()
            self._clean_up()
        return self._verdict(failure)

    # -- flows

    def _new_flow(self, number: int) -> Flow:
        settings = self.sources[number]
        if number not in self._instances:
            self._instances[number] = settings.instance_id or self._instance_id(settings.group_id)
        wiring = Wiring(
            self.options, self.target, self.filter, self.judge, self.spark, self.control, self.log, self.display.say,
            self.listener,
        )  # fmt: skip
        flow = Flow(number, settings, wiring, self._instances[number])
        flow.scheduler.counts = self.counts[number]
        self.control.register(number, flow.scheduler)
        return flow

    async def _connect(self) -> dict[int, MirrorError]:
        """Reach all clusters. Sources that cannot be reached must not keep the others waiting, if there are others."""
        found = await asyncio.gather(*(flow.connect() for flow in self.flows), return_exceptions=True)
        failed = {number: error for number, error in enumerate(found) if error is not None}
        if len(failed) == len(self.flows) or any(not isinstance(error, ClusterError) for error in failed.values()):
            raise next(iter(failed.values()))
        return {number: error for number, error in failed.items() if isinstance(error, MirrorError)}

    async def _keep(self, number: int, failure: MirrorError | None) -> None:
        """One source for as long as the mirror runs: what ends its flow does not end the others, and is tried again."""
        while True:
            if failure is None:
                try:
                    await self.flows[number].run()
                    return
                except OUTAGE as error:
                    failure = ClusterError(f"{self._name(number)}: {describe(error)}")
                except MirrorError as error:
                    failure = error
                if self._is_the_end(failure, self.flows[number]):
                    raise failure
            if str(failure) != self._troubles.get(number):
                self._troubles[number] = str(failure)
                self.display.say(f"{failure}{'; the other sources go on' if len(self.sources) > 1 else ''}")
            if not isinstance(failure, ClusterError):
                return  # trying again would not change it
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TRY_AGAIN)
            if self._stopping.is_set():
                return
            if self.flows[number].was_started:
                self._ended.append(self.flows[number])
                self.flows[number] = self._new_flow(number)
            try:
                await self.flows[number].connect()
                failure = None
                if self._troubles.pop(number, None):
                    self.display.say(f"{self._name(number)} is there again")
            except ClusterError as error:
                failure = error

    def _name(self, number: int) -> str:
        """Of a source: its brokers, or where they are looked up."""
        return str(self.flows[number].source.endpoint) or f"ZooKeeper {self.sources[number].zookeeper}"

    def _is_the_end(self, error: MirrorError, flow: Flow) -> bool:
        """Of the whole process: a record that must not be given up, or nothing else to go on with."""
        if isinstance(error, AbortError | SettingError):
            return True
        curable = isinstance(error, ClusterError) and flow.ready.is_set()  # what worked once may work again
        return not curable and len(self.sources) == 1

    def _stop(self, which: signal.Signals) -> None:
        self.display.say(f"{which.name}: stopping; waiting for the target's last answers")
        self._stopping.set()
        for flow in self.flows:
            flow.stop()

    # -- Spark

    async def judge(self) -> Matcher:
        """Who decides which topics match: Java, unless the pattern is so plain that it makes no difference."""
        if is_plain(self.filter.pattern):
            return python_matcher(self.filter.pattern)
        await self._ensure_jvm()
        assert self._judge is not None
        return self._judge

    async def spark(self) -> SparkSession:
        """Spark, as soon as it runs; a new one, should it have died."""
        await self._ensure_jvm()
        if self._session is None:
            if self.engine.packs_libraries:
                self.display.say("packing the libraries that executors need; they are kept for the next time")
            self._session = run_in_thread(self.engine.start_session)
        try:
            return await asyncio.shield(self._session)
        except Exception as error:
            raise MirrorError(f"Spark did not start: {first_line(error)} (its log: {self.log})") from error

    async def _ensure_jvm(self) -> None:
        if self._jvm is None or (self._jvm.done() and not self.engine.is_alive):
            if self._jvm is not None:
                self.display.say("Spark's JVM has died; starting another")
            self._session, self._judge = None, None
            self._jvm = run_in_thread(self.engine.start_jvm)
        jvm = await asyncio.shield(self._jvm)
        if self._judge is None:
            self._judge = java_matcher(jvm, self.filter.pattern)

    # -- what is shown

    async def _open_status(self) -> None:
        """The page, if one is asked for: from before the clusters are reached until the last line."""
        settings = self.options.status
        if settings is not None:
            self._status = StatusServer(
                settings, Status(lambda: look(self), self.display.events, settings.max_partitions)
            )
            self.display.show(f"status     {await self._status.open()}")

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def flows_of(self, number: int) -> list[Flow]:
        """All that a source has had, the running one last."""
        return [*(flow for flow in self._ended if flow.number == number), self.flows[number]]

    def trouble_of(self, number: int) -> str:
        return self._troubles.get(number, "")

    def member_of(self, number: int) -> str:
        return self._instances[number]

    async def _watch(self) -> None:
        while not any(flow.ready.is_set() for flow in self.flows):
            await asyncio.sleep(0.1)
        with contextlib.suppress(asyncio.TimeoutError):  # one summary for all, unless some are late
            await asyncio.wait_for(asyncio.gather(*(flow.ready.wait() for flow in self.flows)), 5)
        for text in self.summary():
            self.display.show(text)
        started = asyncio.get_running_loop().time()
        while not any(flow.scheduler.seen for flow in self.flows):
            waited = asyncio.get_running_loop().time() - started
            if waited >= 5 and int(waited) % 5 == 0:
                self.display.say(f"waiting for Spark to start the streams ({waited:.0f} s)")
            await asyncio.sleep(1)
        self.display.start()
        while True:
            self.display.tick()
            await asyncio.sleep(1)

    def summary(self) -> list[str]:
        """What is about to happen, and what is promised."""
        out = []
        streams = self.options.num_streams
        for number, flow in enumerate(self.flows):
            if not flow.ready.is_set():
                why = self._troubles.get(number, "not yet")
                out.append(f"source     {self._name(number)}: {why}")
                continue
            topics = {h.position.topic for h in flow.scheduler}
            names = ", ".join(sorted(topics)[:5]) + (f" and {len(topics) - 5} more" if len(topics) > 5 else "")
            reset = flow.settings.auto_offset_reset
            start = f"auto.offset.reset={reset}" if reset else "auto.offset.reset is unset: earliest"
            found = f"{len(topics)} ({names}), {len(flow.scheduler.holdings)} partitions"
            if not topics and flow.membership.topics:
                found = f"{len(flow.membership.topics)}, all with other processes of the group until this one has its streams"
            elif not topics:
                found = f"none yet that matches {self.filter.pattern}; they are mirrored as they appear"
            cluster = f"cluster {flow.source.id}, " if flow.source.id else ""  # none before 0.10.1
            out += [
                f"source     {flow.source.endpoint} ({cluster}group {flow.settings.group_id})",
                f"topics     {found}",
                f"start      {'first start of this group: ' if flow.first_start else 'committed offsets; for others '}{start}",
            ]
            if flow.left_out:
                out.append(f"left out   {', '.join(flow.left_out)}: internal topics belong to their own cluster")
            out += [f"partitions {text}" for text in self._by_key(flow)]
            out += [f"overtaken  {text}" for text in flow.overtaken]
            out += [f"note       {note}" for note in flow.settings.notes]
        flow = next((flow for flow in self.flows if flow.ready.is_set()), self.flows[0])
        place = "this machine" if self.engine.is_local else self.engine.master
        guarantee, why = self.guarantee()
        out += [
            f"target     {flow.target.endpoint}{f' (cluster {flow.target.id})' if flow.target.id else ''}",
            f"streams    {streams}{' per source' if len(self.flows) > 1 else ''}, on Spark at {place}",
            f"guarantee  {guarantee} ({why})",
        ]
        if self.options.message_handler:
            out.append(f"handler    {self.options.message_handler[0]}")
        if self.target.codec is not None:
            out.append(f"packing    what is not {CODECS[self.target.codec]} is packed anew (compression.type)")
        out += [f"note       {note}" for note in self.target.notes]
        return out

    def guarantee(self) -> tuple[str, str]:
        """What is promised, and why."""
        if self.target.acks != -1:
            return "at least once", "acks=1: an acknowledged record can be lost"
        if any(flow.ready.is_set() and not flow.is_exact for flow in self.flows):
            why = "the target is older than Kafka 0.11: it cannot tell what it has, and takes no headers"
            return "at least once", why
        if self.handler is not None and not self.handler.is_deterministic:
            return "at least once", "the message handler declares that it is not deterministic"
        return "exactly once, in order", "acks=all, one producer identity per source partition"

    def _by_key(self, flow: Flow) -> list[str]:
        """Topics whose records change their partition."""
        topics = sorted({h.position.topic for h in flow.scheduler if h.position.by_key})
        counts = [
            f"{t} {len(flow.source.topics[t].partitions)} to {len(flow.target.topics[t].partitions)}" for t in topics
        ]
        more = f" and {len(counts) - 5} more" if len(counts) > 5 else ""
        return [f"by key, as Java's producer does it: {', '.join(counts[:5])}{more}"] if counts else []

    def snapshot(self) -> Totals:
        holdings = [h for flow in self.flows for h in flow.scheduler]
        streams = []
        for flow in self.flows:
            for number in range(self.options.num_streams):
                mine = [h for h in flow.scheduler if h.stream == number]
                name = str(number) if len(self.flows) == 1 else f"{flow.settings.group_id}/{number}"
                streams.append((name, len(mine), sum(h.load for h in mine), float(sum(h.lag for h in mine))))
        return Totals(
            records=sum(f.records_and_bytes[0] for f in (*self._ended, *self.flows)),
            bytes=sum(f.records_and_bytes[1] for f in (*self._ended, *self.flows)),
            lag=sum(h.lag for h in holdings),
            partitions=len(holdings),
            flowing=sum(h.state == "flowing" for h in holdings),
            waiting=sum(h.state == "waiting" and h.given for h in holdings),
            stopped=sum(bool(h.stopped) for h in holdings),
            streams=tuple(streams),
        )

    def _verdict(self, failure: BaseException | None) -> int:
        """The last lines, and the exit code that goes with them."""
        snapshot = self.snapshot()
        stopped = [h.stopped for f in self.flows for h in f.scheduler if h.stopped]
        everyone = [*self._ended, *self.flows]
        lost = [text for f in everyone for text in f.lost]
        seconds = self.display.seconds
        if any(f.ready.is_set() for f in everyone):
            self.display.say(
                f"mirrored {snapshot.records:,} records, {snapshot.bytes / 1e6:,.1f} MB in {duration(seconds)};"
                f" lag {snapshot.lag:,}"
            )
        for flow in everyone:
            if flow.undelivered.count:
                self.display.say(f"{flow.undelivered.count:,} records could not be delivered: {flow.undelivered.path}")
        for text in lost:
            self.display.say(f"lost: {text}")
        for text in stopped:
            self.display.say(f"stopped: {text}")
        if failure is not None:
            if not isinstance(failure, MirrorError):
                raise failure
            self.display.complain(str(failure))
            return failure.exit_code
        if self.options.exit_when_caught_up and not any(f.membership.topics for f in self.flows):
            self.display.complain(f"no topic matches {self.filter.pattern}")
            return 1
        for text in self._troubles.values():
            self.display.complain(text)
        if self._troubles:
            return 1
        if stopped:
            self.display.complain(f"{len(stopped)} partitions could not be mirrored to the end")
            return 1
        return 0

    # -- odds and ends

    def _close_status(self) -> None:
        if self._status is not None:
            self._status.close()

    def _desk_addresses(self) -> tuple[str, str]:
        """Where the desk listens, and under which address streams reach it."""
        if self.engine.is_local:
            return "127.0.0.1", "127.0.0.1"
        host = self.engine.given.get("spark.driver.host") or _driver_host()
        return self.engine.given.get("spark.driver.bindAddress") or host, host

    def _instance_id(self, group: str) -> str:
        """Host name and the first free slot: the same after a restart, different for two processes side by side."""
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"mirrormaker-{os.getuid()}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in group)[:100]
        for slot in range(1000):
            lock = (runtime / f"{safe}.{slot}.lock").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._slots.append(lock)
            return f"{socket.gethostname()}-{slot}"
        raise MirrorError(f"1000 processes of group {group} run on this machine already")

    def _clean_up(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        for slot in self._slots:
            slot.close()


def _driver_host() -> str:
    """The address at which executors reach this machine."""
    if "SPARK_LOCAL_IP" in os.environ:
        return os.environ["SPARK_LOCAL_IP"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which interface would be used
        return str(probe.getsockname()[0])
    return "127.0.0.1"
