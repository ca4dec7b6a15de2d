"""One source partition that the group has assigned to this process, as the driver sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.model.position import Identity, Position

_RETRY_AFTER = (5.0, 15.0, 30.0, 60.0)  # seconds until a partition that stopped is tried again
NO_IDENTITY = Identity(-1, -1)  # of a partition whose topic has no place on the target


@dataclass
class OwnedPartition:
    """Where a partition stands, which stream has it, and how fast it is."""

    position: Position
    # True if nothing can be under way on the target that the position does not know of.
    clean: bool
    committed: Position | None = None
    stream: int | None = None
    # The stream that gets the partition once its present stream has let go.
    next_stream: int | None = None
    # True while a stream has the partition.
    running: bool = False
    # Counts the stays on streams: a report of an earlier stay does not count.
    tenancy: int = 0
    # True while the driver allocates a new producer identity.
    renumbering: bool = False
    # True once the stream was asked to let go.
    releasing: bool = False
    # True once the group has assigned the partition to another process.
    leaving: bool = False
    # True if another process may have had the partition since: only the ledger knows where it stands.
    outdated: bool = False
    # Why the partition cannot go on, until it makes progress again.
    stop_reason: str = ""
    failures: int = 0
    # When a stopped partition is tried again; None if never.
    retry_at: float | None = None
    # Why the partition needs a new producer identity as soon as its stream has let go.
    renumber_reason: str = ""
    # The source's high watermark as the stream last saw it; -1 if unknown.
    high_watermark: int = -1
    # With --exit.when.caught.up: the source offset that has to be reached.
    goal: int | None = None
    state: str = "waiting"
    note: str = ""
    records: int = 0
    bytes: int = 0
    committed_bytes: int = 0
    load: float = 0.0  # bytes/s, smoothed
    _last_counts: tuple[int, int] = field(default=(0, 0))  # records and bytes in the stream's last report
    _weighed_bytes: int = 0

    @property
    def name(self) -> str:
        """The partition as people write it."""
        return f"{self.position.topic}-{self.position.partition}"

    @property
    def lag(self) -> int:
        """Records between the position and the source's high watermark; 0 if the watermark is unknown."""
        return max(0, self.high_watermark - self.position.offset) if self.high_watermark >= 0 else 0

    @property
    def is_even(self) -> bool:
        """True if no target partition holds records from after the position: only then may records go elsewhere."""
        return self.clean and not any(cut.ahead for cut in self.position.cuts)

    @property
    def is_done(self) -> bool:
        """True if the goal is reached, or cannot be."""
        return bool(self.stop_reason) or (self.goal is not None and self.position.offset >= self.goal)

    @property
    def is_idle(self) -> bool:
        """True if the partition may be given to a stream now."""
        if self.running or self.renumbering or self.leaving or self.outdated:
            return False
        return not self.stop_reason or (self.retry_at is not None and time.monotonic() >= self.retry_at)

    def stop(self, reason: str, *, final: bool = False) -> bool:
        """Note that the partition cannot go on; return True if the reason is new."""
        is_news = reason != self.stop_reason
        self.stop_reason, self.state = reason, "stopped"
        pause = _RETRY_AFTER[min(self.failures, len(_RETRY_AFTER) - 1)]
        self.retry_at = None if final else time.monotonic() + pause
        self.failures += 1
        return is_news

    def recover(self) -> None:
        """Forget why the partition had stopped."""
        self.stop_reason, self.failures, self.retry_at = "", 0, None

    def advance(self, report: PartitionReport) -> tuple[int, int]:
        """Move the position forward to a stream's report; return records and bytes that are new.

        A stream counts from zero whenever it takes the partition. Records with sequence numbers are counted by those: so nothing is
        missing that a killed stream had sent and not reported.
        """
        position, records = report.position, report.records - self._last_counts[0]
        if position.identity.is_numbered:
            records = 0
        if position.identity == self.position.identity and position.offset >= self.position.offset:
            if position.identity.is_numbered:
                records = position.records_since(self.position)
            self.position = position
        size = report.bytes - self._last_counts[1]
        self.records += records
        self.bytes += size
        self._last_counts = (report.records, report.bytes)
        self.high_watermark = max(self.high_watermark, report.high_watermark)
        return records, size

    def released(self) -> None:
        """Note that the stream has let go, or is gone."""
        self.running = self.releasing = False
        if self.next_stream is not None:
            self.stream, self.next_stream = self.next_stream, None
        self._last_counts = (0, 0)

    def weigh(self, seconds: float) -> None:
        """Take the pace of the last seconds into account."""
        rate = (self.bytes - self._weighed_bytes) / seconds
        self._weighed_bytes = self.bytes
        self.load = 0.5 * self.load + 0.5 * rate
