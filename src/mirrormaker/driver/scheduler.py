"""Which stream has which partition: giving partitions to streams, and taking in what streams report."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mirrormaker.control.control_messages import (
    CannotDeliver,
    Ended,
    NeedsIdentity,
    Order,
    PartitionReport,
    Report,
    Stopped,
    Take,
)
from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.events import event
from mirrormaker.events.partition_events import (
    AllRecovered,
    PartitionRecovered,
    PartitionStopped,
    PartitionsWaiting,
)
from mirrormaker.events.process_events import PartitionMoved, StreamBack, StreamGone, StreamMissing, StreamsCovered
from mirrormaker.model.placement import moves, place
from mirrormaker.status.counts import Counts
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.worker.interrupts import RestartAt

_COMMIT_AFTER = 64 << 20  # bytes of one partition: a resume never reads back much more than that
_ALARM_AFTER = 30.0  # seconds without a stream; Spark starts in ten, an executor is replaced in five
_COVER_AFTER = 4.0  # seconds without a stream until the others take its partitions
_TENANCIES = itertools.count(1)


@dataclass(frozen=True)
class Reactions:
    """The flow, as far as the scheduler needs it: a question, and the flow's reactions to a stream's report."""

    is_certain: Callable[[], bool]  # that the partitions are still assigned to this process
    cannot_deliver: Callable[[OwnedPartition, CannotDeliver], None]
    renumber: Callable[[OwnedPartition, NeedsIdentity], None]
    commit_soon: Callable[[], None]
    first_stream: Callable[[], None]


class Scheduler:
    """The control server's listener for one flow: owns the partitions, and keeps the streams busy with them."""

    def __init__(
        self, flow: int, streams: int, control: ControlServer, report: event.Report, reactions: Reactions, log: object
    ) -> None:
        """`log` is the file in which Spark says what keeps a stream from starting."""
        self.flow, self.streams = flow, streams
        self.owned: dict[TopicPartition, OwnedPartition] = {}
        self.counts = Counts()
        self.has_seen_streams = False
        self._control, self._report, self._reactions, self._log = control, report, reactions, log
        self._is_stopping = False
        self._absent_since: dict[int, float] = {stream: time.monotonic() for stream in range(streams)}
        self._alarmed: set[int] = set()
        self._new_waits: dict[str, list[OwnedPartition]] = defaultdict(list)
        self._recovered = 0

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(list(self.owned.values()))

    @property
    def may_answer(self) -> bool:
        """True while the partitions are certainly still assigned to this process."""
        return self._reactions.is_certain()

    # -- giving and taking

    def place(self) -> None:
        """Choose a stream for every partition that has none, and hand the partitions out."""
        placed = {key: owned.stream for key, owned in self.owned.items() if owned.stream is not None}
        # A partition without a measured load is weighed by its lag: more records to copy mean more load soon.
        loads = {key: owned.load or owned.lag + 1.0 for key, owned in self.owned.items()}
        for key, stream in place(self.owned, self._present_streams(), loads, placed).items():
            self.owned[key].stream = stream
        self.hand_out()

    def hand_out(self) -> None:
        """Give every idle partition to its stream, if the stream is connected."""
        # A stream that stops must not get its partitions back. While the membership is uncertain, other processes may own them.
        if self._is_stopping or not self.may_answer:
            return
        orders: dict[int, list[Take]] = defaultdict(list)
        for owned in self:
            if owned.is_idle and owned.stream is not None and self._control.is_connected(self.flow, owned.stream):
                owned.running, owned.tenancy = True, next(_TENANCIES)
                orders[owned.stream].append(Take(owned.position, owned.clean, owned.tenancy))
                owned.clean = False
        for stream, takes in orders.items():
            self._control.order(self.flow, stream, Order(take=tuple(takes)))

    def recall(self, owned: OwnedPartition) -> None:
        """Ask the stream to let go of a partition: it awaits its answers and reports a last position."""
        if owned.running and not owned.releasing and owned.stream is not None:
            owned.releasing = True
            self._control.order(self.flow, owned.stream, Order(release=(owned.position.key,)))

    def balance(self, seconds: float) -> None:
        """Move a partition from the busiest stream to the idlest, if that makes the loads more even."""
        for owned in self:
            owned.weigh(seconds)
        placed = {key: o.stream for key, o in self.owned.items() if o.stream is not None and not o.stop_reason}
        loads = {key: owned.load for key, owned in self.owned.items()}
        for key, stream in moves(placed, self._present_streams(), loads).items():
            owned = self.owned[key]
            if owned.running and not owned.releasing and owned.stream is not None:
                self._report(PartitionMoved(*key, owned.stream, stream))
                owned.next_stream = stream
                self.recall(owned)

    def stop(self) -> None:
        """Tell all streams to finish and end."""
        self._is_stopping = True
        for stream in range(self.streams):
            self._control.order(self.flow, stream, Order(stop=True))

    def _present_streams(self) -> list[int]:
        """Return the streams that are connected, or will be in a moment; all of them if none is."""
        now = time.monotonic()
        absent = {stream for stream, since in self._absent_since.items() if now - since > _COVER_AFTER}
        return [stream for stream in range(self.streams) if stream not in absent] or list(range(self.streams))

    def _cover_absent_streams(self) -> None:
        """Place the partitions of streams that do not return on the others."""
        present = self._present_streams()
        orphans = [o for o in self if o.stream is not None and o.stream not in present and not o.running]
        absent = sorted({owned.stream for owned in orphans if owned.stream is not None})
        for owned in orphans:
            owned.stream = None
        if orphans and not self._is_stopping:
            if self.has_seen_streams:
                self._report(StreamsCovered(", ".join(map(str, absent)), len(orphans), _COVER_AFTER))
            self.place()

    def _report_missing_streams(self) -> None:
        """Report streams that have not run for 30 s: Spark says nothing about a task that finds no free slot."""
        now = time.monotonic()
        for stream, since in self._absent_since.items():
            if now - since > _ALARM_AFTER and stream not in self._alarmed:
                self._alarmed.add(stream)
                self._report(StreamMissing(stream, str(self._log), now - since))

    # -- events of streams

    def stream_arrived(self, stream: int) -> None:
        """Give a stream that has connected its partitions."""
        if not self.has_seen_streams:
            self._absent_since = dict.fromkeys(self._absent_since, time.monotonic())
        self.has_seen_streams = True
        self._absent_since.pop(stream, None)
        self.counts.streams[stream].arrived()
        if self.counts.streams[stream].starts > 1 and not self._is_stopping:
            self._report(StreamBack(stream))
        self._alarmed.discard(stream)
        self._reactions.first_stream()
        self.hand_out()

    def stream_left(self, stream: int) -> None:
        """Take back the partitions of a stream that is gone; its requests may still be under way."""
        self._absent_since[stream] = time.monotonic()
        self.counts.streams[stream].left()
        lost = [owned for owned in self if owned.stream == stream and owned.running]
        for owned in lost:
            owned.released()
            owned.clean = False
        if not self._is_stopping:
            self._report(StreamGone(stream, len(lost)))

    def stream_reported(self, stream: int, report: Report) -> None:
        """Take in a stream's report."""
        self.counts.streams[stream].reported(report)
        for part in report.partitions:
            owned = self.owned.get(part.position.key)
            if owned is not None and owned.running and owned.tenancy == part.tenancy:
                self._take_in(owned, part)
            elif owned is None or not owned.running:
                # The order to take it came too late, or it was taken back while the stream was away.
                self._control.order(self.flow, stream, Order(release=(part.position.key,)))
        # Last positions first: the other list would hand a partition out again before its outcome is known.
        for ended in report.ended:
            owned = self.owned.get(ended.partition.position.key)
            is_running_here = owned is not None and owned.stream == stream and owned.running
            if owned is not None and is_running_here and owned.tenancy == ended.partition.tenancy:
                self._partition_ended(owned, ended)
        for key in report.never_taken:
            owned = self.owned.get(key)
            if owned is not None and owned.stream == stream and owned.running:
                owned.released()
                self.hand_out()

    def _take_in(self, owned: OwnedPartition, part: PartitionReport) -> None:
        before = owned.position.offset
        new = owned.advance(part)
        self.counts.add(owned.position.key, *new, part.counters)
        # The outcome of a stopped partition says why; its note would say it twice.
        note = "" if part.state == "stopped" else part.note
        if note and note != owned.note:
            self._new_waits[note].append(owned)
        elif owned.note and not note and part.state == "flowing":
            self._recovered += 1
        if owned.stop_reason and part.state == "flowing" and (owned.position.offset > before or owned.lag == 0):
            owned.recover()
            self._report(PartitionRecovered(*owned.position.key))
        owned.state, owned.note = part.state, note
        if owned.bytes - owned.committed_bytes > _COMMIT_AFTER:
            self._reactions.commit_soon()

    def _partition_ended(self, owned: OwnedPartition, ended: Ended) -> None:
        self._take_in(owned, ended.partition)
        owned.released()
        owned.clean = ended.partition.clean
        outcome = ended.outcome
        if isinstance(outcome, CannotDeliver):
            owned.renumbering = True
            self._reactions.cannot_deliver(owned, outcome)
        elif isinstance(outcome, Stopped):
            if owned.stop(outcome.reason, final=outcome.final):
                self._report(PartitionStopped(outcome.reason))
        elif isinstance(outcome, NeedsIdentity):
            owned.renumbering = True
            self._reactions.renumber(owned, outcome)
        elif owned.renumber_reason and not owned.leaving and owned.is_even:
            owned.renumbering = True
            self._reactions.renumber(owned, NeedsIdentity(RestartAt.SAME_PLACE, owned.renumber_reason))
        else:
            self.hand_out()

    # -- once a second

    def tick(self) -> None:
        """Take care of what no report brings up; call it about once a second."""
        self._report_missing_streams()
        self._cover_absent_streams()
        self.hand_out()
        self._report_waits()

    def _report_waits(self) -> None:
        """Report one event per change of state: not per attempt, and not per partition."""
        for note, waiting in self._new_waits.items():
            self._report(PartitionsWaiting(tuple(owned.name for owned in waiting), note))
        if self._recovered and not any(owned.note for owned in self):
            self._report(AllRecovered())
            self._recovered = 0
        self._new_waits.clear()
