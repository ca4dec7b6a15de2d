"""One source cluster to the target: the driver's loop around membership, ledger, roster and epoch.

State goes one way round: ledger -> position -> stream -> report -> ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import TopicPartition
from pyspark.sql import SparkSession

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.acquire import NOBODY, Acquisition
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.scheduler import Consequences, Scheduler
from mirrormaker.driver.sole_member import SoleMember
from mirrormaker.driver.start_positions import Routing, StartPositions
from mirrormaker.driver.topics import ensure
from mirrormaker.driver.undelivered import Undelivered
from mirrormaker.errors import (
    OUTAGE,
    ClusterError,
    FencedError,
    LoginFailed,
    MirrorError,
    NotMember,
    Unanswered,
    describe,
)
from mirrormaker.model.ledger import rows
from mirrormaker.model.position import Position
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.spark import job
from mirrormaker.spark.jvm import first_line
from mirrormaker.wire.client.cluster import Cluster, Topic
from mirrormaker.wire.client.configs import BROKER, describe_configs
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.protocol import old_brokers
from mirrormaker.wire.protocol.messages import InitProducerIdRequest, JoinGroupRequest
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.worker.stream_task import StreamTask
from mirrormaker.zookeeper.lookup import ZooKeeperLookup, endpoint_of

Key = tuple[str, int]

_LOOK_EVERY = 5.0  # seconds between looks at the source's topics: new ones flow well within 30 s
_WEIGH_EVERY = 5  # seconds between looks at the streams' loads
_STOP_WITHIN = 8.0  # seconds for streams to bring in their acks: produce timeout, a report, and a margin
_EPOCHS = itertools.count(1)  # also after a flow has failed and another has taken its place
_LATE_AFTER = 30  # seconds without any stream after which others may have what we were given
_COMMIT_AGAIN = 3600.0  # seconds until what does not move is committed once more: old brokers forget after a day
_TELL_EVERY = 10.0  # seconds between two writes to ZooKeeper, where that is asked for
_SAY_AFTER = 5.0  # seconds of asking again and again until somebody is told
_LISTENS_FOR = 30.0  # seconds that a rebalance listener may take


@dataclass(frozen=True)
class Wiring:
    """What all flows of a process share."""

    options: RunOptions
    target: TargetSettings
    filter: Filter
    judge: Callable[[], Awaitable[Matcher]]
    spark: Callable[[], Awaitable[SparkSession]]  # the running one, or a new one if it has died
    control: ControlServer
    log: Path  # Spark's
    say: Callable[[str], None]
    listener: Any = None  # a kafka.ConsumerRebalanceListener, or what looks like one


class Flow:
    """Runs until stopped, caught up, or broken."""

    def __init__(self, number: int, settings: SourceSettings, wiring: Wiring, instance_id: str | None) -> None:
        self.number, self.settings, self.wiring = number, settings, wiring
        self.options, self.say = wiring.options, wiring.say
        self.source, self.target = Cluster(settings.endpoint), Cluster(wiring.target.endpoint)
        self.instance_id = instance_id
        self.membership = self._member(Membership)
        routing = Routing(wiring.target.path, wiring.target.partition_by, self.options.message_handler)
        self.opening = StartPositions(
            self.source, self.target, settings, routing, self.options.accept_new_target, self.say
        )
        self.numbers, self.taking = Renumbering(self), Acquisition(self)
        self.rights = Permissions(self.source, self.target, self.say)
        then = Consequences(
            is_sure=lambda: self.membership.is_sure,
            refused=self.numbers.refused,
            renumber=self.numbers.needed,
            commit_soon=self._commit_soon,
            arrived=lambda: self.membership.arrive(),
        )
        self.undelivered = Undelivered(self.options.undelivered_file or f"undelivered-{settings.group_id}.jsonl")
        self.scheduler = Scheduler(number, self.options.num_streams, wiring.control, self.say, then, wiring.log)
        self.ready = asyncio.Event()  # the first partitions are known: the summary can be shown
        self.was_started = False
        self.lookup = ZooKeeperLookup.of(settings) if settings.zookeeper else None
        self._told: dict[Key, int] = {}  # offsets that ZooKeeper has from us
        self.is_exact = True  # the target can tell what it has already
        self.totals = (0, 0)  # records and bytes of partitions that went to other processes
        self.lost: list[str] = []
        self.left_out: list[str] = []  # internal topics that match
        self.overtaken: list[str] = []  # what retention has passed before this start
        self.first_start: bool | None = None  # of this group; unknown until its offsets are read
        self._epoch_done: asyncio.Future[pa.Table] | None = None
        self.assigned = asyncio.Event()
        self._joined_at = 0.0
        self._counts: dict[str, int] = {}  # partitions of each chosen topic, as the group has shared them
        self._stop = asyncio.Event()
        self._commit_now = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expiration_ms = 86_400_000
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- life

    async def connect(self) -> None:
        """Reach both clusters; nothing else is started before that."""
        self.target.endpoint = await endpoint_of(self.wiring.target)
        self.source.endpoint = await endpoint_of(self.settings)
        for which, cluster, settings in (
            ("source", self.source, self.settings),
            ("target", self.target, self.wiring.target),
        ):
            path, named = settings.path, settings.endpoint.bootstrap
            try:
                await cluster.refresh()
            except LoginFailed as error:
                raise ClusterError(f"the {which} cluster does not let us in: {error}") from error
            except OSError as error:
                key = "bootstrap.servers" if named else "found through zookeeper.connect"
                raise ClusterError(f"the {which} cluster cannot be reached: {error} ({key} in {path})") from error
        await self._read_expiration()
        try:
            self.is_exact = await self.target.knows(InitProducerIdRequest)
            if not await self.source.knows(JoinGroupRequest):
                self.membership = self._member(SoleMember)
        except OSError as error:
            raise ClusterError(f"a cluster has gone away at the start: {error}") from error
        for cluster, settings in ((self.source, self.settings), (self.target, self.wiring.target)):
            if old_brokers.of(settings.broker_version) and cluster.found_version == old_brokers.CAN_BE_ASKED:
                self.say(
                    f"{settings.path}: broker.version is not so any more; {cluster.endpoint} says itself what it knows"
                )

    def _member(self, kind: type[Membership]) -> Membership:
        return kind(self.source, self.settings, self.instance_id, self.options.num_streams, self._held)

    async def run(self) -> None:
        """Mirror until `stop`; raises what ended it otherwise."""
        self.was_started = True
        try:
            await self._until(self.patiently(self.look))
            self.start(self.membership.keep(self._before_joining, self._after_joining))
            self.start(self._follow_assignments())
            self.start(self._keep_looking())
            self.start(self._keep_committing())
            self.start(self._keep_house())
            if self.lookup is not None and self.settings.tells_zookeeper:
                self.start(self._keep_telling(self.lookup))
            await self._until(self.ready.wait())
            self.start(self._keep_an_epoch())
            await self._until(self._stop.wait())
        finally:
            await self._wind_down()

    def stop(self) -> None:
        self._stop.set()

    @property
    def records_and_bytes(self) -> tuple[int, int]:
        """What it has mirrored, also of partitions that it no longer has."""
        holdings = self.scheduler.holdings.values()
        return self.totals[0] + sum(h.records for h in holdings), self.totals[1] + sum(h.bytes for h in holdings)

    async def _until(self, what: Any) -> Any:
        """Wait for something, or for whatever makes waiting pointless."""
        task, stop = asyncio.ensure_future(what), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([task, stop, self._failure], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._failure.done():
            task.cancel()
            self._failure.result()
        if not task.done():
            task.cancel()
            return None
        return task.result()

    def start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception():
            self.fail(task.exception())

    def fail(self, error: BaseException | None) -> None:
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()

    async def _read_expiration(self) -> None:
        """How old records must be for the target to forget who wrote them; the default where it does not tell."""
        broker = min(self.target.brokers, default=0)
        with contextlib.suppress(*OUTAGE):
            keys = ["producer.id.expiration.ms"]
            for setting in (await describe_configs(self.target, BROKER, [str(broker)], keys, broker))[0].configs or ():
                self._expiration_ms = int(setting.value)

    # -- topics

    async def look(self) -> None:
        """Which topics there are, and their counterparts on the target."""
        judge = await self.wiring.judge()
        await self.source.refresh()
        await self.target.refresh()
        if not self.ready.is_set():
            await self.rights.find(self.wiring.filter.names)
        chosen = self.wiring.filter.chosen(self.source.topics.values(), judge)
        chosen = await self.rights.sift(chosen, must=not self.ready.is_set())
        self.left_out = self.wiring.filter.left_out(self.source.topics.values(), judge)
        grow = {h.position.topic for h in self.scheduler if not h.stopped and self.numbers.was_equal(h.position)}
        for line in await self.ensure(chosen, grow):
            self.say(line)
        self.numbers.see_to_partitions()
        self.membership.subscribe(t.name for t in chosen)
        counts = {t.name: len(t.partitions) for t in chosen}
        if any(self._counts.get(topic, count) != count for topic, count in counts.items()):
            self.membership.rebalance()
        self._counts = counts
        self.taking.try_refused_again()

    async def ensure(self, topics: list[Topic], grow: set[str]) -> list[str]:
        """The topics on the target; with the settings that they have on the source, as far as anyone tells them."""
        return await ensure(self.source, self.target, topics, grow, self.lookup.topic_settings if self.lookup else None)

    async def _keep_looking(self) -> None:
        pause, said = min(_LOOK_EVERY, self.settings.metadata_max_age_ms / 1000), ""
        while True:
            await asyncio.sleep(pause)
            try:
                await self.look()
            except OUTAGE:
                continue  # the next look will tell
            except ClusterError as error:
                if str(error) != said:
                    said = str(error)
                    self.say(said)

    # -- assignments

    def _held(self) -> set[Key]:
        """What the group is told that we have: also what we are about to take up, or to let go of."""
        return self.scheduler.holdings.keys() | self.membership.seat.assigned | self.taking.keys

    def owns(self, holding: OwnedPartition) -> bool:
        """May its place in the ledger be written by us? With the generation of this very moment, nobody else's may."""
        return self._is_current(holding) and holding.position.key in self.membership.seat.assigned

    def _is_current(self, holding: OwnedPartition) -> bool:
        return not holding.outdated and self.scheduler.holdings.get(holding.position.key) is holding

    async def _before_joining(self) -> None:
        """Whoever gets our partitions starts from what we commit now."""
        with contextlib.suppress(*OUTAGE, MirrorError):
            await asyncio.wait_for(self._commit(), 2)

    def _after_joining(self, has_been_there: bool) -> None:
        """What we hold, or are about to take up, counts only if nobody else can have had it since."""
        seat = self.membership.seat
        for holding in self.scheduler:
            gone = not seat.two_rounds and holding.position.key not in seat.assigned
            holding.outdated |= gone or not has_been_there
        self.taking.keys &= self.membership.seat.assigned if has_been_there else set()
        self._joined_at = time.monotonic()
        self.scheduler.counts.rebalances += 1
        self.assigned.set()

    async def _follow_assignments(self) -> None:
        while True:
            await self.assigned.wait()
            self.assigned.clear()
            seat = self.membership.seat
            held = self.scheduler.holdings
            leaving = {key for key, holding in held.items() if key not in seat.assigned or holding.outdated}
            await self._let_go(leaving)
            await self._tell_listener("on_partitions_revoked", leaving)
            if seat is self.membership.seat and seat.has_to_go:
                self.membership.rebalance()  # what must go is free for others now
            self.taking.keys = set(self.membership.seat.assigned - held.keys())
            taken = await self.taking.take_up()
            self.taking.keys = set()
            await self._tell_listener("on_partitions_assigned", taken)
            if (leaving or taken) and self.ready.is_set():  # the first share is in the summary
                self.say(f"rebalance: {len(taken)} partitions come, {len(leaving)} go, {len(held)} are mirrored here")
            self.scheduler.plan()
            self.ready.set()

    async def _tell_listener(self, what: str, keys: Collection[Key]) -> None:
        """A listener only listens, in a thread of its own: what it does wrong is said, and changes nothing."""
        if self.wiring.listener is not None and keys:
            try:
                told = run_in_thread(
                    partial(getattr(self.wiring.listener, what), {TopicPartition(*key) for key in keys})
                )
                await asyncio.wait_for(told, _LISTENS_FOR)
            except asyncio.TimeoutError:
                self.say(f"the rebalance listener's {what} takes longer than {_LISTENS_FOR:g} s: going on without it")
            except Exception as error:
                self.say(f"the rebalance listener's {what} raised {type(error).__name__}: {error}")

    async def _let_go(self, keys: set[Key]) -> None:
        """What belongs to another process now: finish, commit, forget."""
        leaving = [self.scheduler.holdings[key] for key in keys]
        for holding in leaving:
            holding.revoked = True
            self.scheduler.recall(holding)
        deadline = time.monotonic() + _STOP_WITHIN
        while any(holding.given or holding.busy for holding in leaving) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        with contextlib.suppress(*OUTAGE):
            await self._commit()
        for key in keys:
            if key not in self.scheduler.holdings:
                continue
            holding = self.scheduler.holdings.pop(key)
            self.totals = (self.totals[0] + holding.records, self.totals[1] + holding.bytes)

    def counts(self, topic: str) -> tuple[int, int]:
        return len(self.source.topics[topic].partitions), len(self.target.topics[topic].partitions)

    async def patiently(self, ask: Callable[[], Any]) -> Any:
        """Until there is an answer; a rebalance or a moving coordinator is no reason to give up."""
        since, said = time.monotonic(), ""
        while True:
            try:
                return await ask()
            except OUTAGE as error:
                late = time.monotonic() - since > _SAY_AFTER and not isinstance(error, NotMember)
                if (late or isinstance(error, Unanswered)) and describe(error) != said:
                    said = describe(error)
                    self.say(f"waiting: {said}")
                await asyncio.sleep(0.1)

    def _commit_soon(self) -> None:
        self._commit_now.set()

    # -- what happens every now and then

    async def _keep_house(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(1)
            self.scheduler.tick()
            if second == _LATE_AFTER:
                self.membership.be_late()
            if second % _WEIGH_EVERY == 0:
                self.scheduler.even_out(_WEIGH_EVERY)
            if self.options.exit_when_caught_up:
                await self._set_goals()
                if self._is_done():
                    self._stop.set()

    async def _set_goals(self) -> None:
        """What is there now is what has to be mirrored; what comes later is not waited for."""
        without = [key for key, holding in self.scheduler.holdings.items() if holding.goal is None]
        if without:
            with contextlib.suppress(*OUTAGE):
                read_committed = self.settings.read_committed
                ends = await list_offsets(self.source, without, LATEST, read_committed=read_committed)
                for key, end in ends.items():
                    holding = self.scheduler.holdings.get(key)
                    # A source that ends before our position was cut back: its stream will find that out first.
                    if holding is not None and isinstance(end, int) and end >= holding.position.offset:
                        holding.goal = holding.end = end

    def _is_done(self) -> bool:
        """Are all goals reached, and is nobody about to hand us more?"""
        if not self.ready.is_set() or not self.membership.is_settled or self.taking.keys or self.assigned.is_set():
            return False
        if not self.scheduler.holdings and self.membership.topics:  # others have all: or they are just letting go
            return time.monotonic() - self._joined_at > _WEIGH_EVERY
        missing = self.membership.seat.assigned - self.scheduler.holdings.keys()
        if any(topic in self.source.topics for topic, _ in missing):
            return False
        return all(holding.is_done for holding in self.scheduler)

    async def _keep_committing(self) -> None:
        refreshed = time.monotonic()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._commit_now.wait(), self.options.commit_interval)
            self._commit_now.clear()
            again = time.monotonic() - refreshed > _COMMIT_AGAIN
            with contextlib.suppress(*OUTAGE):
                await self._commit(again=again)
                refreshed = time.monotonic() if again else refreshed

    async def _commit(self, *, again: bool = False) -> None:
        """Write down how far every partition is, if it has moved, or all of them; the ledger only goes forward."""
        moved = [
            (h, h.position, h.bytes)
            for h in self.scheduler
            if (again or h.position != h.committed) and not h.busy and self._may_commit(h)
        ]
        if moved:
            await self.membership.commit(rows(position for _, position, _ in moved))
            for holding, position, size in moved:
                holding.committed, holding.committed_bytes = position, size

    def _may_commit(self, holding: OwnedPartition) -> bool:
        """What leaves us in two rounds is ours until we join again; in one round, it has another owner already."""
        if holding.position.identity == NOBODY:
            return False  # it has nowhere to go: what the ledger says of it stays true
        return self.owns(holding) or (
            self._is_current(holding) and holding.position.key in self.membership.seat.has_to_go
        )

    async def _keep_telling(self, lookup: ZooKeeperLookup) -> None:
        """ZooKeeper has the offsets too, a little later: for consumers and tools that look there."""
        said = ""
        while True:
            await asyncio.sleep(_TELL_EVERY)
            try:
                await self._tell(lookup)
                said = ""
            except ClusterError as error:
                if str(error) != said:
                    said = str(error)
                    self.say(f"offsets are not written to ZooKeeper at the moment: {said}")

    async def _tell(self, lookup: ZooKeeperLookup) -> None:
        offsets = {h.position.key: h.committed.offset for h in self.scheduler if h.committed and self._may_commit(h)}
        moved = {key: offset for key, offset in offsets.items() if self._told.get(key) != offset}
        if moved:
            await lookup.write(self.settings.group_id, moved)
            self._told |= moved

    # -- the epoch

    async def _keep_an_epoch(self) -> None:
        """One Spark job after another; normally the first one lasts as long as the mirror."""
        while not self._stop.is_set():
            spark = await self.wiring.spark()
            shares: list[list[Position]] = [[] for _ in range(self.options.num_streams)]
            for holding in self.scheduler:
                if holding.stream is not None:
                    shares[holding.stream].append(holding.position)
            self._epoch_done = run_in_thread(partial(job.run, spark, self._work(next(_EPOCHS)), shares))
            try:
                await asyncio.shield(self._epoch_done)
            except Exception as error:
                if not self._stop.is_set():
                    self.say(f"the Spark job ended: {first_line(error)}; starting another")
                    await asyncio.sleep(1)

    def _work(self, number: int) -> StreamTask:
        settings, target, options = self.settings, self.wiring.target, self.options
        return StreamTask(
            flow=self.number,
            epoch=number,
            control=self.wiring.control.address,
            secret=self.wiring.control.secret,
            source=replace(self.source.endpoint, broker_version=self.source.found_version),
            target=replace(self.target.endpoint, broker_version=self.target.found_version),
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
            batch_bytes=target.batch_bytes,
            linger=target.linger,
            codec=target.codec,
            partition_by=target.partition_by,
            handler=options.message_handler,
        )

    # -- the end

    async def _wind_down(self) -> None:
        """Acks in, positions committed, group left: in seconds."""
        self._stop.set()
        self.scheduler.dismiss()
        if self._epoch_done is not None:
            await asyncio.wait([self._epoch_done], timeout=_STOP_WITHIN)
        for task in list(self._tasks):
            task.cancel()
        if not (self._failure.done() and isinstance(self._failure.exception(), FencedError)):
            with contextlib.suppress(*OUTAGE, MirrorError):
                await asyncio.wait_for(self._commit(), 3)
            if self.lookup is not None and self.settings.tells_zookeeper:
                with contextlib.suppress(asyncio.TimeoutError, MirrorError):
                    await asyncio.wait_for(self._tell(self.lookup), 3)
            with contextlib.suppress(*OUTAGE, MirrorError):
                await asyncio.wait_for(self.membership.leave(), 3)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._tell_listener("on_partitions_revoked", set(self.scheduler.holdings)), 3)
        self.source.close()
        self.target.close()
