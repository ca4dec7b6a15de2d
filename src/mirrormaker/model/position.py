"""How far one source partition is mirrored, and under which identity: the value that goes into a stream and comes out advanced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mirrormaker.wire.records.batch import SEQUENCES

Place = tuple[str, int]  # a target partition: topic ("" for the source topic's name) and number


@dataclass(frozen=True)
class Identity:
    """A producer id and epoch of the target cluster, used for one source partition alone."""

    producer_id: int
    epoch: int

    @property
    def is_numbered(self) -> bool:
        """Does the target know identities (Kafka 0.11 on)? Otherwise it cannot tell what it has already."""
        return self.producer_id >= 0


UNNUMBERED = Identity(-1, 0)


class Cut(NamedTuple):
    """Where one target partition stands: the next sequence number, and the offset from which it would be found."""

    partition: int
    sequence: int
    offset: int
    topic: str = ""  # where a message handler sends to; empty: the topic's own name
    ahead: int = 0  # records behind the position that are there already, before `sequence` and `offset`

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True)
class Position:
    """Everything before `offset` is on the target; `cuts` say where each target partition stood at that moment."""

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
    fingerprint: int = 0  # of what decides the numbering: changed settings must not reuse numbers
    by_key: bool = False  # records go where their key says; otherwise to the partition of the same number

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition

    def cut(self, partition: int, topic: str = "") -> Cut:
        """The target partition's place; one that nothing was sent to yet starts at number 0."""
        for cut in self.cuts:
            if cut.place == (topic, partition):
                return cut
        return Cut(partition, 0, 0, topic)

    def advanced(self, offset: int, leader_epoch: int, moved: Iterable[Cut]) -> Position:
        """The same partition further on: some target partitions have moved."""
        cuts = {cut.place: cut for cut in self.cuts} | {cut.place: cut for cut in moved}
        return replace(self, offset=offset, leader_epoch=leader_epoch, cuts=tuple(cuts.values()))

    def records_since(self, before: Position) -> int:
        """Records of one identity that came to the target in between, whoever has heard of it: each has its own number."""
        then = {cut.place: cut.sequence for cut in before.cuts}
        return sum((cut.sequence - then.get(cut.place, 0)) % SEQUENCES for cut in self.cuts)

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "identity": [self.identity.producer_id, self.identity.epoch],
            "cuts": [list(cut) for cut in self.cuts],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Position:
        return cls(
            **{name: data[name] for name in _PLAIN},
            identity=Identity(*data["identity"]),
            cuts=tuple(Cut(*cut) for cut in data["cuts"]),
        )


_PLAIN = (
    "topic", "partition", "offset", "leader_epoch", "topic_id", "target_cluster",
    "target_topic_id", "target_partitions", "fingerprint", "by_key",
)  # fmt: skip
