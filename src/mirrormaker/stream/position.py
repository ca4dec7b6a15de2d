"""How far one source partition is mirrored, and under which identity: the value that goes into a stream and comes out advanced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Identity:
    """A producer id and epoch of the target cluster, used for one source partition alone."""

    producer_id: int
    epoch: int


class Cut(NamedTuple):
    """Where one target partition stands: the next sequence number, and the offset from which it would be found."""

    partition: int
    sequence: int
    offset: int


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

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition

    def cut(self, partition: int) -> Cut:
        """The target partition's place; one that nothing was sent to yet starts at number 0."""
        for cut in self.cuts:
            if cut.partition == partition:
                return cut
        return Cut(partition, 0, 0)

    def advanced(self, offset: int, leader_epoch: int, cut: Cut) -> Position:
        """The same partition further on: one target partition has moved."""
        cuts = (cut, *(c for c in self.cuts if c.partition != cut.partition))
        return replace(self, offset=offset, leader_epoch=leader_epoch, cuts=cuts)

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "identity": [self.identity.producer_id, self.identity.epoch],
            "cuts": [[c.partition, c.sequence, c.offset] for c in self.cuts],
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
    "target_topic_id", "target_partitions", "fingerprint",
)  # fmt: skip
