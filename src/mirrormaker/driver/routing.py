"""Which target partitions a source partition writes to, and the fingerprint of everything that decides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirrormaker.errors import PartitionError
from mirrormaker.model.fingerprint import fingerprint_of
from mirrormaker.model.position import Place, Position
from mirrormaker.wire.client.cluster import Cluster


@dataclass(frozen=True)
class Routing:
    """The settings that decide where records go, besides the numbers of partitions."""

    source: Cluster
    target: Cluster
    path: str  # of the file that sets partition.by
    partition_by: str | None
    handler: tuple[str, str | None] | None
    read_committed: bool

    def counts(self, topic: str) -> tuple[int, int]:
        """Return the topic's number of partitions on the source and on the target."""
        return len(self.source.topics[topic].partitions), len(self.target.topics[topic].partitions)

    def is_known(self, topic: str) -> bool:
        """Return True if both clusters have the topic."""
        return topic in self.source.topics and topic in self.target.topics

    def is_smaller_on_target(self, topic: str) -> bool:
        """Return True if both clusters have the topic, and the target has fewer partitions of it."""
        return self.is_known(topic) and self.counts(topic)[0] > self.counts(topic)[1]

    def by_key(self, topic: str) -> bool:
        """Return True if the topic's records go where their keys say; False if to the partition of the same number."""
        on_source, on_target = self.counts(topic)
        if self.partition_by == "same" and on_target < on_source:
            raise PartitionError(
                f"{topic} has {on_source} partitions on the source and {on_target} on the target: with partition.by=same"
                f" ({self.path}) some have no counterpart; add partitions on the target, or partition by key"
            )
        return on_source != on_target if self.partition_by is None else self.partition_by == "key"

    def fingerprint(self, topic: str, by_key: bool) -> int:
        """Return the fingerprint of everything that decides which sequence number a record of the topic gets."""
        if not by_key and self.handler is None:
            return int(self.read_committed)
        partitions = len(self.target.topics[topic].partitions) if by_key else 0
        return fingerprint_of(self.read_committed, partitions, self.partition_by, self.handler)

    def places(self, topic: str, partition: int, by_key: bool, handler_topics: Iterable[str]) -> list[Place]:
        """Return the target partitions that a source partition may write to."""
        if not by_key and self.handler is None:
            return [("", partition)]
        names = {"": topic} | {name: name for name in handler_topics}
        return [(short, p) for short, name in names.items() for p in sorted(self.target.topics[name].partitions)]

    def had_equal_counts(self, position: Position) -> bool:
        """Return True if both sides had the same number of partitions when the position was written, before one side grew."""
        topic = self.target.topics.get(position.topic)
        if topic is None or position.fingerprint != self.fingerprint(position.topic, False):
            return False
        return len(topic.partitions) == position.target_partitions and position.partition < len(topic.partitions)
