"""The position of one source partition: how far it is mirrored, and under which producer identity.

A stream gets a position, and reports it again and again as it advances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records.batch import SEQUENCES

# A target partition: its topic ("" for the name of the source topic) and its number.
Place = tuple[str, int]


@dataclass(frozen=True)
class Identity:
    """A producer id and producer epoch of the target cluster, used for one source partition alone."""

    producer_id: int
    epoch: int

    @property
    def is_numbered(self) -> bool:
        """Return True if the target knows producer ids (Kafka 0.11 and later), so that it recognises duplicates."""
        return self.producer_id >= 0


UNNUMBERED = Identity(-1, 0)


class Cut(NamedTuple):
    """The state of one target partition: the next sequence number, and the target offset from which to look for it."""

    partition: int
    sequence: int
    offset: int
    # The topic that a message handler sends to; empty: the name of the source topic.
    topic: str = ""
    # Records from after the position that the target holds already; they lie before `sequence` and `offset`.
    ahead: int = 0

    @property
    def place(self) -> Place:
        """Return the target partition."""
        return self.topic, self.partition


@dataclass(frozen=True)
class Position:
    """Everything before `offset` is on the target; `cuts` are the states of the target partitions at that moment."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int  # of the last record before `offset`; -1 if unknown
    topic_id: str  # of the source topic, hexadecimal; empty before Kafka 2.8
    identity: Identity
    target_cluster: str
    target_topic_id: str
    target_partitions: int
    cuts: tuple[Cut, ...]
    # A checksum of the settings that decide which record gets which number: if they change, numbers must not be used
    # again.
    fingerprint: int = 0
    # True: a record's key decides its target partition. False: the number of the source partition does.
    by_key: bool = False

    @property
    def key(self) -> TopicPartition:
        """Return the source partition."""
        return self.topic, self.partition

    def cut(self, partition: int, topic: str = "") -> Cut:
        """Return the cut of a target partition; one that nothing was sent to yet starts at number 0."""
        for cut in self.cuts:
            if cut.place == (topic, partition):
                return cut
        return Cut(partition, 0, 0, topic)

    def advanced(self, offset: int, leader_epoch: int, moved: Iterable[Cut]) -> Position:
        """Return the position at a later offset; `moved` are the cuts that changed."""
        cuts = {cut.place: cut for cut in self.cuts} | {cut.place: cut for cut in moved}
        return replace(self, offset=offset, leader_epoch=leader_epoch, cuts=tuple(cuts.values()))

    def records_since(self, before: Position) -> int:
        """Return how many records the target got since an earlier position of the same identity.

        Every record has its own number, so this also counts records whose acknowledgement nobody heard.
        """
        then = {cut.place: cut.sequence for cut in before.cuts}
        return sum((cut.sequence - then.get(cut.place, 0)) % SEQUENCES for cut in self.cuts)

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "identity": [self.identity.producer_id, self.identity.epoch],
            "cuts": [list(cut) for cut in self.cuts],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Position:
        """Return the position that `to_json` has written."""
        return cls(
            **{name: data[name] for name in _PLAIN},
            identity=Identity(*data["identity"]),
            cuts=tuple(Cut(*cut) for cut in data["cuts"]),
        )


_PLAIN = (
    "topic", "partition", "offset", "leader_epoch", "topic_id", "target_cluster",
    "target_topic_id", "target_partitions", "fingerprint", "by_key",
)  # fmt: skip
