"""A mirror's questions to ZooKeeper: where the brokers are, and how far an old consumer of the same group got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from mirrormaker.errors import ClusterError
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.zookeeper.ensemble import ZooKeeper
from mirrormaker.zookeeper.registrations import broker_addresses

T = TypeVar("T")


async def endpoint_of(settings: SourceSettings | TargetSettings) -> Endpoint:
    """Return how to reach a cluster: through the brokers in its file, or else through those that ZooKeeper knows."""
    endpoint = settings.endpoint
    if endpoint.bootstrap:
        return endpoint
    return replace(endpoint, bootstrap=await ZooKeeperLookup.of(settings).brokers(endpoint.security.protocol))


@dataclass(frozen=True)
class OldGroup:
    """A consumer group of Kafka 0.8, which kept its state in ZooKeeper."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    owners: Collection[str] = ()  # consumers that run at the moment


@dataclass(frozen=True)
class ZooKeeperLookup:
    """Ask the ZooKeeper that a file names. Each question opens a session of its own, because there are few."""

    connect: str
    timeout: float  # seconds
    path: str  # of the file, for errors

    @classmethod
    def of(cls, settings: SourceSettings | TargetSettings) -> ZooKeeperLookup:
        """Return the lookup for a cluster's settings."""
        return cls(settings.zookeeper, settings.zookeeper_timeout, settings.path)

    async def brokers(self, protocol: str) -> tuple[tuple[str, int], ...]:
        """Return the brokers' addresses for a security protocol."""
        return await self._ask(lambda zookeeper: tuple(broker_addresses(zookeeper.brokers(), protocol).values()))

    async def group(self, name: str) -> OldGroup:
        """Return what the consumers of a group have left."""

        def ask(zookeeper: ZooKeeper) -> OldGroup:
            offsets = {key: offset for key, offset in zookeeper.current_offsets(name).items() if offset >= 0}
            return OldGroup(offsets, sorted(set(zookeeper.owners(name).values())))

        return await self._ask(ask)

    async def topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the topics' own settings, without the brokers' defaults."""
        return await self._ask(lambda zookeeper: {name: zookeeper.topic_settings(name) for name in names})

    async def write(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets where the consumers of Kafka 0.8 read them."""
        await self._ask(lambda zookeeper: zookeeper.commit_offsets(group, offsets))

    async def _ask(self, question: Callable[[ZooKeeper], T]) -> T:
        try:
            return await run_in_thread(partial(self._in_session, question))
        except ClusterError as error:
            raise ClusterError(f"{error} (zookeeper.connect in {self.path})") from error

    def _in_session(self, question: Callable[[ZooKeeper], T]) -> T:
        with ZooKeeper(self.connect, self.timeout) as zookeeper:
            return question(zookeeper)
