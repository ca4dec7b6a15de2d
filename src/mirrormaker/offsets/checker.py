"""Puts together what ZooKeeper and Kafka know of a group, the way the original does.

Committed offsets are Kafka's; where it has none, ZooKeeper's. The original lists the topics that have had an owner in ZooKeeper;
here those follow that only Kafka knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.errors import OUTAGE, ClusterError
from mirrormaker.offsets.group_lag import NONE, GroupLag, Key, Row
from mirrormaker.offsets.group_state import GroupState
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.zookeeper.ensemble import ZooKeeper


@dataclass(frozen=True)
class Known:
    """What one side knows of the group."""

    has_group: bool = False
    topics: frozenset[str] = frozenset()
    offsets: dict[Key, int] = field(default_factory=dict)
    owners: dict[Key, str] = field(default_factory=dict)
    failed: dict[Key, str] = field(default_factory=dict)


class Checker:
    """Asks for one group, as often as wanted."""

    def __init__(
        self, cluster: Cluster, zookeeper: ZooKeeper | None, group: str, topics: tuple[str, ...], backoff: float
    ) -> None:
        """No `topics`: all that the group has."""
        self.cluster, self.zookeeper, self.group, self.topics = cluster, zookeeper, group, topics
        self._coordinator = GroupState(cluster, group, backoff)

    async def look(self) -> GroupLag:
        """Where the group stands now."""
        try:
            # All topics, also when some were named: brokers before 0.11 create those that they do not know.
            await self.cluster.refresh()
            old = await run_in_thread(self._ask_zookeeper)
            new = await self._ask_kafka()
            names = sorted(set(self.topics) or old.topics | new.topics)
            if not names and not old.has_group and not new.has_group:
                raise self._unknown("owners", "neither offsets nor members")
            keys = [
                (t, p) for t in names if t in self.cluster.topics for p in sorted(self.cluster.topics[t].partitions)
            ]
            for topic, partition in keys:
                if topic not in old.topics | new.topics:
                    raise self._unknown(f"offsets/{topic}/{partition}", f"nothing of topic {topic}")
            return await self._standing(keys, old, new)
        except OUTAGE as error:
            raise ClusterError(f"the brokers cannot be asked: {str(error) or type(error).__name__}") from error

    def _ask_zookeeper(self) -> Known:
        keeper, group = self.zookeeper, self.group
        if keeper is None:
            return Known()
        topics = frozenset(keeper.group_topics(group))
        return Known(keeper.has_group(group), topics, keeper.offsets(group), keeper.owners(group))

    async def _ask_kafka(self) -> Known:
        wanted = {
            t: list(topic.partitions) for t, topic in self.cluster.topics.items() if t in self.topics or not self.topics
        }
        offsets, failed = await self._coordinator.committed(wanted)
        owners = await self._coordinator.owners()
        topics = frozenset(topic for topic, _ in (*offsets, *owners, *failed))
        return Known(bool(topics), topics, offsets, owners, failed)

    async def _standing(self, keys: list[Key], old: Known, new: Known) -> GroupLag:
        led = {key: leader.leader for key in keys if (leader := self.cluster.leader(*key)) is not None}
        ends, silent = await self._ends(led)
        offsets: dict[Key, int | None] = {**old.offsets, **new.offsets, **dict.fromkeys(new.failed)}
        owners = {**new.owners, **old.owners}
        rows = [
            Row(*key, led.get(key), offsets.get(key, NONE), _number(ends.get(key)), owners.get(key)) for key in keys
        ]
        brokers = {node: self.cluster.brokers[node] for node in sorted(set(led.values()))}
        failures = silent + [
            f"Could not fetch offset for [{topic},{partition}] due to {new.failed[topic, partition]}."
            for topic, partition in keys
            if (topic, partition) in new.failed
        ]
        return GroupLag(self.group, tuple(rows), brokers, tuple(failures))

    async def _ends(self, led: dict[Key, int]) -> tuple[dict[Key, int | Exception], list[str]]:
        """Where the logs end; a broker that does not answer hides only what it leads."""
        ends: dict[Key, int | Exception] = {}
        silent = []
        for node in sorted(set(led.values())):
            try:
                ends |= await list_offsets(self.cluster, [key for key in led if led[key] == node], LATEST)
            except OSError as error:
                silent.append(f"Could not ask broker {node} where its logs end: {error}.")
        if led and not ends:
            raise ConnectionError(silent[0])
        return ends, silent

    def _unknown(self, znode: str, what: str) -> ClusterError:
        """In the original's words where ZooKeeper was asked: scripts look for them."""
        if self.zookeeper is None:
            return ClusterError(f"group {self.group} has {what} on {self.cluster.endpoint}")
        return ClusterError(
            "org.apache.zookeeper.KeeperException$NoNodeException:"
            f" KeeperErrorCode = NoNode for /consumers/{self.group}/{znode}"
        )


def _number(end: int | Exception | None) -> int | None:
    return end if isinstance(end, int) and end >= 0 else None
