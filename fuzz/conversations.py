"""Conversations with clusters: everything that the program asks brokers for, by the code that asks for it.

Each one runs once against real brokers, when its answers are recorded, and then again and again against peers that repeat these
answers, one of them damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.group_conversations import CONSUMERS, MIRROR, ORDERS, PARTITIONS, failover, groups, readiness
from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.flow import Flow, Wiring
from mirrormaker.driver.map_rebuild import MapRebuild
from mirrormaker.driver.routing import Routing
from mirrormaker.driver.source_loss import end_of_leader_epoch, has_a_record_for_each_offset
from mirrormaker.driver.stream_tasks import stream_task
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.embedded.kafka_cluster import NEWEST
from mirrormaker.errors import DriverGone, UnsupportedRequest
from mirrormaker.groups.flow_ends import read_source
from mirrormaker.mapping.map_keeper import MapKeeper
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.model.topic_filter import Filter, python_matcher
from mirrormaker.offsets.checker import Checker
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.options import parse as parse_options
from mirrormaker.settings.properties import Properties, parse
from mirrormaker.verification.log_reader import LogReader
from mirrormaker.verification.plan import Window
from mirrormaker.verification.survey import Survey
from mirrormaker.wire.client.acls import missing
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.client.log_offsets import LATEST, wait_for_offsets
from mirrormaker.wire.credentials import PLAINTEXT, Password, Sasl, Security
from mirrormaker.wire.protocol.messages import ListGroupsRequest
from mirrormaker.worker.stream import Stream

OLD = "0.10.2.2"  # record format 1, and versions of requests from before 0.11
GROWN = "grown"
USER, PASSWORD = "alice", "s3same-0pen-you"
_OPTIONS = [
    "--consumer.config",
    "source",
    "--producer.config",
    "target",
    "--whitelist",
    ORDERS,
    "--exit.when.caught.up",
]


# -- the driver and a stream


async def mirror(source: Endpoint, target: Endpoint) -> None:
    """Mirror a topic that the target does not have yet, until everything is there."""
    await _mirror(source, target, MIRROR)


async def mirror_again(source: Endpoint, target: Endpoint) -> None:
    """Go on from the positions that the last mirror has committed."""
    await _mirror(source, target, MIRROR)


async def adopt(source: Endpoint, target: Endpoint) -> None:
    """Mirror as a group without committed offsets what the target has already."""
    await _mirror(source, target, "forgetful")


async def _mirror(source: Endpoint, target: Endpoint, group: str) -> None:
    control = ControlServer()
    await control.open("127.0.0.1", "127.0.0.1")

    async def matcher() -> Callable[[str], bool]:
        return python_matcher(ORDERS)

    async def no_spark() -> Any:
        raise AssertionError("streams run in this process")

    options, nowhere = parse_options(_OPTIONS), Path("nowhere")
    wiring = Wiring(
        options, _target(target), Filter.of(ORDERS, None), matcher, no_spark, control, nowhere, lambda _: None
    )
    flow = Flow(0, _source(source, group), wiring, None)
    control.register(0, flow.scheduler)
    try:
        await flow.connect()
        flow._jobs = _StreamBeside(flow)  # type: ignore[assignment]
        await flow.run()
    finally:
        flow.source.close()
        flow.target.close()
        await control.close()


class _StreamBeside:
    """In place of `StreamJobs`: runs one stream in the driver's own process, again and again until the flow stops."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._running = flow, asyncio.Event()
        self._running.set()

    async def run(self, is_stopping: Callable[[], bool]) -> None:
        attempt = 0
        while not is_stopping():
            self._running.clear()
            try:
                # Spark starts a stream again that has lost its driver.
                with suppress(DriverGone):
                    await Stream(replace(stream_task(self._flow), job=1), 0, attempt).run()
            finally:
                self._running.set()
            attempt += 1
            await asyncio.sleep(1)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._running.wait()


async def offset_map(source: Endpoint, target: Endpoint) -> None:
    """Create the offset map, store blocks of it, and read them again."""
    ours, theirs = Cluster(source), Cluster(target)
    try:
        await ours.refresh()
        await theirs.refresh([ORDERS])
        for _ in range(2):
            keeper = MapKeeper(theirs, ours, MIRROR, lambda _: None)
            await keeper.open()
            first = [_position(partition) for partition in range(PARTITIONS)]
            await keeper.begin(first)
            for position in first:
                moved = position.advanced(5, 0, [Cut(position.partition, 5, 5)])
                runs = (NotedRun(0, 0, 5, 0),)
                keeper.note(moved, PartitionReport(moved, 1, "flowing", runs=((("", position.partition), runs),)))
            await keeper.write([position.key for position in first])
            await keeper.clean()
    finally:
        ours.close()
        theirs.close()


async def map_rebuild(source: Endpoint, target: Endpoint) -> None:
    """Rebuild from both logs what the offset map, which is still empty, lacks of the mirrored partitions."""
    ours, theirs = Cluster(source), Cluster(target)
    try:
        positions = await _ledger(ours, theirs)
        keeper = MapKeeper(theirs, ours, MIRROR, lambda _: None)
        await keeper.open()
        await keeper.begin(positions)
        rebuild = MapRebuild(keeper, Routing(ours, theirs, "target", None, None, False), lambda _: None)
        with suppress(TimeoutError):
            await asyncio.wait_for(rebuild.run(), 5)
    finally:
        ours.close()
        theirs.close()


