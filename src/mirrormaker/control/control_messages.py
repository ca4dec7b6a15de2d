"""The messages between driver and streams, as values. `control_encoding` turns them into bytes, and `control_session` into proofs.

A stream sends a `Report` twice a second and whenever a partition ends. The driver sends an `Order` whenever it has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Place, Position
from mirrormaker.wire.protocol.codec import TopicPartition

# -- orders


@dataclass(frozen=True)
class Take:
    """Mirror this partition from its position on.

    `clean`: no earlier sender can have requests under way. `tenancy` tells this stay on the stream from earlier ones. Every `Take`
    has one `Ended`, unless the stream stops or dies.
    """

    position: Position
    clean: bool
    tenancy: int


@dataclass(frozen=True)
class Order:
    """Driver to stream. `heard` is the number of the last report that the driver has answered: it extends the lease."""

    take: tuple[Take, ...] = ()
    release: tuple[TopicPartition, ...] = ()
    stop: bool = False
    heard: int | None = None


# -- reports


@dataclass(frozen=True)
class CounterReport:
    """Figures for status page and metrics that are new since the last report of the partition."""

    batches_forwarded: int
    batches_repacked: int
    latency_counts: tuple[tuple[int, int], ...]  # (latency class, records)
    latency_ms: int  # sum over all records
    retries: int
    resumes: int


@dataclass(frozen=True)
class PartitionReport:
    """How far one partition is. `records` and `bytes` count from when the stream took the partition.

    `clean` is said of a partition that has ended: its position covers all that the target holds or may still get from the stream.
    """

    position: Position
    tenancy: int
    state: str
    note: str = ""
    records: int = 0
    bytes: int = 0
    high_watermark: int = -1
    clean: bool = False
    counters: CounterReport | None = None
    # For the offset map: the runs of each target partition that are new or longer since the last report.
    runs: tuple[tuple[Place, tuple[NotedRun, ...]], ...] = ()


@dataclass(frozen=True)
class Released:
    """The stream let go of the partition because it was asked to."""


@dataclass(frozen=True)
class Stopped:
    """The partition cannot go on for now; `final` if trying again would not help."""

    reason: str
    final: bool


@dataclass(frozen=True)
class NeedsIdentity:
    """The partition needs a new producer identity; `restart_at` is a `RestartAt`, `topics` are those that a handler writes to."""

    restart_at: int
    reason: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class CannotDeliver:
    """The target will never take the record at this offset."""

    offset: int
    cause: str
    reason: str


Outcome = Released | Stopped | NeedsIdentity | CannotDeliver


@dataclass(frozen=True)
class Ended:
    """A stream's last word on a partition."""

    partition: PartitionReport
    outcome: Outcome


@dataclass(frozen=True)
class Report:
    """Stream to driver: the partitions that changed or ended since the last report, and figures of its process.

    The driver answers `number`; it is 0 in all pieces of a long report but the last one. `never_taken` are partitions that the
    driver asked to release and that the stream does not have.
    """

    number: int
    partitions: tuple[PartitionReport, ...] = ()
    ended: tuple[Ended, ...] = ()
    never_taken: tuple[TopicPartition, ...] = ()
    buffer_bytes: int = 0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
