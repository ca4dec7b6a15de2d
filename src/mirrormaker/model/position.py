"""The position of one source partition: how far it is mirrored, and under which producer identity.

A stream gets a position, and reports it again and again as it advances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

from mirrormaker.errors import BadMessage
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records.batch import SEQUENCES

# A target partition: its topic ("" for the name of the source topic) and its number.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and producer epoch of the target cluster, used for one source partition alone."""

    producer_id: int
    epoch: int

    @property
    def is_numbered(self) -> bool:
        """Return True if the target knows producer ids (Kafka 0.11 and later), so that it recognises duplicates."""
        return self.producer_id >= 0


UNNUMBERED = Identity(-1, 0)
# The producer epoch of every identity that a mirror allocates. Brokers give new producer ids with epoch 0 and count up from
# there, so a batch of a mirror is told from those of other producers at a glance. Identities in older ledger entries have others.
MARKED_EPOCH = 19789


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

    def to_json(self) -> list[Any]:
        """Return the cut as JSON values: three numbers, unless there is more to say."""
        return list(self if self.topic or self.ahead else self[:3])

    @classmethod
    def from_json(cls, row: Any) -> Cut:
        """Return the cut that `to_json` has written."""
        if type(row) is not list or list(map(type, row)) not in _CUT_TYPES:
            raise BadMessage("a cut cannot be read")
        return cls(*row)


@dataclass(frozen=True, slots=True)
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
        # dataclasses.replace takes four times as long, and every report of every partition comes through here.
        return Position(
            self.topic, self.partition, offset, leader_epoch, self.topic_id, self.identity, self.target_cluster,
            self.target_topic_id, self.target_partitions, tuple(cuts.values()), self.fingerprint, self.by_key,
        )  # fmt: skip

    def records_since(self, before: Position) -> int:
        """Return how many records the target got since an earlier position of the same identity.

        Every record has its own number, so this also counts records whose acknowledgement nobody heard.
        """
        then = {cut.place: cut.sequence for cut in before.cuts}
        return sum((cut.sequence - then.get(cut.place, 0)) % SEQUENCES for cut in self.cuts)

    def cuts_since(self, before: Position) -> list[Cut]:
        """Return the cuts that differ from those of an earlier position, or are new: `advanced` adds them to it."""
        known = set(before.cuts)
        return [cut for cut in self.cuts if cut not in known]

    def to_json(self) -> list[Any]:
        """Return the position as JSON values."""
        return [
            self.topic, self.partition, self.offset, self.leader_epoch, self.topic_id, self.identity.producer_id,
            self.identity.epoch, self.target_cluster, self.target_topic_id, self.target_partitions, self.fingerprint, self.by_key,
            [cut.to_json() for cut in self.cuts],
        ]  # fmt: skip

    @classmethod
    def from_json(cls, row: Any) -> Position:
        """Return the position that `to_json` has written."""
        if type(row) is not list or list(map(type, row)) != _POSITION_TYPES:
            raise BadMessage("a position cannot be read")
        (
            topic, partition, offset, leader_epoch, topic_id, producer_id, epoch, target_cluster, target_topic_id,
            target_partitions, fingerprint, by_key, cuts,
        ) = row  # fmt: skip
        # Thousands of positions name the same topics: they share the texts.
        topic, topic_id, target_cluster, target_topic_id = map(
            intern, (topic, topic_id, target_cluster, target_topic_id)
        )
        return cls(
            topic, partition, offset, leader_epoch, topic_id, Identity(producer_id, epoch), target_cluster, target_topic_id,
            target_partitions, tuple(map(Cut.from_json, cuts)), fingerprint, by_key,
        )  # fmt: skip


# JSON values by type. Comparing types takes a tenth of the time that a `match` with class patterns takes.
_CUT_TYPES: tuple[list[type], ...] = ([int, int, int], [int, int, int, str, int])
_POSITION_TYPES = [str, int, int, int, str, int, int, str, str, int, int, bool, list]
