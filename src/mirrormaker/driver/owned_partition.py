"""One partition that this process mirrors, as the driver sees it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mirrormaker.model.position import Position

_TRY_AGAIN = (5.0, 15.0, 30.0, 60.0)  # seconds until a partition that stopped is tried again


@dataclass
class OwnedPartition:
    """Where a partition stands, who has it, and what is known of its pace."""

    position: Position
    clean: bool  # nothing can be under way on the target that the position does not know of
    committed: Position | None = None
    stream: int | None = None
    next_stream: int | None = None  # where it goes once it has been let go
    given: bool = False  # a stream has it
    tenancy: int = 0  # which time it was given: reports of earlier times do not count
    busy: bool = False  # it is being given new numbers: nobody's turn until then
    releasing: bool = False
    revoked: bool = False
    outdated: bool = False  # others may have had it since: only the ledger knows where it stands
    stopped: str = ""  # why it cannot be mirrored any further, until it flows again
    tries: int = 0
    try_at: float | None = None  # when it is given to a stream all the same: what was wrong may be right by then
    renumber: str = ""  # why it must get new numbers as soon as its stream has let go
    end: int = -1  # the source's high watermark, as last fetched
    goal: int | None = None  # with --exit.when.caught.up: mirrored to here means done
    state: str = "waiting"
    note: str = ""
    records: int = 0
    bytes: int = 0
    committed_bytes: int = 0
    load: float = 0.0  # bytes/s, smoothed
    _last: tuple[int, int] = field(default=(0, 0))  # what the stream had counted when it last reported
    _weighed: int = 0

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position.offset) if self.end >= 0 else 0

    @property
    def is_even(self) -> bool:
        """Do all target partitions stand at the position, and none ahead of it? Only then may records go other ways."""
        return self.clean and not any(cut.ahead for cut in self.position.cuts)

    @property
    def is_done(self) -> bool:
        return bool(self.stopped) or (self.goal is not None and self.position.offset >= self.goal)

    @property
    def is_idle(self) -> bool:
        """Is it for a stream to take?"""
        if self.given or self.busy or self.revoked or self.outdated:
            return False
        return not self.stopped or (self.try_at is not None and time.monotonic() >= self.try_at)

    def stop(self, reason: str, *, final: bool = False) -> bool:
        """It cannot go on for now; true if that is news."""
        news = reason != self.stopped
        self.stopped, self.state = reason, "stopped"
        self.try_at = None if final else time.monotonic() + _TRY_AGAIN[min(self.tries, len(_TRY_AGAIN) - 1)]
        self.tries += 1
        return news

    def count(self, records: int, size: int, by_number: int | None) -> tuple[int, int]:
        """Add what a stream has done since it last told: it counts from zero whenever it takes the partition.

        Records are counted by their numbers, where they have any: so nothing is missing that a killed stream had not reported.
        """
        new = records - self._last[0] if by_number is None else by_number, size - self._last[1]
        self.records += new[0]
        self.bytes += new[1]
        self._last = (records, size)
        return new

    def handed_over(self) -> None:
        """The stream has let go, or is gone."""
        self.given = self.releasing = False
        self.stream, self.next_stream = self.next_stream if self.next_stream is not None else self.stream, None
        self._last = (0, 0)

    def weigh(self, seconds: float) -> None:
        """Take the pace since the last look into account."""
        rate = (self.bytes - self._weighed) / seconds
        self._weighed = self.bytes
        self.load = 0.5 * self.load + 0.5 * rate
