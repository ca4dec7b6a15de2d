"""Which stream has which partition, what it is told, and what it reports."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mirrormaker.control.control_server import ControlServer
from mirrormaker.driver.owned_partition import OwnedPartition
from mirrormaker.model.placement import moves, place
from mirrormaker.model.position import Position
from mirrormaker.status.counts import Counts
from mirrormaker.worker.interrupts import RestartAt

Key = tuple[str, int]

_COMMIT_AFTER = 64 << 20  # bytes of one partition: a resume never reads back much more than that
_ALARM_AFTER = 30.0  # seconds without a stream; Spark starts in ten, an executor is replaced in five
_COVER_AFTER = 4.0  # seconds without a stream until the others take its partitions
_TENANCIES = itertools.count(1)
_NAMED = 3  # partitions that a line about many of them names


@dataclass(frozen=True)
class Consequences:
    """What the flow does about a report."""

    is_sure: Callable[[], bool]  # that the partitions are still ours
    refused: Callable[[OwnedPartition, int, str, str], None]
    renumber: Callable[[OwnedPartition, int, str, list[str]], None]
    commit_soon: Callable[[], None]
    arrived: Callable[[], None]  # the first stream is there


class Scheduler:
    """The desk's listener for one flow: holds the partitions and keeps the streams busy with them."""

    def __init__(
        self,
        flow: int,
        streams: int,
        control: ControlServer,
        say: Callable[[str], None],
        then: Consequences,
        log: object,
    ) -> None:
        """`log` is where Spark tells what keeps a stream from starting."""
        self.flow, self.streams, self.control, self.say, self.then, self.log = flow, streams, control, say, then, log
        self.holdings: dict[Key, OwnedPartition] = {}
        self.counts = Counts()
        self.seen = False  # a stream has come to the desk
        self._dismissed = False
        self._gone: dict[int, float] = {stream: time.monotonic() for stream in range(streams)}
        self._alarmed: set[int] = set()
        self._waits: dict[str, list[OwnedPartition]] = defaultdict(list)
        self._recovered = 0

    def __iter__(self) -> Any:
        return iter(list(self.holdings.values()))

    @property
    def may_go_on(self) -> bool:
        return self.then.is_sure()

    # -- giving and taking

    def plan(self) -> None:
        """A stream for every partition that has none."""
        now = {k: h.stream for k, h in self.holdings.items() if h.stream is not None}
        loads = {k: h.load or h.lag + 1.0 for k, h in self.holdings.items()}
        for key, stream in place(self.holdings, self._present(), loads, now).items():
            self.holdings[key].stream = stream
        self.give()

    def _present(self) -> list[int]:
        """The streams that are at work, or will be in a moment."""
        now = time.monotonic()
        away = {stream for stream, since in self._gone.items() if now - since > _COVER_AFTER}
        return [stream for stream in range(self.streams) if stream not in away] or list(range(self.streams))

    def cover(self) -> None:
        """Where a stream stays away, the others take its partitions."""
        present = self._present()
        orphans = [h for h in self if h.stream is not None and h.stream not in present and not h.given]
        away = sorted({holding.stream for holding in orphans if holding.stream is not None})
        for holding in orphans:
            holding.stream = None
        if orphans and not self._dismissed:
            if self.seen:
                names = ", ".join(map(str, away))
                self.say(f"stream {names} stays away: {len(orphans)} partitions go to the others")
            self.plan()

    def give(self) -> None:
        """Hand every partition to its stream, where the stream is there and nobody else has it."""
        if self._dismissed or not self.may_go_on:
            return  # what a stopping stream lets go of must not come back to it, nor what may belong to others
        take: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for holding in self:
            if holding.is_idle and holding.stream is not None and self.control.is_seated(self.flow, holding.stream):
                holding.given, holding.tenancy = True, next(_TENANCIES)
                given = {"position": holding.position.to_json(), "clean": holding.clean, "tenancy": holding.tenancy}
                take[holding.stream].append(given)
                holding.clean = False
        for stream, orders in take.items():
            self.control.order(self.flow, stream, take=orders)

    def recall(self, holding: OwnedPartition) -> None:
        """Ask for a partition back: its acks are awaited, its last position reported."""
        if holding.given and not holding.releasing and holding.stream is not None:
            holding.releasing = True
            self.control.order(self.flow, holding.stream, release=[holding.position.key])

    def even_out(self, seconds: float) -> None:
        """Move a partition from the busiest stream to the idlest, if that makes things more even."""
        for holding in self:
            holding.weigh(seconds)
        plan = {k: h.stream for k, h in self.holdings.items() if h.stream is not None and not h.stopped}
        for key, stream in moves(plan, self._present(), {k: h.load for k, h in self.holdings.items()}).items():
            holding = self.holdings[key]
            if holding.given and not holding.releasing:
                self.say(f"{key[0]}-{key[1]} is moved from stream {holding.stream} to the less busy {stream}")
                holding.next_stream = stream
                self.recall(holding)

    def dismiss(self) -> None:
        """Have all streams finish and go."""
        self._dismissed = True
        for stream in range(self.streams):
            self.control.order(self.flow, stream, stop=True)

    def _raise_alarms(self) -> None:
        """Spark is silent about a task that finds no free slot; we are not."""
        now = time.monotonic()
        for stream, since in self._gone.items():
            if now - since > _ALARM_AFTER and stream not in self._alarmed:
                self._alarmed.add(stream)
                away = f"stream {stream} has not been at work for {now - since:.0f} s"
                self.say(f"{away}: has Spark a free slot for it, and do its tasks start? See {self.log}")

    # -- what the desk hears

    def arrived(self, stream: int) -> None:
        if not self.seen:
            self._gone = dict.fromkeys(self._gone, time.monotonic())
        self.seen = True
        self._gone.pop(stream, None)
        self.counts.streams[stream].arrived()
        if self.counts.streams[stream].starts > 1 and not self._dismissed:
            self.say(f"stream {stream} is back")
        self._alarmed.discard(stream)
        self.then.arrived()
        self.give()

    def left(self, stream: int) -> None:
        """A stream is gone without a word: whatever it had may still be under way."""
        self._gone[stream] = time.monotonic()
        self.counts.streams[stream].left()
        had = [holding for holding in self if holding.stream == stream and holding.given]
        for holding in had:
            holding.handed_over()
            holding.clean = False
        if not self._dismissed:
            self.say(f"stream {stream} is gone; its {len(had)} partitions are taken over from what was last reported")

    def reported(self, stream: int, message: dict[str, Any]) -> None:
        self.counts.streams[stream].reported(message)
        for part in message["partitions"]:
            holding = self.holdings.get((part["topic"], part["partition"]))
            if holding is not None and holding.given and holding.tenancy == part["tenancy"]:
                self._note(holding, part)
            elif holding is None or not holding.given:  # nobody has asked for it, or no longer
                self.control.order(self.flow, stream, release=[(part["topic"], part["partition"])])
        for part in message["finished"]:
            holding = self.holdings.get((part["topic"], part["partition"]))
            if holding is None or (holding.stream, holding.given) != (stream, True):
                continue
            if part.get("unknown") or holding.tenancy == part["tenancy"]:
                self._finished(holding, part)

    def _note(self, holding: OwnedPartition, part: dict[str, Any]) -> None:
        position, before = Position.from_json(part["position"]), holding.position.offset
        by_number = 0 if position.identity.is_numbered else None
        if position.identity == holding.position.identity and position.offset >= holding.position.offset:
            by_number = None if by_number is None else position.records_since(holding.position)
            holding.position = position
        new = holding.count(part["records"], part["bytes"], by_number)
        self.counts.add(holding.position.key, *new, part.get("tally"))
        holding.end = max(holding.end, part["end"])
        if part["state"] == "stopped":
            part["note"] = ""  # why is said by whoever deals with it
        if part["note"] and part["note"] != holding.note:
            self._waits[part["note"]].append(holding)
        elif holding.note and not part["note"] and part["state"] == "flowing":
            self._recovered += 1
        if holding.stopped and part["state"] == "flowing" and (holding.position.offset > before or holding.lag == 0):
            self.say(f"{holding.position.topic}-{holding.position.partition} flows again")
            holding.stopped, holding.tries, holding.try_at = "", 0, None
        holding.state, holding.note = part["state"], part["note"]
        if holding.bytes - holding.committed_bytes > _COMMIT_AFTER:
            self.then.commit_soon()

    def _finished(self, holding: OwnedPartition, part: dict[str, Any]) -> None:
        if part.get("unknown"):  # it never got there: it is as free as before
            holding.handed_over()
            self.give()
            return
        self._note(holding, part)
        holding.handed_over()
        holding.clean = part["clean"]
        if "undeliverable" in part:
            holding.busy = True
            self.then.refused(holding, part["undeliverable"], part["cause"], part["reason"])
        elif part.get("stopped"):
            if holding.stop(part["reason"], final=part["final"]):
                self.say(part["reason"])
        elif "renumber" in part:
            holding.busy = True
            self.then.renumber(holding, part["renumber"], part["reason"], part["topics"])
        elif holding.renumber and not holding.revoked and holding.is_even:
            holding.busy = True
            self.then.renumber(holding, RestartAt.SAME_PLACE, holding.renumber, [])
        else:
            self.give()

    def tick(self) -> None:
        """Every second or so: see to what nobody reports."""
        self._raise_alarms()
        self.cover()
        self.give()
        self.say_what_changed()

    def say_what_changed(self) -> None:
        """One line per change of state, not per attempt and not per partition."""
        for note, holdings in self._waits.items():
            names = [f"{h.position.topic}-{h.position.partition}" for h in holdings]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            self.say(f"waiting: {', '.join(names[:_NAMED])}{more}: {note}")
        if self._recovered and not any(h.note for h in self):
            self.say("all partitions flow again")
            self._recovered = 0
        self._waits.clear()
