"""Events of the process, its sources, Spark, streams and the consumer group."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.events.event import Event, Kind
from mirrormaker.events.partition_events import LostRange

# -- the process and Spark


@dataclass(frozen=True)
class Stopping(Event, kind=Kind.STOPPED, words="{signal}: stopping; waiting for the target's last answers"):
    """A signal ends the mirror."""

    signal: str


@dataclass(frozen=True)
class WaitingForSpark(Event, kind=Kind.WAITING, words="waiting for Spark to start the streams ({seconds:.0f} s)"):
    """No stream has started yet."""

    seconds: float = field(compare=False)


@dataclass(frozen=True)
class PreparingArchive(
    Event,
    words="preparing an archive of Spark's classes in the background, once: the next start is quicker ({path}, 150 MB)",
):
    """A mirror has started without the archive."""

    path: str


@dataclass(frozen=True)
class HelperFailed(Event, words="{name} has ended: {reason}; records flow on"):
    """Something beside the mirror has died; it comes back with the next start."""

    name: str
    reason: str


@dataclass(frozen=True)
class SessionStopped(
    Event, kind=Kind.TAKEOVER, words="Spark's session was stopped, by someone or by the cluster; starting another"
):
    """The SparkContext has ended although its JVM runs."""


@dataclass(frozen=True)
class PackingLibraries(Event, words="packing the libraries that executors need; they are kept for the next start"):
    """The first start on a Spark cluster packs the libraries that executors need."""


@dataclass(frozen=True)
class JvmDied(Event, kind=Kind.TAKEOVER, words="Spark's JVM has died; starting another"):
    """The JVM of the Spark driver ended."""


@dataclass(frozen=True)
class JobEnded(Event, kind=Kind.TAKEOVER, words="the Spark job ended: {reason}; starting another"):
    """The Spark job that runs the streams ended without being asked to."""

    reason: str


@dataclass(frozen=True)
class SourceFailed(Event, kind=Kind.STOPPED):
    """A source cannot be mirrored; it is tried again if that may help."""

    reason: str
    has_others: bool = False

    @property
    def text(self) -> str:
        """The reason, and that the other sources go on if there are any."""
        return f"{self.reason}{'; the other sources go on' if self.has_others else ''}"


@dataclass(frozen=True)
class SourceBack(Event, kind=Kind.RECOVERED, words="{source} is there again"):
    """A source that had failed is reached again."""

    source: str


@dataclass(frozen=True)
class Finished(Event, words="mirrored {records:,} records, {megabytes:,.1f} MB in {duration}; {missing}"):
    """The totals at the end, and the records that are not on the target."""

    records: int
    megabytes: float
    duration: str
    missing: str


@dataclass(frozen=True)
class UndeliveredInFile(Event, kind=Kind.UNDELIVERED, words="{records:,} records could not be delivered: {path}"):
    """At the end: how many records were given up, and where they are listed."""

    records: int
    path: str


@dataclass(frozen=True)
class LostInTotal(Event, kind=Kind.LOST, words="lost: {lost}"):
    """At the end: one range that the source lost."""

    lost: LostRange


@dataclass(frozen=True)
class StoppedInTotal(Event, kind=Kind.STOPPED, words="stopped: {reason}"):
    """At the end: one partition that could not go on."""

    reason: str


@dataclass(frozen=True)
class LockDirectoryRefused(
    Event, words="{refused} is not a directory of this user; the lock files of group instance ids are in {used} instead"
):
    """Somebody else has made the directory that lock files are usually in."""

    refused: str
    used: str


# -- streams


@dataclass(frozen=True)
class StreamGone(
    Event,
    kind=Kind.TAKEOVER,
    words="stream {stream} is gone; its {partitions} partitions are taken over from what it last reported",
):
    """A stream ended without a last report."""

    stream: int
    partitions: int


@dataclass(frozen=True)
class StreamBack(Event, kind=Kind.RECOVERED, words="stream {stream} is back"):
    """Another attempt at a stream has started."""

    stream: int


@dataclass(frozen=True)
class StreamsCovered(
    Event,
    kind=Kind.TAKEOVER,
    words="stream {streams} has not returned after {seconds:.0f} s; its {partitions} partitions move to the other streams",
):
    """The other streams take over from streams that have not returned."""

    streams: str
    partitions: int
    seconds: float


@dataclass(frozen=True)
class StreamMissing(
    Event,
    kind=Kind.TAKEOVER,
    words=(
        "stream {stream} has not run for {seconds:.0f} s: check that Spark has a free slot for it and that"
        " its tasks start (Spark's log: {log})"
    ),
):
    """Spark does not start a stream."""

    stream: int
    log: str
    seconds: float = field(compare=False)


@dataclass(frozen=True)
class PartitionMoved(
    Event,
    kind=Kind.REBALANCE,
    words="{topic}-{partition} moves from stream {busy} to stream {idle}, which has less to do",
):
    """A partition goes to a less busy stream."""

    topic: str
    partition: int
    busy: int
    idle: int


# -- the consumer group


@dataclass(frozen=True)
class ListenerFailed(Event, kind=Kind.REBALANCE, words="the rebalance listener's {method} {failure}"):
    """The user's rebalance listener raised, or takes too long."""

    method: str
    failure: str


@dataclass(frozen=True)
class Rebalanced(
    Event, kind=Kind.REBALANCE, words="rebalance: {gained} partitions come, {given_up} go, {owned} are mirrored here"
):
    """The group has assigned other partitions to this process."""

    gained: int
    given_up: int
    owned: int


@dataclass(frozen=True)
class StrangeMember(
    Event,
    kind=Kind.REBALANCE,
    words="group {group}: member {member} gets no partitions, because its subscription cannot be read ({reason})",
):
    """A member of the group sent something else than a subscription."""

    group: str
    member: str
    reason: str
