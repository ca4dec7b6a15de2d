"""The offset checker: what ZooKeeper and Kafka know of a group, put together as kafka-consumer-offset-checker does.

An offset in Kafka counts before one in ZooKeeper, an owner in ZooKeeper before one in Kafka. The original lists only
the topics that ZooKeeper knows of the group; this one also lists those that only Kafka knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.errors import OUTAGE, ClusterError, UnsupportedRequest, describe
from mirrormaker.offsets.group_lag import NO_OFFSET, GroupLag, PartitionLag
from mirrormaker.offsets.group_state import GroupState
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.threads import run_in_thread
from mirrormaker.zookeeper.ensemble import ZooKeeper


@dataclass(frozen=True)
class GroupRecord:
    """The group as either ZooKeeper or Kafka knows it."""

    has_group: bool = False
    topics: frozenset[str] = frozenset()
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    # Names of Kafka's error codes, of partitions whose offset cannot be read.
    failed: dict[TopicPartition, str] = field(default_factory=dict)


class Checker:
    """Ask for the lag of one group, as often as wanted."""

    def __init__(
        self, cluster: Cluster, zookeeper: ZooKeeper | None, group: str, topics: tuple[str, ...], backoff: float
    ) -> None:
        """`topics` empty: all that the group has. `backoff`: the longest pause in seconds between two attempts."""
        self.cluster, self.zookeeper, self.group, self.topics = cluster, zookeeper, group, topics
        self._group_state = GroupState(cluster, group, backoff)

    async def check(self) -> GroupLag:
        """Return how far the group is now. Raise ClusterError if it is unknown, or if the brokers cannot be asked."""
        try:
            # All topics are refreshed, even if only some are wanted: brokers before 0.11 create a topic that is asked
            # for.
            await self.cluster.refresh()
            in_zookeeper = await run_in_thread(self._ask_zookeeper)
            in_kafka = await self._ask_kafka()
            known_topics = in_zookeeper.topics | in_kafka.topics
            names = sorted(set(self.topics) or known_topics)
            if not names and not in_zookeeper.has_group and not in_kafka.has_group:
                raise self._unknown("owners", "neither offsets nor members")
            keys = [
                (topic, partition)
                for topic in names
                if topic in self.cluster.topics
                for partition in sorted(self.cluster.topics[topic].partitions)
            ]
            for topic, partition in keys:
                if topic not in known_topics:
                    raise self._unknown(f"offsets/{topic}/{partition}", f"nothing of topic {topic}")
            return await self._group_lag(keys, in_zookeeper, in_kafka)
        except (UnsupportedRequest, *OUTAGE) as error:
            raise ClusterError(f"the brokers cannot be asked: {describe(error)}") from error

    def _ask_zookeeper(self) -> GroupRecord:
        zookeeper, group = self.zookeeper, self.group
        if zookeeper is None:
            return GroupRecord()
        topics = frozenset(zookeeper.group_topics(group))
        return GroupRecord(zookeeper.has_group(group), topics, zookeeper.offsets(group), zookeeper.owners(group))

    async def _ask_kafka(self) -> GroupRecord:
        partitions = {
            name: list(topic.partitions)
            for name, topic in self.cluster.topics.items()
            if name in self.topics or not self.topics
        }
        offsets, failed = await self._group_state.committed(partitions)
        owners = await self._group_state.owners()
        topics = frozenset(topic for topic, _ in (*offsets, *owners, *failed))
        return GroupRecord(bool(topics), topics, offsets, owners, failed)

    async def _group_lag(
        self, keys: list[TopicPartition], in_zookeeper: GroupRecord, in_kafka: GroupRecord
    ) -> GroupLag:
        leaders = {key: partition.leader for key in keys if (partition := self.cluster.leader(*key)) is not None}
        ends, failures = await self._log_ends(leaders)
        offsets: dict[TopicPartition, int | None] = {
            **in_zookeeper.offsets, **in_kafka.offsets, **dict.fromkeys(in_kafka.failed)
        }  # fmt: skip
        owners = {**in_kafka.owners, **in_zookeeper.owners}
        partitions = [
            PartitionLag(*key, leaders.get(key), offsets.get(key, NO_OFFSET), ends.get(key), owners.get(key))
            for key in keys
        ]
        brokers = {node: self.cluster.brokers[node] for node in sorted(set(leaders.values()))}
        failures += [
            f"Could not fetch offset for [{topic},{partition}] due to {in_kafka.failed[topic, partition]}."
            for topic, partition in keys
            if (topic, partition) in in_kafka.failed
        ]
        return GroupLag(self.group, tuple(partitions), brokers, tuple(failures))

    async def _log_ends(self, leaders: dict[TopicPartition, int]) -> tuple[dict[TopicPartition, int], list[str]]:
        """Return the known log end offsets, and failures. A broker that does not answer hides only what it leads."""
        ends: dict[TopicPartition, int | Exception] = {}
        failures = []
        for node in sorted(set(leaders.values())):
            try:
                ends |= await list_offsets(self.cluster, [key for key in leaders if leaders[key] == node], LATEST)
            except OSError as error:
                failures.append(f"Could not ask broker {node} where its logs end: {error}.")
        if leaders and not ends:
            raise ConnectionError(failures[0])
        return {key: end for key, end in ends.items() if isinstance(end, int) and end >= 0}, failures

    def _unknown(self, znode: str, what: str) -> ClusterError:
        """Return the error for an unknown group or topic; with ZooKeeper in the original's words, for scripts."""
        if self.zookeeper is None:
            return ClusterError(f"group {self.group} has {what} on {self.cluster.endpoint}")
        return ClusterError(
            "org.apache.zookeeper.KeeperException$NoNodeException:"
            f" KeeperErrorCode = NoNode for /consumers/{self.group}/{znode}"
        )
