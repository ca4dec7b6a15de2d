"""What a mirror asks ZooKeeper: who the brokers are, and what an old consumer of the same group has left there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from mirrormaker.errors import ClusterError
from mirrormaker.settings.clients import SourceSettings, TargetSettings
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.zookeeper.ensemble import ZooKeeper
from mirrormaker.zookeeper.registrations import broker_addresses

Key = tuple[str, int]
T = TypeVar("T")


async def endpoint_of(settings: SourceSettings | TargetSettings) -> Endpoint:
    """Where a cluster is: as its file says, or as ZooKeeper knows."""
    endpoint = settings.endpoint
    if endpoint.bootstrap:
        return endpoint
    return replace(endpoint, bootstrap=await ZooKeeperLookup.of(settings).brokers(endpoint.security.protocol))


@dataclass(frozen=True)
class OldGroup:
    """A group as the consumers of 0.8 kept it in ZooKeeper."""

    offsets: Mapping[Key, int] = field(default_factory=dict)
    owners: Collection[str] = ()  # consumers that run at the moment


@dataclass(frozen=True)
class ZooKeeperLookup:
    """One ZooKeeper, asked by a session for each question: they are few."""

    connect: str
    timeout: float  # seconds
    path: str  # of the file that names it

    @classmethod
    def of(cls, settings: SourceSettings | TargetSettings) -> ZooKeeperLookup:
        return cls(settings.zookeeper, settings.zookeeper_timeout, settings.path)

    async def brokers(self, protocol: str) -> tuple[tuple[str, int], ...]:
        return await self._ask(lambda zookeeper: tuple(broker_addresses(zookeeper.brokers(), protocol).values()))

    async def group(self, name: str) -> OldGroup:
        def ask(zookeeper: ZooKeeper) -> OldGroup:
            offsets = {key: offset for key, offset in zookeeper.offsets_of_today(name).items() if offset >= 0}
            return OldGroup(offsets, sorted(set(zookeeper.owners(name).values())))

        return await self._ask(ask)

    async def topic_settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        return await self._ask(lambda zookeeper: {name: zookeeper.topic_settings(name) for name in names})

    async def write(self, group: str, offsets: Mapping[Key, int]) -> None:
        await self._ask(lambda zookeeper: zookeeper.commit_offsets(group, offsets))

    async def _ask(self, question: Callable[[ZooKeeper], T]) -> T:
        try:
            return await run_in_thread(partial(self._answer, question))
        except ClusterError as error:
            raise ClusterError(f"{error} (zookeeper.connect in {self.path})") from error

    def _answer(self, question: Callable[[ZooKeeper], T]) -> T:
        with ZooKeeper(self.connect, self.timeout) as zookeeper:
            return question(zookeeper)
