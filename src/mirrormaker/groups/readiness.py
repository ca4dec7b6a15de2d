"""Whether consumer groups could fail over now, as values: a row for each group and topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mirrormaker.model.group_sync import Cost, State, worst
from mirrormaker.model.offset_map_format import Fence


@dataclass(frozen=True)
class ReadinessQuestion:
    """The groups and topics that are asked about, and how the mirror keeps them in step."""

    is_chosen: Callable[[str], bool]
    # None: every topic that the map has.
    is_mirrored: Callable[[str], bool] | None = None
    # The mirror's own consumer group on the source. It is never one of the chosen groups.
    mirror_group: str = ""
    alias: str = ""  # of the source; empty: the id of its cluster
    interval: float = 5.0  # seconds between two rounds of the mirror
    commits: bool = True  # False: the mirror writes checkpoints only

    def has_group(self, name: str) -> bool:
        """Return True if the group is asked about."""
        return name != self.mirror_group and self.is_chosen(name)

    def has_topic(self, name: str) -> bool:
        """Return True if the topic is asked about."""
        return self.is_mirrored is None or self.is_mirrored(name)

    def has(self, group: str, topic: str) -> bool:
        """Return True if the group in the topic is asked about."""
        return self.has_group(group) and self.has_topic(topic)


@dataclass(frozen=True)
class PartitionReadiness:
    """A group in one target partition. An offset is None if there is none."""

    partition: int
    source_offset: int | None  # the smallest one, if several source partitions lead there
    target_offset: int | None
    cost: Cost


@dataclass(frozen=True)
class GroupReadiness:
    """A group in one target topic. The topic is empty if nothing can be read of the group at all."""

    group: str
    topic: str
    partitions: tuple[PartitionReadiness, ...]
    # When the mirror last wrote an offset of it, in seconds since 1970; None: never.
    written_at: float | None = None
    advice: str = ""
    # Other topics that the group reads, and that are not mirrored.
    left_out: tuple[str, ...] = ()

    @property
    def state(self) -> State:
        """Return the state that users must hear of first."""
        return worst(row.cost.state for row in self.partitions)

    @property
    def again(self) -> int | None:
        """Return how many records are read again at most; None if that is not known of all partitions."""
        return _sum(row.cost.again for row in self.partitions)

    @property
    def missing(self) -> int | None:
        """Return how many records are not read at most; None if that is not known of all partitions."""
        return _sum(row.cost.missing for row in self.partitions)


@dataclass(frozen=True)
class Readiness:
    """All chosen groups at one moment."""

    source: str
    target: str
    rows: tuple[GroupReadiness, ...]
    # Why the source was not read: the rows are as the mirror last wrote them. Empty if it was.
    source_trouble: str = ""
    # A failover has closed this flow: no mirror writes any more.
    fence: Fence | None = None

    @property
    def is_ready(self) -> bool:
        """Return True if every group could fail over now, and there is at least one."""
        return bool(self.rows) and all(row.state.is_ready for row in self.rows)


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