async def _ledger(ours: Cluster, theirs: Cluster) -> list[Position]:
    """Return the positions that the first mirror has committed."""
    await ours.refresh()
    await theirs.refresh()
    keys = [(ORDERS, partition) for partition in range(PARTITIONS)]
    side = await read_source(ours, MIRROR, theirs.id, keys, keys, read_committed=False)
    return list(side.ledger.values())


# -- the other requests of the driver


async def topics(source: Endpoint, _target: Endpoint) -> None:
    """Read permissions, create a topic, add partitions to another one, and ask what became of a log."""
    cluster = Cluster(source)
    try:
        await cluster.refresh()
        await missing(cluster, [ORDERS], ("Read", "Write"))
        new = TargetTopics(cluster, cluster, lambda _: None)
        await new.ensure([_topic("created", 2), _topic(GROWN, 3)], {GROWN})
        with suppress(UnsupportedRequest):
            await has_a_record_for_each_offset(cluster, (ORDERS, 0))
            await end_of_leader_epoch(cluster, _position(0, 3))
        # Old brokers are recognised by it.
        await cluster.ask(ListGroupsRequest(), newest=0)
    finally:
        cluster.close()


def _position(partition: int, offset: int = 0) -> Position:
    return Position(ORDERS, partition, offset, 0, "", Identity(1, 0), "", "", PARTITIONS, (Cut(partition, 0, 0),))


def _topic(name: str, partitions: int) -> Topic:
    return Topic(name, bytes(16), False, {number: Partition(1, 0, 1) for number in range(partitions)})


async def login(source: Endpoint, _target: Endpoint) -> None:
    """Log in on two connections."""
    cluster = Cluster(source)
    try:
        await cluster.refresh()
        await wait_for_offsets(cluster, [(ORDERS, 0)], LATEST)
        await cluster.connection(min(cluster.brokers), "fetch")
    finally:
        cluster.close()


# -- the other commands


async def offsets(source: Endpoint, _target: Endpoint) -> None:
    """Check the offsets of a mirror's group."""
    await _check(source, MIRROR)


async def new_protocol_offsets(source: Endpoint, _target: Endpoint) -> None:
    """Check the offsets of a group that uses Kafka 4's own protocol."""
    await _check(source, CONSUMERS)


async def _check(source: Endpoint, group: str) -> None:
    cluster = Cluster(source)
    try:
        await Checker(cluster, None, group, (), 1.0).check()
    finally:
        cluster.close()


async def survey(source: Endpoint, target: Endpoint) -> None:
    """Look at both sides as `verify` does."""
    look = Survey([_source(source, MIRROR)], _target(target), Window(1, None))
    look._loop.close()
    try:
        await look.connect()
        (plan,) = await look.plans(look.names(Filter.of(ORDERS, None), python_matcher(ORDERS), [ORDERS]))
        await look.refresh_log_starts(plan)
    finally:
        for cluster in (*look._sources, look._target):
            cluster.close()


def read_log(source: Endpoint, _target: Endpoint) -> None:
    """Read a log as a task of `verify` does."""
    with LogReader(source, read_committed=True) as reader:
        for _ in reader.read(ORDERS, 0, 0, 20):
            pass


# -- settings


def _source(endpoint: Endpoint, group: str) -> Any:
    text = f"group.id={group}\nsession.timeout.ms=10000\nheartbeat.interval.ms=300\nauto.offset.reset=earliest\n"
    return source_settings(Properties("source", parse(_servers(endpoint) + text)))


def _target(endpoint: Endpoint) -> Any:
    # Peers repeat answers in their order. The map is written beside the records, so it has a conversation of its own.
    return target_settings(Properties("target", parse(f"{_servers(endpoint)}offset.map=false\n")))


def _servers(endpoint: Endpoint) -> str:
    return f"bootstrap.servers={endpoint}\n"


class Conversation(NamedTuple):
    """A conversation, the version of the source's brokers, and how they are spoken to."""

    talk: Callable[[Endpoint, Endpoint], Coroutine[Any, Any, None] | None]
    version: str = NEWEST
    security: Security = PLAINTEXT

    @property
    def name(self) -> str:
        """Return the name by which its answers are recorded."""
        mechanism = f"-{self.security.sasl.mechanism.lower()}" if self.security.sasl else ""
        version = "" if self.version == NEWEST else f"-{self.version}"
        return self.talk.__name__.replace("_", "-") + mechanism + version

    def run(self, ports: Sequence[int], longest: float) -> None:
        """Talk to the source at the first port and to the target at the last one, for at most so many seconds."""
        source, target = (Endpoint((("127.0.0.1", port),), security=self.security) for port in (ports[0], ports[-1]))
        talking = self.talk(source, target)
        if talking is None:
            return

        async def whole() -> None:
            async with asyncio.timeout(longest):
                await talking

        asyncio.run(whole())


def _login(mechanism: str) -> Security:
    return Security("SASL_PLAINTEXT", sasl=Sasl(mechanism, Password(USER, PASSWORD)))


_EVERYWHERE = (
    mirror, mirror_again, map_rebuild, offset_map, readiness, groups, adopt, offsets, survey, read_log, topics, failover,
)  # fmt: skip
_ALL = (
    *map(Conversation, (*_EVERYWHERE, new_protocol_offsets)),
    *(Conversation(login, security=_login(mechanism)) for mechanism in ("PLAIN", "SCRAM-SHA-256")),
    *(Conversation(talk, OLD) for talk in _EVERYWHERE),
)
CONVERSATIONS = {conversation.name: conversation for conversation in _ALL}
