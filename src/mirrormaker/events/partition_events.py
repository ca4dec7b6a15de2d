"""Events of single partitions: waiting, stopping, losing, renumbering, and where they start."""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.events.event import Event, Kind

_NAMED = 3  # partitions that a line about many of them names


# -- partitions


@dataclass(frozen=True)
class PartitionsWaiting(Event, kind=Kind.WAITING):
    """Partitions that make no progress for one common reason."""

    partitions: tuple[str, ...]
    reason: str

    @property
    def text(self) -> str:
        """The first few partitions, how many more there are, and the reason."""
        more = f" and {len(self.partitions) - _NAMED} more" if len(self.partitions) > _NAMED else ""
        return f"waiting: {', '.join(self.partitions[:_NAMED])}{more}: {self.reason}"


@dataclass(frozen=True)
class Waiting(Event, kind=Kind.WAITING, words="waiting: {reason}"):
    """The driver waits for a cluster."""

    reason: str


@dataclass(frozen=True)
class PartitionStopped(Event, kind=Kind.STOPPED, words="{reason}"):
    """A partition cannot go on for now."""

    reason: str


@dataclass(frozen=True)
class PartitionRecovered(Event, kind=Kind.RECOVERED, words="{topic}-{partition} flows again"):
    """A partition that had stopped makes progress."""

    topic: str
    partition: int


@dataclass(frozen=True)
class AllRecovered(Event, kind=Kind.RECOVERED, words="all partitions flow again"):
    """No partition waits any more."""


@dataclass(frozen=True)
class LostRange:
    """Source offsets that are gone before they were mirrored, or, if `is_truncated`, that were mirrored and are gone since."""

    topic: str
    partition: int
    first: int
    last: int
    # Records in the range; the most that there may have been if that is not certain.
    count: int
    is_exact: bool
    is_truncated: bool = False

    def __str__(self) -> str:
        offsets = f"{self.topic}-{self.partition}: source offsets {self.first} to {self.last}"
        if self.is_truncated:
            return (
                f"{offsets} were mirrored and are no longer what the source has there (truncated by an unclean election?):"
                f" at most {self.count} records are on the target only"
            )
        records = f"{'' if self.is_exact else 'at most '}{self.count} record{'' if self.count == 1 else 's'}"
        return f"{offsets} were gone before they were mirrored: {records}"


@dataclass(frozen=True)
class RangeLost(Event, kind=Kind.LOST, words="LOST {lost}"):
    """The source no longer has records that were not mirrored, or has others than those that were."""

    lost: LostRange


@dataclass(frozen=True)
class RecordGivenUp(Event, kind=Kind.UNDELIVERED, words="{reason} (written to {path})"):
    """A record that the target will never take was written to the file of undelivered records."""

    reason: str
    path: str


@dataclass(frozen=True)
class Renumbered(Event, kind=Kind.AGAIN, words="{topic}-{partition}: {reason}; going on at source offset {offset}"):
    """A partition goes on under a new producer identity."""

    topic: str
    partition: int
    reason: str
    offset: int


@dataclass(frozen=True)
class MirroredFromStart(Event, kind=Kind.TOPIC, words="{topic}: {reason}; mirroring it from its start"):
    """A source topic was replaced by another of the same name."""

    topic: str
    reason: str


@dataclass(frozen=True)
class SentAgain(
    Event,
    kind=Kind.AGAIN,
    words="{topic}-{partition}: up to {records} records that the target already holds are mirrored a second time",
):
    """Records that the target already holds are mirrored a second time."""

    topic: str
    partition: int
    records: int


@dataclass(frozen=True)
class NumberingChanged(
    Event,
    kind=Kind.AGAIN,
    words=(
        "{topic}-{partition}: isolation.level, the number of partitions, partition.by or the message handler"
        " was changed after an unclean stop; {records} records from offset {offset} on are mirrored a second"
        " time"
    ),
):
    """A setting that decides the numbering was changed after an unclean stop."""

    topic: str
    partition: int
    offset: int
    records: str


# -- where partitions start


