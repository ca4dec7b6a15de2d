"""One source partition that the group has assigned to this process, as the driver sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrormaker.control.control_messages import PartitionReport
from mirrormaker.model.partition_life import Life, Releasing, Renumbering, Running, Waiting
from mirrormaker.model.position import Identity, Position

NO_IDENTITY = Identity(-1, -1)  # of a partition whose topic has no place on the target


@dataclass(eq=False, slots=True, weakref_slot=True)
class OwnedPartition:
    """Where a partition stands, which stream has it, and how fast it is. `Scheduler.apply` alone changes its life."""

    position: Position
    life: Life = field(default_factory=lambda: Life(Waiting(clean=False)))
    committed: Position | None = None
    # The stream that has the partition, or is to get it next.
    stream: int | None = None
    # The stream that gets the partition once its present stream has let go.
    next_stream: int | None = None
    # The end of the source's log for our isolation level, as the source last said; -1 if it has not said yet.
    high_watermark: int = -1
    # False if the source did not answer when the driver last asked for that end.
    is_answered: bool = True
    # With --exit.when.caught.up: the source offset that has to be reached.
    goal: int | None = None
    # The state and the note of the stream's last report.
    state: str = "waiting"
    note: str = ""
    # Why the position cannot be committed at the moment.
    commit_error: str = ""
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
        """Offsets between the position and the end of the source's log, as the source last said; 0 if it never did."""
        return max(0, self.high_watermark - self.position.offset) if self.high_watermark >= 0 else 0

    @property
    def is_lag_known(self) -> bool:
        """True if the source has said where its log ends, and answered when it was last asked."""
        return self.high_watermark >= 0 and self.is_answered

    @property
    def is_running(self) -> bool:
        """True while a stream has the partition."""
        return isinstance(self.life.state, Running | Releasing)

    @property
    def is_flowing(self) -> bool:
        """True if a stream mirrors the partition without trouble: its reports say where the source's log ends."""
        return self.state == "flowing" and self.is_running and not (self.note or self.stop_reason)

    @property
    def is_renumbering(self) -> bool:
        """True while the driver allocates a new producer identity."""
        return isinstance(self.life.state, Renumbering)

    @property
    def is_even(self) -> bool:
        """True if no target partition holds records from after the position: only then may records go elsewhere."""
        state = self.life.state
        return isinstance(state, Waiting) and state.clean and not self.has_ahead

    @property
    def has_ahead(self) -> bool:
        """True if a target partition certainly holds records from after the position."""
        return any(cut.ahead for cut in self.position.cuts)

    @property
    def stop_reason(self) -> str:
        """Why the partition stopped last, until it makes progress again; empty if it did not."""
        return self.life.trouble.reason if self.life.trouble is not None else ""

    @property
    def is_done(self) -> bool:
        """True if the goal is reached, or cannot be."""
        return bool(self.stop_reason) or (self.goal is not None and self.position.offset >= self.goal)

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
        if report.high_watermark >= 0:
            self.source_ends_at(report.high_watermark)
        return records, size

    def source_ends_at(self, offset: int) -> None:
        """Note where the source's log ends now; after a truncation that is less than before."""
        self.high_watermark, self.is_answered = offset, True

    def released(self) -> None:
        """Note that the stream has let go, or is gone: the next one counts from zero."""
        if self.next_stream is not None:
            self.stream, self.next_stream = self.next_stream, None
        self._last_counts = (0, 0)
        self.state = "waiting"

    def weigh(self, seconds: float) -> None:
        """Take the pace of the last seconds into account."""
        rate = (self.bytes - self._weighed_bytes) / seconds
        self._weighed_bytes = self.bytes
        load = 0.5 * self.load + 0.5 * rate
        self.load = load if load >= 1.0 else 0.0
