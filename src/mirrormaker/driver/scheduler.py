"""Which stream has which partition: giving partitions to streams, and taking in what streams report.

A partition's life is a state machine (`model/partition_life.py`). `Scheduler.apply` alone moves it on: it takes the events of
group, streams and timers, and carries out the effects.
"""

from __future__ import annotations

import asyncio
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
from mirrormaker.model import partition_life as life
from mirrormaker.model.placement import moves, place
from mirrormaker.model.position import Position
from mirrormaker.status.counts import Counts
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.transport.turns import PARTITIONS_IN_ONE_TURN

_COMMIT_AFTER = 64 << 20  # bytes of one partition: a resume never reads back much more than that
_ALARM_AFTER = 30.0  # seconds without a stream; Spark starts in ten, an executor is replaced in five
_FIRST_ALARM_AFTER = 60.0  # seconds until any stream has run; YARN starts in half a minute
_COVER_AFTER = 4.0  # seconds without a stream until the others take its partitions
_TENANCIES = itertools.count(1)

Need = NeedsIdentity | CannotDeliver


def ignore_runs(position: Position, report: PartitionReport) -> None:
    """Do nothing: there is no offset map."""


@dataclass(frozen=True)
class Reactions:
    """The flow, as far as the scheduler needs it: a question, and the flow's reactions to a stream's report."""

    is_certain: Callable[[], bool]  # that the partitions are still assigned to this process
    allocate: Callable[[OwnedPartition, Need], None]
    commit_soon: Callable[[], None]
    streams_work: Callable[[bool], None]  # False once no stream has run for a while, True once one does again
    # Takes in the runs that came with the present position.
    note_runs: Callable[[Position, PartitionReport], None] = ignore_runs