@dataclass(frozen=True)
class StartNote(Event, words="{topic}-{partition}: {note}"):
    """Where a partition starts, and why, when that is not simply its committed position."""

    topic: str
    partition: int
    note: str


@dataclass(frozen=True)
class NewTarget(
    Event,
    kind=Kind.AGAIN,
    words="{topic}-{partition}: new target cluster, going on at offset {offset}",
):
    """The group mirrors to another target cluster from now on."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class RecreatedOnSource(
    Event,
    kind=Kind.TOPIC,
    words="{topic} was deleted and created again on the source: mirroring {topic}-{partition} from its start",
):
    """While the mirror was away, a source topic was deleted and created again."""

    topic: str
    partition: int


@dataclass(frozen=True)
class RecreatedOnTarget(
    Event,
    kind=Kind.TOPIC,
    words="{topic} was deleted and created again on the target: {topic}-{partition} goes on at offset {offset}",
):
    """While the mirror was away, a target topic was deleted and created again."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Adopted(Event):
    """Partitions of a topic go on from the records that the target holds: the group has no committed offsets for them."""

    group: str
    topic: str
    partitions: tuple[int, ...]
    # The source offset after the last record of each partition that the target holds.
    offsets: tuple[int, ...]

    @property
    def text(self) -> str:
        """The first few partitions with their offsets, and how many more there are."""
        count = len(self.partitions)
        shown = [f"{self.topic}-{p}" for p in self.partitions[:_NAMED]]
        ends = [str(offset - 1) for offset in self.offsets[:_NAMED]]
        if count == 1:
            return (
                f"group {self.group} has no committed offset for {shown[0]}; the target holds its records up to source offset"
                f" {ends[0]}: going on from there"
            )
        places = ", ".join(f"{name} up to {end}" for name, end in zip(shown, ends, strict=True))
        more = f" and {count - _NAMED} more" if count > _NAMED else ""
        return (
            f"group {self.group} has no committed offsets for {count} partitions of {self.topic}; the target holds their"
            f" records (source offsets: {places}{more}): going on from there"
        )


@dataclass(frozen=True)
class NewGroupOnFullTarget(
    Event,
    kind=Kind.AGAIN,
    words=(
        "group {group} is new, and {partitions} partitions on the target hold records already, which are not found on the"
        " source: records that another program has changed and mirrored there will be there twice"
    ),
):
    """A group starts for the first time, and the target holds records of other writers."""

    group: str
    partitions: int


@dataclass(frozen=True)
class ContinuedFromZooKeeper(
    Event, words="group {group} continues {partitions} partitions from its offsets in ZooKeeper"
):
    """A group of the old consumer goes on."""

    group: str
    partitions: int


@dataclass(frozen=True)
class OldConsumersRunning(
    Event,
    kind=Kind.AGAIN,
    words="group {group} still has consumers registered in ZooKeeper ({consumers}): stop them, or records arrive twice",
):
    """The old consumers of the group are still running."""

    group: str
    consumers: str


@dataclass(frozen=True)
class ZooKeeperUnread(Event, kind=Kind.STOPPED, words="{reason}: {partitions} new partitions start at their beginning"):
    """ZooKeeper cannot be asked where new partitions start."""

    reason: str
    partitions: int


@dataclass(frozen=True)
class ZooKeeperUnwritten(
    Event, kind=Kind.WAITING, words="offsets are not written to ZooKeeper at the moment: {reason}"
):
    """Offsets cannot be written back to ZooKeeper for now."""

    reason: str


@dataclass(frozen=True)
class VersionIgnored(Event, words="{path}: broker.version is outdated and ignored; {cluster} reports its own version"):
    """`broker.version` names a version that the brokers no longer have."""

    path: str
    cluster: str


@dataclass(frozen=True)
class CommitRefused(
    Event,
    kind=Kind.WAITING,
    words="{topic}: the positions of {partitions} partitions cannot be committed, and a restart reads back more: {reason}",
):
    """The coordinator refuses the positions of one topic."""

    topic: str
    partitions: int
    reason: str
