"""Conversations with a cluster: everything that the program asks brokers for, by the code that asks for it.

Each one runs once against a real broker, when its answers are recorded, and then again and again against a peer that repeats
these answers, one of them damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from tests.support.batches import CODECS, numbered, write_batch

from mirrormaker.driver.membership import Membership
from mirrormaker.driver.source_loss import end_of_leader_epoch, has_a_record_for_each_offset
from mirrormaker.driver.start_positions import allocate_identity
from mirrormaker.driver.topics import TargetTopics
from mirrormaker.errors import ConnectionLost
from mirrormaker.model.numbers import Channel
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.offsets.group_state import GroupState
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.properties import Properties, parse
from mirrormaker.wire.client.acls import missing
from mirrormaker.wire.client.cluster import Cluster, Partition, Topic
from mirrormaker.wire.client.configs import BROKER, TOPIC, describe_configs
from mirrormaker.wire.client.groups import GroupCoordinator
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, wait_for_offsets
from mirrormaker.wire.credentials import PLAINTEXT, Password, Sasl, Security
from mirrormaker.wire.protocol import fetch, produce
from mirrormaker.wire.records.batch import Batch
from mirrormaker.worker.resume import read_back

ORDERS, PARTITIONS = "orders", 2
USER, PASSWORD = "alice", "s3same-0pen-you"
_GROUP = "mirror"
_SETTINGS = f"bootstrap.servers=a:1\ngroup.id={_GROUP}\nsession.timeout.ms=10000\n"
_JOINED_WITHIN = 30.0  # seconds
_RECORDS = 5  # in a batch


async def topics(cluster: Cluster) -> None:
    """Read the metadata of all topics and of one, and the permissions on it."""
    await cluster.refresh()
    await cluster.refresh([ORDERS])
    await missing(cluster, [ORDERS], ("Read", "Write"))


async def log_offsets(cluster: Cluster) -> None:
    """Read where logs start and end, and the first offset at a time."""
    await cluster.refresh()
    keys = [(ORDERS, partition) for partition in range(PARTITIONS)]
    for when in (EARLIEST, LATEST, 1_000):
        await wait_for_offsets(cluster, keys, when)


async def settings(cluster: Cluster) -> None:
    """Read settings of a topic and of a broker, as the driver and the streams do."""
    await cluster.refresh()
    (topic,) = await describe_configs(cluster, TOPIC, [ORDERS], ["max.message.bytes", "cleanup.policy"])
    limits = [int(setting.value) for setting in topic.configs if setting.name == "max.message.bytes"]
    broker = min(cluster.brokers)
    (node,) = await describe_configs(cluster, BROKER, [str(broker)], ["producer.id.expiration.ms"], broker)
    limits += [int(setting.value) for setting in node.configs]
    _require(all(limit >= 0 for limit in limits))


async def group(cluster: Cluster) -> None:
    """Join a group, stay in it, commit, look at it from outside, and leave it."""
    await cluster.refresh()
    # A heartbeat more often than a user may choose.
    mirror = replace(source_settings(Properties("fuzz", parse(_SETTINGS))), heartbeat_interval_ms=10)
    member = Membership(cluster, mirror, None, 1, lambda: [(ORDERS, 0)])
    member.subscribe([ORDERS])
    joined = asyncio.Event()

    async def nothing_to_do() -> None:
        return None

    keeping = asyncio.ensure_future(member.keep(nothing_to_do, lambda _: joined.set()))
    joining = asyncio.ensure_future(joined.wait())
    try:
        await asyncio.wait([keeping, joining], timeout=_JOINED_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if keeping.done():
            keeping.result()
        await asyncio.wait([keeping], timeout=0.03)  # a heartbeat or two
        await member.commit({ORDERS: [(0, 5, 0, "note"), (1, 7, -1, "")]})
        await member.committed()
        await GroupCoordinator(cluster, _GROUP).fetch_offsets({ORDERS: [0, 1]}, stable=False)
        state = GroupState(cluster, _GROUP, 0.1)
        await state.committed({ORDERS: [0, 1]})
        await state.owners()
        await member.leave()
    finally:
        keeping.cancel()
        joining.cancel()
        await asyncio.wait([keeping, joining])


async def new_topics(cluster: Cluster) -> None:
    """Create a topic with the settings of another one, and add a partition to a third."""
    await cluster.refresh()
    target = TargetTopics(cluster, cluster, lambda _: None)
    await target.ensure([_topic("created", 2), _topic("grown", 3)], {"grown"})


def _topic(name: str, partitions: int) -> Topic:
    return Topic(name, bytes(16), False, {number: Partition(1, 0, 1) for number in range(partitions)})


async def records(cluster: Cluster) -> None:
    """Write batches under a producer id of our own, read them back, and ask for the settings and producers of the log."""
    await cluster.refresh()
    identity = await allocate_identity(cluster)
    end = (await wait_for_offsets(cluster, [(ORDERS, 0)], LATEST))[ORDERS, 0]
    for number, codec in enumerate(CODECS):
        await _produce(cluster, identity, number * _RECORDS, codec)
    await read_back(cluster, ORDERS, Channel(identity, Cut(0, 0, end)))
    await has_a_record_for_each_offset(cluster, (ORDERS, 0))


async def _produce(cluster: Cluster, identity: Identity, sequence: int, codec: int) -> None:
    leader = cluster.leader(ORDERS, 0)
    if leader is None:
        raise ConnectionLost(f"{ORDERS}-0 has no leader")
    connection = await cluster.connection(leader.leader, "produce-0")
    version = produce.version_for(connection)
    data = memoryview(bytearray(write_batch(numbered(_RECORDS, 40), codec=codec).data))
    Batch(data).stamp(identity.producer_id, identity.epoch, sequence)
    wanted = [(ORDERS, cluster.topics[ORDERS].id, [(0, data)])]
    parts = produce.encode_request(version, wanted, acks=-1, timeout_ms=5000)
    answer = await connection.request(produce.API_KEY, version, produce.is_flexible(version), parts)
    produce.decode_response(version, answer)


async def leader_epoch(cluster: Cluster) -> None:
    """Ask up to which offset a log is what it was."""
    await cluster.refresh()
    position = Position(ORDERS, 0, 3, 0, "", Identity(1, 0), "", "", 1, (Cut(0, 0, 0),))
    await end_of_leader_epoch(cluster, position)


async def versions(cluster: Cluster) -> None:
    """Use the versions that a broker says it knows."""
    await cluster.refresh()
    connection = await cluster.connection(min(cluster.brokers), "fetch")
    fetch.version_for(connection)
    produce.version_for(connection)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("a value that no code expects")


class Conversation(NamedTuple):
    """A conversation, and how the cluster is spoken to."""

    talk: Callable[[Cluster], Awaitable[None]]
    security: Security = PLAINTEXT

    @property
    def name(self) -> str:
        """Return the name by which its answers are recorded."""
        login = f"-{self.security.sasl.mechanism.lower()}" if self.security.sasl else ""
        return self.talk.__name__.replace("_", "-") + login


def _login(mechanism: str) -> Security:
    return Security("SASL_PLAINTEXT", sasl=Sasl(mechanism, Password(USER, PASSWORD)))


CONVERSATIONS: Sequence[Conversation] = (
    *map(Conversation, (topics, log_offsets, settings, group, new_topics, records, leader_epoch, versions)),
    *(Conversation(versions, _login(mechanism)) for mechanism in ("PLAIN", "SCRAM-SHA-256")),
)
