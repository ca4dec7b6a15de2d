"""One source cluster to the target: the driver's loop around membership, ledger, plan and desk.

State goes one way round: ledger -> position -> stream -> report -> ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeConfigsRequest
from pyspark.sql import SparkSession

from mirrormaker.errors import ClusterError, FencedError, MirrorError
from mirrormaker.flow import epoch
from mirrormaker.flow.desk import Desk
from mirrormaker.flow.holding import Holding
from mirrormaker.flow.ledger import rows, unpack
from mirrormaker.flow.membership import Membership, NotMember
from mirrormaker.flow.opening import Opening, offsets
from mirrormaker.flow.plan import moves, spread
from mirrormaker.flow.topics import Filter, Judge, ensure
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.stream.position import Identity, Position
from mirrormaker.stream.work import Work
from mirrormaker.wire.cluster import Cluster
from mirrormaker.wire.offsets import EARLIEST, LATEST

Key = tuple[str, int]

_LOOK_EVERY = 5.0  # seconds between looks at the source's topics: new ones flow well within 30 s
_WEIGH_EVERY = 5.0  # seconds between looks at the streams' loads
_COMMIT_AFTER = 64 << 20  # bytes of one partition: a resume never reads back much more than that
_STOP_WITHIN = 8.0  # seconds for streams to bring in their acks: produce timeout, a report, and a margin
_BROKER = 4  # the resource type of DescribeConfigs


@dataclass(frozen=True)
class Wiring:
    """What all flows of a process share."""

    options: RunOptions
    target: TargetSettings
    filter: Filter
    judge: asyncio.Future[Judge]
    spark: asyncio.Future[SparkSession]
    desk: Desk
    say: Callable[[str], None]


class Flow:
    """Runs until stopped, caught up, or broken."""

    def __init__(self, number: int, settings: SourceSettings, wiring: Wiring, instance_id: str | None) -> None:
        self.number, self.settings, self.wiring = number, settings, wiring
        self.options = wiring.options
        self.source = Cluster(settings.endpoint)
        self.target = Cluster(wiring.target.endpoint)
        self.membership = Membership(self.source, settings, instance_id)
        self.opening = Opening(self.source, self.target, settings, self.options.accept_new_target, self.say)
        self.holdings: dict[Key, Holding] = {}
        self.ready = asyncio.Event()  # the first partitions are known: the summary can be shown
        self.running = asyncio.Event()  # streams are at work
        self.rebalances = self.resumes = 0
        self.totals = (0, 0)  # records and bytes of partitions that went to other processes
        self.lost: list[str] = []
        self.first_start = False
        self._epoch = 0
        self._epoch_done: asyncio.Future[pa.Table] | None = None
        self._assigned: asyncio.Queue[frozenset[Key]] = asyncio.Queue()
        self._stop = asyncio.Event()
        self._commit_now = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expiration_ms = 86_400_000
        self._tasks: set[asyncio.Task[Any]] = set()
        self._goals_set = False

    def say(self, text: str) -> None:
        self.wiring.say(text)

    # -- life

    async def run(self) -> None:
        """Mirror until `stop`; raises what ended it otherwise."""
        try:
            await self._look()
            self._start(self.membership.keep(self._assigned.put_nowait))
            self._start(self._follow_assignments())
            self._start(self._keep_looking())
            self._start(self._keep_committing())
            self._start(self._keep_even())
            await self._until(self.ready.wait())
            spark = await self._until(asyncio.shield(self.wiring.spark))
            self._start(self._keep_an_epoch(spark))
            await self._until(self._stop.wait())
        finally:
            await self._wind_down()

    def stop(self) -> None:
        self._stop.set()

    async def _until(self, what: Any) -> Any:
        """Wait for something, or for whatever makes waiting pointless."""
        task = asyncio.ensure_future(what)
        stop = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([task, stop, self._failure], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._failure.done():
            task.cancel()
            self._failure.result()
        if not task.done():
            task.cancel()
            return None
        return task.result()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            self._fail(task.exception())

    def _fail(self, error: BaseException | None) -> None:
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()

    async def connect(self) -> None:
        """Reach both clusters; nothing else is started before that."""
        for which, cluster in (("source", self.source), ("target", self.target)):
            try:
                await cluster.refresh()
            except OSError as error:
                path = self.settings.path if which == "source" else self.wiring.target.path
                raise ClusterError(
                    f"the {which} cluster cannot be reached: {error} (bootstrap.servers in {path})"
                ) from error
        ask = DescribeConfigsRequest.DescribeConfigsResource
        broker = min(self.target.brokers)
        with contextlib.suppress(KafkaError, OSError, ValueError, Exception):
            answer = await self.target.ask(
                DescribeConfigsRequest(
                    resources=[
                        ask(
                            resource_type=_BROKER,
                            resource_name=str(broker),
                            configuration_keys=["producer.id.expiration.ms"],
                        )
                    ]
                ),
                broker,
            )
            self._expiration_ms = int(answer.results[0].configs[0].value)

    # -- topics

    async def _look(self) -> None:
        """Which topics there are, and their counterparts on the target."""
        judge = await asyncio.shield(self.wiring.judge)
        known = {t.name: len(t.partitions) for t in self.source.topics.values()}
        await self.source.refresh()
        await self.target.refresh()
        chosen = self.wiring.filter.chosen(self.source.topics.values(), judge)
        grow = {h.position.topic for h in self.holdings.values() if self._was_equal(h.position)}
        for line in await ensure(self.source, self.target, chosen, grow):
            self.say(line)
        self.membership.subscribe(t.name for t in chosen)
        if any(known.get(t.name, len(t.partitions)) != len(t.partitions) for t in chosen):
            self.membership.rebalance()

    def _was_equal(self, position: Position) -> bool:
        """Did source and target have the same number of partitions, before one side grew?"""
        topic = self.target.topics.get(position.topic)
        return (
            topic is not None
            and len(topic.partitions) == position.target_partitions
            and position.partition < len(topic.partitions)
        )

    async def _keep_looking(self) -> None:
        pause = min(_LOOK_EVERY, self.settings.metadata_max_age_ms / 1000)
        while True:
            await asyncio.sleep(pause)
            try:
                await self._look()
            except (KafkaError, OSError, asyncio.TimeoutError):
                continue  # the next look will tell
            except ClusterError as error:
                self.say(str(error))

    # -- assignments

    async def _follow_assignments(self) -> None:
        while True:
            keys = await self._assigned.get()
            while not self._assigned.empty():
                keys = self._assigned.get_nowait()
            self.rebalances += 1
            await self._let_go(set(self.holdings) - keys)
            await self._take_up(keys - set(self.holdings))
            self._plan()
            self.ready.set()

    async def _let_go(self, keys: set[Key]) -> None:
        """What belongs to another process now: finish, commit, forget."""
        for key in keys:
            holding = self.holdings[key]
            holding.revoked = True
            self._recall(holding)
        deadline = time.monotonic() + _STOP_WITHIN
        while any(self.holdings[key].given for key in keys) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        with contextlib.suppress(NotMember, KafkaError, OSError, asyncio.TimeoutError):
            await self._commit()
        for key in keys:
            holding = self.holdings.pop(key)
            self.totals = (self.totals[0] + holding.records, self.totals[1] + holding.bytes)

    async def _take_up(self, assigned: frozenset[Key]) -> None:
        keys = set(assigned)
        if not keys:
            return
        missing = {topic for topic, _ in keys if topic not in self.source.topics or topic not in self.target.topics}
        if missing:  # assigned by a leader who knows more than we do
            await self._look()
            keys = {k for k in keys if k[0] in self.source.topics and k[0] in self.target.topics}
        committed = await self._patiently(self.membership.committed)
        self.first_start = not committed if not self._goals_set else self.first_start
        first_start = not committed and not self._goals_set
        await self._grow_as_before(keys, committed)
        mirrored = {k for k in keys if not self._differs(k[0])}
        for key in keys - mirrored:
            self.holdings[key] = self._cannot_be(key)
        old, new = await self.opening.positions(mirrored, committed, first_start)
        self._goals_set = True
        if new:
            await self._patiently(lambda: self.membership.commit(rows(new)))
        for position in (*old, *new):
            holding = Holding(position, clean=position in new, committed=position)
            self.holdings[position.key] = holding
        if self.options.exit_when_caught_up:
            ends = await offsets(self.source, mirrored, LATEST, self.settings.read_committed)
            for key, end in ends.items():
                self.holdings[key].goal = self.holdings[key].end = end

    async def _grow_as_before(self, keys: set[Key], committed: dict[Key, tuple[int, str]]) -> None:
        """A source that grew while nobody looked: the ledger says that the counts were equal before."""
        behind = {topic for topic, _ in keys if self._differs(topic)}
        grow = set()
        for key, (offset, metadata) in committed.items():
            known = unpack(*key, offset, metadata) if key[0] in behind else None
            if (
                known
                and self._was_equal(known)
                and len(self.source.topics[key[0]].partitions) > known.target_partitions
            ):
                grow.add(key[0])
        for line in await ensure(self.source, self.target, [self.source.topics[t] for t in grow], grow):
            self.say(line)

    def _differs(self, topic: str) -> bool:
        return len(self.source.topics[topic].partitions) != len(self.target.topics[topic].partitions)

    def _cannot_be(self, key: Key) -> Holding:
        counts = len(self.source.topics[key[0]].partitions), len(self.target.topics[key[0]].partitions)
        reason = (
            f"{key[0]}-{key[1]} is not mirrored: the source topic has {counts[0]} partitions and the target's {counts[1]},"
            " and partitioning by key is not built yet"
        )
        self.say(reason)
        nowhere = Position(*key, 0, -1, "", Identity(-1, -1), self.target.id, "", counts[1], ())
        return Holding(nowhere, clean=True, committed=nowhere, stopped=reason, state="stopped")

    async def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Until the group answers; a rebalance or a moving coordinator is no reason to give up."""
        while True:
            try:
                return await ask()
            except (NotMember, KafkaError, OSError, asyncio.TimeoutError):
                await asyncio.sleep(0.1)

    # -- the plan, and what streams are told

    def _plan(self) -> None:
        now = {k: h.stream for k, h in self.holdings.items() if h.stream is not None}
        loads = {k: h.load or h.lag + 1.0 for k, h in self.holdings.items()}
        wanted = [k for k, h in self.holdings.items() if not h.stopped]
        for key, stream in spread(wanted, self.options.num_streams, loads, now).items():
            self.holdings[key].stream = stream
        self._give()

    def _give(self) -> None:
        """Hand every partition to its stream, where the stream is there and nobody else has it."""
        take: dict[int, list[dict[str, Any]]] = {}
        for holding in self.holdings.values():
            stream = holding.stream
            idle = not (holding.given or holding.revoked or holding.stopped)
            if idle and stream is not None and self.wiring.desk.is_seated(self.number, stream):
                holding.given = True
                take.setdefault(stream, []).append({"position": holding.position.to_json(), "clean": holding.clean})
                holding.clean = False
        for stream, given in take.items():
            self.wiring.desk.order(self.number, stream, take=given)

    def _recall(self, holding: Holding) -> None:
        if holding.given and not holding.releasing and holding.stream is not None:
            holding.releasing = True
            self.wiring.desk.order(self.number, holding.stream, release=[holding.position.key])

    async def _keep_even(self) -> None:
        """Move partitions from busy streams to idle ones."""
        while True:
            await asyncio.sleep(_WEIGH_EVERY)
            for holding in self.holdings.values():
                holding.weigh(_WEIGH_EVERY)
            plan = {k: h.stream for k, h in self.holdings.items() if h.stream is not None and not h.stopped}
            loads = {k: h.load for k, h in self.holdings.items()}
            for key, stream in moves(plan, self.options.num_streams, loads).items():
                holding = self.holdings[key]
                if holding.given and not holding.releasing:
                    self._recall(holding)
                    holding.next_stream = stream

    # -- what the desk hears (Listener)

    def arrived(self, stream: int) -> None:
        self.running.set()
        self._give()

    def left(self, stream: int) -> None:
        """A stream is gone without a word: whatever it had may still be under way."""
        for holding in self.holdings.values():
            if holding.stream == stream and holding.given:
                holding.handed_over()
                holding.clean = False

    def reported(self, stream: int, message: dict[str, Any]) -> None:
        for part in message["partitions"]:
            holding = self.holdings.get((part["topic"], part["partition"]))
            if holding is not None and holding.stream == stream and holding.given:
                self._note(holding, part)
        for part in message["finished"]:
            holding = self.holdings.get((part["topic"], part["partition"]))
            if holding is not None and holding.stream == stream:
                self._finished(holding, part)

    def _note(self, holding: Holding, part: dict[str, Any]) -> None:
        position = Position.from_json(part["position"])
        if position.identity == holding.position.identity and position.offset >= holding.position.offset:
            holding.position = position
        holding.count(part["records"], part["bytes"])
        holding.end = max(holding.end, part["end"])
        if part["note"] != holding.note and part["note"] and part["state"] == "waiting":
            self.say(f"{part['topic']}-{part['partition']} waits: {part['note']}")
        elif holding.state == "waiting" and part["state"] == "flowing" and holding.note:
            self.say(f"{part['topic']}-{part['partition']} flows again")
        holding.state, holding.note = part["state"], part["note"]
        if holding.committed and holding.position.offset > holding.committed.offset:
            moved = (
                holding.position.cut(holding.position.partition).offset
                - holding.committed.cut(holding.position.partition).offset
            )
            if moved and holding.bytes and holding.bytes / max(1, holding.records) * moved > _COMMIT_AFTER:
                self._commit_now.set()

    def _finished(self, holding: Holding, part: dict[str, Any]) -> None:
        if part.get("unknown"):
            holding.handed_over()
            self._give()
            return
        self._note(holding, part)
        holding.handed_over()
        holding.clean = True
        if part.get("undeliverable"):
            self._fail(MirrorError(part["reason"]))
        elif part.get("stopped"):
            holding.stopped = part["reason"]
            self.say(part["reason"])
        elif "renumber" in part:
            self._start(self._renumber(holding, part["renumber"], part["reason"]))
        else:
            self._give()

    async def _renumber(self, holding: Holding, offset: int, reason: str) -> None:
        """Other records follow than the numbers were meant for: commit a new identity, then go on."""
        key = holding.position.key
        holding.given = True  # nobody else's turn
        await self._patiently(lambda: self.source.refresh([key[0]]))
        await self._patiently(lambda: self.target.refresh([key[0]]))
        if key[0] not in self.source.topics or key[0] not in self.target.topics:
            holding.stopped, holding.given = f"{key[0]}-{key[1]} stops: {reason}, and it is gone now", False
            self.say(holding.stopped)
            return
        start = (await offsets(self.source, [key], EARLIEST))[key]
        if "out of range" in reason:
            end = (await offsets(self.source, [key], LATEST))[key]
            behind = holding.position.offset < start
            at = start if behind or (self.settings.auto_offset_reset or "earliest") == "earliest" else end
            if self.settings.auto_offset_reset == "none":
                holding.stopped, holding.given = f"{key[0]}-{key[1]} stops: {reason}, and auto.offset.reset=none", False
                self.say(holding.stopped)
                return
            if self.settings.auto_offset_reset == "latest":
                at = end
            if at > holding.position.offset:
                self.lost.append(
                    f"{key[0]}-{key[1]}: source offsets {holding.position.offset} to {at - 1} were gone before they were"
                    f" mirrored: at most {at - holding.position.offset} records"
                )
                self.say("LOST " + self.lost[-1])
        else:
            at = holding.position.offset if offset < 0 else start
            self.say(f"{key[0]}-{key[1]}: {reason}; going on at source offset {at}")
        position = await self.opening.renumbered(holding.position, at)
        await self._patiently(lambda: self.membership.commit(rows([position])))
        holding.position = holding.committed = position
        holding.clean = True
        holding.given = False
        self._give()

    # -- the ledger

    async def _keep_committing(self) -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._commit_now.wait(), self.options.commit_interval)
            self._commit_now.clear()
            with contextlib.suppress(NotMember, KafkaError, OSError, asyncio.TimeoutError):
                await self._commit()
            if self.options.exit_when_caught_up and self.ready.is_set() and all(h.is_done for h in self.holdings.values()):
                self._stop.set()

    async def _commit(self) -> None:
        """Write down how far every partition is, if it has moved; the ledger only goes forward."""
        moved = [(h, h.position) for h in self.holdings.values() if h.position != h.committed]
        if moved:
            await self.membership.commit(rows(position for _, position in moved))
            for holding, position in moved:
                holding.committed = position

    # -- the epoch

    async def _keep_an_epoch(self, spark: SparkSession) -> None:
        while not self._stop.is_set():
            self._epoch += 1
            shares: list[list[Position]] = [[] for _ in range(self.options.num_streams)]
            for holding in self.holdings.values():
                if holding.stream is not None:
                    shares[holding.stream].append(holding.position)
            self._epoch_done = _in_thread(partial(epoch.run, spark, self._work(), shares))
            try:
                await asyncio.shield(self._epoch_done)
            except Exception as error:
                if not self._stop.is_set():
                    self.say(f"the Spark job ended: {first_line(error)}; starting another")
                    await asyncio.sleep(1)

    def _work(self) -> Work:
        settings, target, options = self.settings, self.wiring.target, self.options
        return Work(
            flow=self.number,
            epoch=self._epoch,
            desk=self.wiring.desk.address,
            secret=self.wiring.desk.secret,
            source=settings.endpoint,
            target=target.endpoint,
            read_committed=settings.read_committed,
            acks=target.acks,
            max_in_flight=target.max_in_flight,
            connections=options.num_producers,
            buffer_bytes=target.buffer_bytes,
            buffer_messages=options.queue_size,
            max_request_bytes=target.max_request_bytes,
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_bytes=settings.fetch_max_bytes,
            partition_fetch_bytes=settings.partition_fetch_bytes,
            identity_expiration_ms=self._expiration_ms,
        )

    # -- the end

    async def _wind_down(self) -> None:
        """Acks in, positions committed, group left: in seconds."""
        self._stop.set()
        for stream in range(self.options.num_streams):
            self.wiring.desk.order(self.number, stream, stop=True)
        if self._epoch_done is not None:
            await asyncio.wait([self._epoch_done], timeout=_STOP_WITHIN)
        for task in list(self._tasks):
            task.cancel()
        if not (self._failure.done() and isinstance(self._failure.exception(), FencedError)):
            with contextlib.suppress(NotMember, KafkaError, OSError, asyncio.TimeoutError, MirrorError):
                await asyncio.wait_for(self._commit(), 3)
            with contextlib.suppress(NotMember, KafkaError, OSError, asyncio.TimeoutError, MirrorError):
                await asyncio.wait_for(self.membership.leave(), 3)
        self.source.close()
        self.target.close()


def _in_thread(work: Callable[[], pa.Table]) -> asyncio.Future[pa.Table]:
    """Run a Spark job beside the event loop; a daemon thread, so that a hanging JVM cannot keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[pa.Table] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error else future.set_result(result)

    def body() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=body, name="epoch", daemon=True).start()
    return future


def first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