class Scheduler:
    """The control server's listener for one flow: owns the partitions, and keeps the streams busy with them."""

    def __init__(
        self, flow: int, streams: int, control: ControlServer, report: event.Report, reactions: Reactions, log: object
    ) -> None:
        """`log` is the file in which Spark says what keeps a stream from starting."""
        self.flow, self.streams = flow, streams
        self.owned: dict[TopicPartition, OwnedPartition] = {}
        # Partitions whose position has changed since it was committed last.
        self.moved: dict[TopicPartition, None] = {}
        # Partitions of which no stream reports the end of the source's log.
        self.not_flowing: dict[TopicPartition, None] = {}
        # Counts the changes that a display could show: nothing has changed if the number is the same.
        self.changes = 0
        self.counts = Counts()
        self.has_seen_streams = False
        self._control, self._report, self._reactions, self._log = control, report, reactions, log
        self._is_stopping = False
        self._absent_since: dict[int, float] = {stream: time.monotonic() for stream in range(streams)}
        self._alarmed: set[int] = set()
        # Partitions that no stream has and that may be given to one, now or after a pause.
        self._idle: dict[TopicPartition, None] = {}
        # Orders that were decided and not sent yet, by stream.
        self._takes: dict[int, list[Take]] = defaultdict(list)
        self._releases: dict[int, list[TopicPartition]] = defaultdict(list)
        # Set while more partitions are idle than are handed out in one turn of the event loop.
        self._next_turn: asyncio.Handle | None = None
        # Partitions that have moved bytes since the loads were last measured, or have a load.
        self._busy: dict[TopicPartition, None] = {}
        self._new_waits: dict[str, list[OwnedPartition]] = defaultdict(list)
        # Partitions whose last report carried a note, and how many have recovered since the last report of that.
        self._noted: dict[TopicPartition, None] = {}
        self._recovered = 0

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(list(self.owned.values()))

    @property
    def streams_at_work(self) -> int:
        """The number of streams that are connected."""
        return len(self._connected_streams())

    @property
    def may_answer(self) -> bool:
        """True while the partitions are certainly still assigned to this process."""
        return self._reactions.is_certain()

    # -- partitions come and go

    def add(self, owned: OwnedPartition) -> None:
        """Own a partition from now on."""
        key = owned.position.key
        self.owned[key] = owned
        self._idle[key] = self.not_flowing[key] = None
        self.changes += 1

    def remove(self, key: TopicPartition) -> OwnedPartition:
        """Forget a partition, which belongs to another process now or has to be acquired again."""
        for index in (self.moved, self.not_flowing, self._idle, self._busy, self._noted):
            index.pop(key, None)
        self.changes += 1
        return self.owned.pop(key)

    def leave(self, owned: OwnedPartition, *, is_outdated: bool) -> None:
        """Let go of a partition that the group has assigned to another process; `flush` sends the order."""
        self.apply(owned, life.Leave(is_outdated))

    def apply(self, owned: OwnedPartition, happened: life.Event) -> None:
        """Move a partition's life on, and carry out the effects; orders to streams wait for `flush`."""
        key, was_running = owned.position.key, owned.is_running
        owned.life, effects = life.step(owned.life, happened)
        if was_running and not owned.is_running:
            owned.released()
        if isinstance(owned.life.state, life.Waiting | life.Stopped):
            self._idle[key] = None
        else:
            self._idle.pop(key, None)
        for effect in effects:
            self._carry_out(owned, effect)
        self._note_change(owned)

    def _note_change(self, owned: OwnedPartition) -> None:
        self.changes += 1
        if owned.is_flowing:
            self.not_flowing.pop(owned.position.key, None)
        else:
            self.not_flowing[owned.position.key] = None

    def _carry_out(self, owned: OwnedPartition, effect: life.Effect) -> None:
        match effect:
            case life.OrderTake(stream, tenancy, clean):
                self._takes[stream].append(Take(owned.position, clean, tenancy))
            case life.OrderRelease(stream):
                self._releases[stream].append(owned.position.key)
            case life.Allocate(need):
                self._reactions.allocate(owned, need)
            case life.ReportStop(reason):
                owned.state = "stopped"
                self._report(PartitionStopped(reason))
            case life.ReportRecovery():
                self._report(PartitionRecovered(*owned.position.key))

    def flush(self) -> None:
        """Send the orders that were decided since the last time, one message for each stream."""
        for stream in {*self._takes, *self._releases}:
            takes, releases = self._takes.pop(stream, ()), self._releases.pop(stream, ())
            self._control.order(self.flow, stream, Order(take=tuple(takes), release=tuple(releases)))

    # -- giving and taking

    def place(self) -> None:
        """Choose a stream for every partition that has none, and hand the partitions out."""
        placed = {key: owned.stream for key, owned in self.owned.items() if owned.stream is not None}
        # A partition without a measured load is weighed by its lag: more records to copy mean more load soon.
        loads = {key: owned.load or owned.lag + 1.0 for key, owned in self.owned.items()}
        for key, stream in place(self.owned, self._present_streams(), loads, placed).items():
            self.owned[key].stream = stream
        self.changes += 1
        self.hand_out()

    def hand_out(self) -> None:
        """Give every idle partition to its stream, if the stream is connected; many of them in several turns of the loop."""
        # A stream that stops must not get its partitions back. While the membership is uncertain, other processes may own them.
        if self._is_stopping or not self.may_answer:
            return
        now = time.monotonic()
        connected, idle = self._connected_streams(), (self.owned[key] for key in self._idle)
        can_be_given = (owned for owned in idle if owned.stream in connected and owned.life.may_be_given(now))
        ready = list(itertools.islice(can_be_given, PARTITIONS_IN_ONE_TURN + 1))
        for owned in ready[:PARTITIONS_IN_ONE_TURN]:
            assert owned.stream is not None
            self.apply(owned, life.Given(owned.stream, next(_TENANCIES)))
        if len(ready) > PARTITIONS_IN_ONE_TURN and self._next_turn is None:
            self._next_turn = asyncio.get_running_loop().call_soon(self._hand_out_more)
        self.flush()

    def _hand_out_more(self) -> None:
        self._next_turn = None
        self.hand_out()

    def balance(self, seconds: float) -> None:
        """Move a partition from the busiest connected stream to the idlest, if that makes the loads more even."""
        for key in list(self._busy):
            self.owned[key].weigh(seconds)
            if not self.owned[key].load:
                del self._busy[key]
        self.changes += bool(self._busy)
        loads = {key: self.owned[key].load for key in self._busy}
        placed = {
            key: o.stream for key in self._busy if (o := self.owned[key]).stream is not None and not o.stop_reason
        }
        for key, stream in moves(placed, self._connected_streams(), loads).items():
            owned = self.owned[key]
            if isinstance(owned.life.state, life.Running) and owned.stream is not None:
                self._report(PartitionMoved(*key, owned.stream, stream))
                owned.next_stream = stream
                self.apply(owned, life.Recalled())
        self.flush()

    def stop(self) -> None:
        """Tell all streams to finish and end."""
        self._is_stopping = True
        for stream in range(self.streams):
            self._control.order(self.flow, stream, Order(stop=True))

    def _connected_streams(self) -> list[int]:
        return [stream for stream in range(self.streams) if self._control.is_connected(self.flow, stream)]

    def _present_streams(self) -> list[int]:
        """Return the streams that are connected, or will be in a moment; all of them if none is."""
        now = time.monotonic()
        absent = {stream for stream, since in self._absent_since.items() if now - since > _COVER_AFTER}
        return [stream for stream in range(self.streams) if stream not in absent] or list(range(self.streams))

    def _cover_absent_streams(self) -> None:
        """Place the partitions of streams that do not return on the others; without any stream, offer them to other processes."""
        latest = max(self._absent_since.values(), default=0.0)
        are_all_absent = self.has_seen_streams and len(self._absent_since) == self.streams
        if are_all_absent and time.monotonic() - latest > _COVER_AFTER and not self._is_stopping:
            self._reactions.streams_work(False)
        present = self._present_streams()
        orphans = [o for key in self._idle if (o := self.owned[key]).stream is not None and o.stream not in present]
        absent = sorted({owned.stream for owned in orphans if owned.stream is not None})
        for owned in orphans:
            owned.stream = None
        if orphans and not self._is_stopping:
            if self.has_seen_streams:
                self._report(StreamsCovered(", ".join(map(str, absent)), len(orphans), _COVER_AFTER))
            self.place()

    def _report_missing_streams(self) -> None:
        """Report streams that do not run for long: Spark says nothing about a task that finds no free slot."""
        now, limit = time.monotonic(), _ALARM_AFTER if self.has_seen_streams else _FIRST_ALARM_AFTER
        for stream, since in self._absent_since.items():
            if now - since > limit and stream not in self._alarmed:
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
        self._reactions.streams_work(True)
        self.hand_out()

    def stream_left(self, stream: int) -> None:
        """Take back the partitions of a stream that is gone; its requests may still be under way."""
        self._absent_since[stream] = time.monotonic()
        self.counts.streams[stream].left()
        self._takes.pop(stream, None)
        self._releases.pop(stream, None)
        # All of them at once: a stream that is back between two steps would get some while others still counted as its own.
        lost = [owned for owned in self.owned.values() if owned.stream == stream and owned.is_running]
        gone = life.StreamGone(stream)
        for owned in lost:
            self.apply(owned, gone)
        if not self._is_stopping:
            self._report(StreamGone(stream, len(lost)))

    def stream_reported(self, stream: int, report: Report) -> None:
        """Take in a stream's report."""
        self.counts.streams[stream].reported(report)
        for part in report.partitions:
            owned = self.owned.get(part.position.key)
            if owned is not None and _is_tenant(owned, stream, part.tenancy):
                self._take_in(owned, part)
            elif owned is None or not owned.is_running:
                # The order to take it came too late, or it was taken back while the stream was away.
                self._releases[stream].append(part.position.key)
        # Last positions first: the other list would hand a partition out again before its outcome is known.
        for ended in report.ended:
            owned = self.owned.get(ended.partition.position.key)
            if owned is not None and _is_tenant(owned, stream, ended.partition.tenancy):
                self._partition_ended(owned, ended)
        for key in report.never_taken:
            owned = self.owned.get(key)
            if owned is not None and owned.stream == stream:
                self.apply(owned, life.StreamGone(stream))
        if report.ended or report.never_taken:
            self.hand_out()
        self.flush()

    def _take_in(self, owned: OwnedPartition, part: PartitionReport) -> None:
        key, before = owned.position.key, owned.position
        new = owned.advance(part)
        if owned.position is part.position:
            self._reactions.note_runs(owned.position, part)
        self.counts.add(key, *new, part.counters, owned.stream)
        if new[1]:
            self._busy[key] = None
        if owned.position != before:
            self.moved[key] = None
        # The outcome of a stopped partition says why; its note would say it twice.
        note = "" if part.state == "stopped" else part.note
        if note and note != owned.note:
            self._new_waits[note].append(owned)
            self._noted[key] = None
        elif owned.note and not note:
            self._noted.pop(key, None)
            self._recovered += part.state == "flowing"
        if owned.stop_reason and part.state == "flowing" and (owned.position.offset > before.offset or owned.lag == 0):
            self.apply(owned, life.Progressed())
        owned.state, owned.note = part.state, note
        self._note_change(owned)
        if owned.bytes - owned.committed_bytes > _COMMIT_AFTER:
            self._reactions.commit_soon()

    def _partition_ended(self, owned: OwnedPartition, ended: Ended) -> None:
        self._take_in(owned, ended.partition)
        tenancy, clean, outcome = ended.partition.tenancy, ended.partition.clean, ended.outcome
        if isinstance(outcome, NeedsIdentity | CannotDeliver):
            self.apply(owned, life.IdentityNeeded(tenancy, outcome))
        elif isinstance(outcome, Stopped):
            stopped = life.StreamStopped(tenancy, clean, outcome.reason, outcome.final, time.monotonic())
            self.apply(owned, stopped)
        else:
            self.apply(owned, life.Released(tenancy, clean, is_even=clean and not owned.has_ahead))

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
        if self._recovered and not self._noted:
            self._report(AllRecovered())
            self._recovered = 0
        self._new_waits.clear()


def _is_tenant(owned: OwnedPartition, stream: int, tenancy: int) -> bool:
    """Return True if the stream has the partition, and this is its present stay."""
    state = owned.life.state
    return isinstance(state, life.Running | life.Releasing) and (state.stream, state.tenancy) == (stream, tenancy)
