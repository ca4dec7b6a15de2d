"""One source cluster to the target: the driver's loops around membership, positions, scheduler and Spark job.

State goes one way round: ledger -> position -> stream -> report -> ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.acquire import Acquisition, Parts
from mirrormaker.driver.committer import Committer, ZooKeeperWriter
from mirrormaker.driver.goals import Goals
from mirrormaker.driver.group_step import group_sync_of
from mirrormaker.driver.map_rebuild import MapRebuild
from mirrormaker.driver.membership import Membership
from mirrormaker.driver.patience import ask_until_answered
from mirrormaker.driver.permissions import Permissions
from mirrormaker.driver.rebalance_listener import RebalanceListener
from mirrormaker.driver.renumber import Renumbering
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.scheduler import Reactions, Scheduler, ignore_runs
from mirrormaker.driver.sole_member import SoleMember
from mirrormaker.driver.source_ends import SourceEnds
from mirrormaker.driver.start_positions import StartPositions
from mirrormaker.driver.stream_jobs import StreamJobs
from mirrormaker.driver.stream_tasks import stream_task
from mirrormaker.driver.topic_sync import TopicSync
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.driver.undelivered import Undelivered
from mirrormaker.errors import OUTAGE, ClusterError, FencedError, LoginFailed, MirrorError
from mirrormaker.events import event
from mirrormaker.events.partition_events import VersionIgnored
from mirrormaker.events.process_events import Rebalanced
from mirrormaker.mapping.fence_watch import FenceGuard
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model.partition_life import Gone, Lapsed
from mirrormaker.model.topic_filter import Filter, Matcher
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.settings.options import RunOptions
from mirrormaker.spark.job import Spark
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import broker_number
from mirrormaker.wire.protocol import old_brokers
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import InitProducerIdRequest, JoinGroupRequest
from mirrormaker.wire.transport.tasks import watch
from mirrormaker.wire.transport.turns import in_turns
from mirrormaker.zookeeper.lookup import ZooKeeperLookup, endpoint_of

_BALANCE_EVERY = 5  # seconds between two looks at the streams' loads
_STOP_WITHIN = 8.0  # seconds for streams to bring in their answers: produce timeout, a report, and a margin
_LATE_AFTER = 30  # seconds without any stream after which other processes may have our partitions


@dataclass(frozen=True)
class Wiring:
    """The parts and settings that all flows of a process share."""

    options: RunOptions
    target: TargetSettings
    filter: Filter
    matcher: Callable[[], Awaitable[Matcher]]
    # Returns the running session, or a new one if it has died.
    spark: Callable[[], Awaitable[Spark]]
    control: ControlServer
    spark_log: Path
    report: event.Report
    # A kafka.ConsumerRebalanceListener, or an object like it.
    listener: Any = None


class Flow:
    """Runs until it is stopped, has caught up, or fails."""

    def __init__(self, number: int, settings: SourceSettings, wiring: Wiring, instance_id: str | None) -> None:
        self.number, self.settings, self.wiring = number, settings, wiring
        self.options, self._report = wiring.options, wiring.report
        self.source, self.target = Cluster(settings.endpoint), Cluster(wiring.target.endpoint)
        self.instance_id = instance_id
        self.undelivered = Undelivered(self.options.undelivered_file or f"undelivered-{settings.group_id}.jsonl")
        self.offset_map: MapKeeper | None = None
        if wiring.target.keeps_offset_map:
            self.offset_map = MapKeeper(self.target, self.source, f"group {settings.group_id}", self._report)
        reactions = Reactions(
            is_certain=lambda: self.membership.is_certain,
            allocate=lambda owned, need: self.renumbering.allocate(owned, need),
            commit_soon=lambda: self.committer.commit_soon(),
            streams_work=lambda work: self.membership.streams_work(work),
            note_runs=self.offset_map.note if self.offset_map is not None else ignore_runs,
        )
        streams = self.options.num_streams
        self.scheduler = Scheduler(number, streams, wiring.control, self._report, reactions, wiring.spark_log)
        self.ready = asyncio.Event()  # the first partitions are known: the summary can be shown
        self.was_started = False
        # False if the target cannot tell which records it has (before Kafka 0.11).
        self.is_exact = True
        self._stop = asyncio.Event()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.expiration_ms = 86_400_000
        self._tasks: set[asyncio.Task[Any]] = set()
        self._assemble(Membership)

    def _assemble(self, kind: type[Membership]) -> None:
        """Make the parts and connect them with each other.

        This runs again with `SoleMember` once it is known that the source has no groups; the scheduler stays the same.
        """
        settings, options, source, target = self.settings, self.options, self.source, self.target
        wiring, scheduler, report = self.wiring, self.scheduler, self._report
        zookeeper = ZooKeeperLookup.of(settings) if settings.zookeeper else None
        self.membership = kind(source, settings, self.instance_id, options.num_streams, self._owned_keys, report)
        self.committer = Committer(self.membership, scheduler, options.commit_interval, report, self.offset_map)
        self._routing = routing = Routing(
            source, target, wiring.target.path, wiring.target.partition_by, options.message_handler, settings.read_committed,
        )  # fmt: skip
        starts = StartPositions(source, target, settings, routing, options.accept_new_target, report)
        topics = TargetTopics(source, target, report, zookeeper.topic_settings if zookeeper else None)
        self.renumbering = Renumbering(
            scheduler,
            self.committer,
            starts,
            self.undelivered,
            report,
            abort_on_send_failure=options.abort_on_send_failure,
            spawn=self._spawn,
            fail=self.fail,
        )
        self.topic_sync = TopicSync(
            source,
            target,
            wiring.filter,
            wiring.matcher,
            self.membership,
            scheduler,
            routing,
            topics,
            Permissions(source, target),
            self.renumbering,
            report,
            self.ready.is_set,
        )
        parts = Parts(
            source, target, self.membership, scheduler, self.committer, routing, starts, topics, zookeeper, report,
            self.offset_map,
        )  # fmt: skip
        self.acquisition = Acquisition(parts, self.ready.is_set, self.topic_sync.sync)
        self.goals = Goals(
            source, settings.read_committed, self.membership, scheduler, self.acquisition, lambda: self.topic_sync.troubles,
        )  # fmt: skip
        self._source_ends = SourceEnds(source, settings.read_committed, scheduler)
        self._jobs = StreamJobs(wiring.spark, lambda: stream_task(self), scheduler, report)
        self.group_sync = group_sync_of(
            source, target, settings, options, self.offset_map, scheduler, self.membership, report
        )
        self._listener = RebalanceListener(wiring.listener, report)
        self._zookeeper_writer: ZooKeeperWriter | None = None
        if zookeeper is not None and settings.tells_zookeeper:
            self._zookeeper_writer = ZooKeeperWriter(zookeeper, settings.group_id, scheduler, self.committer, report)

    # -- starting

    async def connect(self) -> None:
        """Reach both clusters; nothing else starts before that."""
        self.target.endpoint = await endpoint_of(self.wiring.target)
        self.source.endpoint = await endpoint_of(self.settings)
        await self._reach("source", self.source, self.settings)
        await self._reach("target", self.target, self.wiring.target)
        # How old records must be for the target to forget their producer.
        self.expiration_ms = await broker_number(self.target, "producer.id.expiration.ms", self.expiration_ms)
        try:
            self.is_exact = await self.target.knows(InitProducerIdRequest)
            if not await self.source.knows(JoinGroupRequest):
                self._assemble(SoleMember)
        except OSError as error:
            raise ClusterError(f"a cluster has gone away at the start: {error}") from error
        for cluster, settings in ((self.source, self.settings), (self.target, self.wiring.target)):
            if (
                old_brokers.versions_before_0_10(settings.broker_version)
                and cluster.found_version == old_brokers.FIRST_WITH_API_VERSIONS
            ):
                self._report(VersionIgnored(settings.path, str(cluster.endpoint)))

    async def _reach(self, side: str, cluster: Cluster, settings: SourceSettings | TargetSettings) -> None:
        try:
            await cluster.refresh()
        except LoginFailed as error:
            raise ClusterError(f"the {side} cluster does not let us in: {error}") from error
        except OSError as error:
            key = "bootstrap.servers" if settings.endpoint.bootstrap else "found through zookeeper.connect"
            raise ClusterError(f"the {side} cluster cannot be reached: {error} ({key} in {settings.path})") from error

    # -- running

    async def run(self) -> None:
        """Mirror until `stop`; raise the reason if the flow ends otherwise."""
        self.was_started = True
        try:
            await self._unless_ended(ask_until_answered(self.topic_sync.sync, self._report))
            await self._unless_ended(self.acquisition.note_first_start(self.topic_sync.waiting))
            guard = FenceGuard(self.target, lambda: self.source.id or f"group {self.settings.group_id}", self._report)
            if self.offset_map is not None and self.is_exact:
                await self._unless_ended(self.offset_map.open(guard.wait))
                self._spawn(self.offset_map.run())
                self._spawn(MapRebuild(self.offset_map, self._routing, self._report).run())
            elif self.is_exact:
                await self._unless_ended(guard.wait())
                self._spawn(guard.run())
            self._spawn(self.membership.keep(self._before_join, self._after_join))
            self._spawn(self._follow_assignments())
            self._spawn(self.topic_sync.run(self.settings.metadata_max_age_ms / 1000, self.acquisition.retry_refused))
            self._spawn(self.committer.run())
            self._spawn(self._tick_every_second())
            self._spawn(self._source_ends.run())
            if self._zookeeper_writer is not None:
                self._spawn(self._zookeeper_writer.run())
            if self.group_sync is not None and self.is_exact:
                self._spawn(self.group_sync.run())
            await self._unless_ended(self.ready.wait())
            self._spawn(self._jobs.run(self._stop.is_set))
            await self._unless_ended(self._stop.wait())
        finally:
            await self._shut_down()

    def stop(self) -> None:
        """End the flow in good order."""
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """End the flow with an error; the first one counts."""
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # asyncio would complain about an exception that nobody has looked at

    @property
    def without_start(self) -> set[TopicPartition]:
        """The partitions that are assigned to this process and have no start position yet."""
        missing = self.membership.generation.assigned - self.scheduler.owned.keys()
        return {key for key in missing if key[0] in self.source.topics}

    async def _unless_ended(self, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for something, but not for longer than the flow runs."""
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait([task, stop, self._failure], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if self._failure.done():
            task.cancel()
            self._failure.result()
        if not task.done():
            task.cancel()
            return
        task.result()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a task beside the others; its failure is the flow's."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        watch(task, self.fail)

    async def _tick_every_second(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(1)
            self.scheduler.tick()
            if second == _LATE_AFTER and not self.scheduler.has_seen_streams:
                self.membership.streams_work(False)
            if second % _BALANCE_EVERY == 0:
                self.scheduler.balance(_BALANCE_EVERY)
            if self.options.exit_when_caught_up:
                await self.goals.set()
                if self.ready.is_set() and self.goals.are_reached():
                    self._stop.set()

    # -- assignments

    def _owned_keys(self) -> set[TopicPartition]:
        """Return what the group is told that this process has, including what it is about to take up or to let go of."""
        return self.scheduler.owned.keys() | self.membership.generation.assigned | self.acquisition.pending

    async def _before_join(self) -> None:
        """Commit: the next owner of our partitions starts from there."""
        with contextlib.suppress(*OUTAGE, MirrorError):
            await asyncio.wait_for(self.committer.commit_moved(), 2)

    def _after_join(self, was_member_all_the_time: bool) -> None:
        """Let go of partitions that went to others; only the ledger knows those that others may have had meanwhile."""
        generation = self.membership.generation
        # In one step: between two, a position could be committed that another process has left behind.
        for owned in self.scheduler:
            is_assigned = owned.position.key in generation.assigned
            is_outdated = not was_member_all_the_time or not (generation.two_rounds or is_assigned)
            if is_outdated or not is_assigned:
                self.scheduler.leave(owned, is_outdated=is_outdated)
        self.scheduler.flush()
        self.acquisition.pending &= generation.assigned if was_member_all_the_time else set()
        self.goals.joined_at = time.monotonic()
        self.scheduler.counts.rebalances += 1
        self.scheduler.changes += 1
        self.acquisition.assigned.set()

    async def _follow_assignments(self) -> None:
        """Let go of partitions that went to others, and take up the ones that came."""
        while True:
            await self.acquisition.assigned.wait()
            self.acquisition.assigned.clear()
            generation, owned = self.membership.generation, self.scheduler.owned
            leaving = {key for key, o in owned.items() if o.life.is_leaving}
            await self._finish(leaving)
            await self._listener.revoked(leaving)
            if generation is self.membership.generation and generation.to_release:
                self.membership.rebalance()  # others can have the released partitions now
            self.acquisition.pending = set(self.membership.generation.assigned - owned.keys())
            acquired = 0
            async for keys in self.acquisition.acquire():
                await self._listener.assigned(keys)
                self.scheduler.place()
                acquired += len(keys)
            self.acquisition.pending = set()
            # The first assignment is in the summary.
            if (leaving or acquired) and self.ready.is_set():
                self._report(Rebalanced(acquired, len(leaving), len(owned)))
            self.scheduler.place()
            self.ready.set()

    async def _finish(self, keys: set[TopicPartition]) -> None:
        """Wait until streams have let go of partitions that belong to another process now; commit and forget them."""
        leaving = [self.scheduler.owned[key] for key in keys]
        deadline = time.monotonic() + _STOP_WITHIN
        while not all(isinstance(owned.life.state, Gone) for owned in leaving) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        # Nobody else removes a partition that is leaving, and it stays gone: so both loops may go in turns.
        async for owned in in_turns(leaving):
            self.scheduler.apply(owned, Lapsed())
        with contextlib.suppress(*OUTAGE, ClusterError):
            await self.committer.commit_moved()
        async for key in in_turns(keys & self.scheduler.owned.keys()):
            self.scheduler.remove(key)
            if self.offset_map is not None:
                self.offset_map.forget(key)

    # -- the end

    async def _shut_down(self) -> None:
        """Bring in the last answers, commit, and leave the group, within seconds."""
        self._stop.set()
        self.scheduler.stop()
        await self._jobs.wait(_STOP_WITHIN)
        for task in list(self._tasks):
            task.cancel()
        if not (self._failure.done() and isinstance(self._failure.exception(), FencedError)):
            with contextlib.suppress(*OUTAGE, MirrorError):
                await asyncio.wait_for(self.committer.commit_moved(), 3)
                if self.offset_map is not None:
                    await asyncio.wait_for(self.offset_map.write_all(), 3)
            if self._zookeeper_writer is not None:
                with contextlib.suppress(asyncio.TimeoutError, MirrorError):
                    await asyncio.wait_for(self._zookeeper_writer.write(), 3)
            with contextlib.suppress(*OUTAGE, MirrorError):
                await asyncio.wait_for(self.membership.leave(), 3)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._listener.revoked(set(self.scheduler.owned)), 3)
        await self._source_ends.look_at_all()
        self.source.close()
        self.target.close()
