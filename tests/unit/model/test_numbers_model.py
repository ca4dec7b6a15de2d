"""Thousands of short histories against a simulated target partition: each record arrives once and in order.

The log behaves as brokers do (measured; see "Exactly once" in docs/design.md): it takes a batch only if its first
number is the next one of a known identity, answers a repeat of one of the last five batches with its offset, refuses
the rest with error 45, and takes *any* first number from an identity that it does not know. Around it everything goes
wrong: requests are refused, delayed until long after their sender died, answered but not heard; senders crash, are
replaced while they still run, come back; leaders change and lose what was not replicated; others write to the same
partition.

In a third of the histories some records are old: the leader may forget the identity at any moment while the last batch
that it has of it is an old one. There a sender that is replaced sends nothing more (its lease has run out), and a batch
that begins with an old record waits until the requests of former senders are appended or dropped.

In another third the target is compacted: batches vanish from the log, but never the last one of a producer.

The senders are `Channel`s, the same class that runs in a stream.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from mirrormaker.errors import NumbersBroken
from mirrormaker.model.numbers import Channel, LoggedBatch
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.records.batch import SEQUENCES

OURS, THEIRS = Identity(7, 0), Identity(8, 0)
NOT_LEADER, TIMED_OUT, OUT_OF_ORDER = 6, 7, 45
REMEMBERED = 5  # batches of each producer that a leader recognises when they come again
HISTORIES = 3000
STEPS = 200


EVERYTHING = (
    "repeat", "out of order", "unknown again", "wrap", "truncated", "in the middle", "zombie", "from the dead",
    "found in the log", "forgotten under way", "young behind old", "compacted",
)  # fmt: skip


class Request(NamedTuple):
    sequence: int
    records: tuple[int, ...]  # a record is its source offset
    old: bool = False  # the youngest of its records is so old that a broker may forget who wrote it


class Kept(NamedTuple):
    """A batch in the target's log."""

    base_offset: int
    identity: Identity
    sequence: int
    records: tuple[int, ...]
    old: bool = False

    @property
    def end(self) -> int:
        return self.base_offset + len(self.records)

    @property
    def last_sequence(self) -> int:
        return (self.sequence + len(self.records) - 1) % SEQUENCES

    def seen(self) -> LoggedBatch:
        return LoggedBatch(
            self.base_offset, self.end - 1, self.identity, self.sequence, self.last_sequence, len(self.records)
        )


class Log:
    """One target partition, at its leader."""

    def __init__(self) -> None:
        self.batches: list[Kept] = []
        self.replicated = 0  # the high watermark: what lies before it survives any change of leader
        self._last: list[Kept] = []  # of ours; empty: the leader does not know us
        self.is_compacted = False
        self._compacted: set[int] = set()  # base offsets of batches that can no longer be read
        self.seen: Counter[str] = Counter()  # how often what happened

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def records(self) -> list[int]:
        return [record for batch in self.batches if batch.identity == OURS for record in batch.records]

    def append(self, request: Request) -> tuple[int, Kept | None]:
        last_sequence = (request.sequence + len(request.records) - 1) % SEQUENCES
        for known in self._last:
            if (known.sequence, known.last_sequence) == (request.sequence, last_sequence):
                self.seen["repeat"] += 1
                return 0, known
        if self._last and request.sequence != (self._last[-1].last_sequence + 1) % SEQUENCES:
            self.seen["out of order"] += 1
            return OUT_OF_ORDER, None
        if not self._last and self.records:
            self.seen["unknown again"] += 1
        last = next((batch for batch in reversed(self.batches) if batch.identity == OURS), None)
        self.seen["young behind old"] += last is not None and last.old and not request.old
        if last_sequence < request.sequence:
            self.seen["wrap"] += 1
        batch = Kept(self.end, OURS, request.sequence, request.records, request.old)
        self.batches.append(batch)
        self._last = [*self._last, batch][-REMEMBERED:]
        return 0, batch

    @property
    def visible(self) -> list[Kept]:
        return [batch for batch in self.batches if batch.base_offset not in self._compacted]

    def compact(self, base_offset: int) -> None:
        """Remove a batch that is replicated, unless it is the last one of ours that is."""
        ours = [batch.base_offset for batch in self.batches if batch.identity == OURS and batch.end <= self.replicated]
        if self.is_compacted and base_offset < self.replicated and base_offset not in ours[-1:]:
            self._compacted.add(base_offset)
            self.seen["compacted"] += 1

    def append_foreign(self, count: int) -> None:
        self.batches.append(Kept(self.end, THEIRS, 0, (-1,) * count))

    def replicate(self) -> None:
        self.replicated = self.end

    def change_leader(self, keep: int, remembered: int) -> None:
        """The new leader has at least what was replicated; it knows whoever wrote that, but fewer of their batches."""
        before = self.end
        self.batches = [b for b in self.batches if b.end <= max(keep, self.replicated)]
        self.seen["truncated"] += self.end < before
        if self._last:
            self._last = [b for b in self.batches if b.identity == OURS][-remembered:]

    def forget(self) -> None:
        """An identity that has not written for a day."""
        self._last = []

    def forget_old(self) -> None:
        """An identity whose last records are older than a day."""
        if self._last and self._last[-1].old:
            self.seen["forgotten under way"] += 1
            self._last = []


class Connection:
    """Requests that a broker has not looked at yet, and answers that the sender has not heard yet."""

    def __init__(self) -> None:
        self.requests: deque[Request] = deque()
        self.answers: deque[tuple[int, Kept | None]] = deque()


class Sender:
    """What a stream does with one partition: number, send, listen; after trouble, read the log and go on from there."""

    def __init__(self, channel: Channel, source: int) -> None:
        self.channel = channel
        self.source = source  # everything before it is acknowledged
        self.next = source
        self.under_way: deque[int] = deque()  # where the source stands after each batch
        self.connection = Connection()
        self.scan_to: int | None = None
        self.haunted = True  # requests of a former sender may still be appended

    def send(self, count: int, old: bool) -> None:
        records = tuple(range(self.next, self.next + count))
        self.connection.requests.append(Request(self.channel.number(count, old), records, old))
        self.next += count
        self.under_way.append(self.next)

    def hear(self, error: int, kept: Kept | None) -> None:
        end = self.under_way.popleft()
        if error or kept is None:
            self.channel.failed()
            return
        self.channel.acknowledged(kept.base_offset)
        if not self.channel.must_read_log:
            self.source = end

    def lose_connection(self) -> None:
        self.under_way.clear()
        self.channel.abandon()
        self.connection = Connection()
        self.haunted = True

    def resume(self, log: Log, end: int) -> None:
        shown = [b.seen() for b in log.visible if self.channel.offset < b.end <= end]
        self.source += self.channel.resume(shown, is_compacted=log.is_compacted)
        self.next = self.source


class Careless(Sender):
    """Writes down the numbers that the log shows before it has moved past the records that they belong to."""

    def resume(self, log: Log, end: int) -> None:
        before = self.source
        super().resume(log, end)
        self.source = before


class Wrong(Exception):
    """The target does not hold what the source holds."""


class World:
    """One history. The same seed gives the same history."""

    def __init__(
        self,
        seed: int,
        channel: Callable[[Identity, Cut], Channel] = Channel,
        sender: Callable[[Channel, int], Sender] = Sender,
        *,
        wait_for_replicas: bool = True,
        start_at_log_end: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.new_channel, self.new_sender = channel, sender
        self.wait_for_replicas = wait_for_replicas
        self.count = self.random.randint(1, 40)
        self.largest = self.random.randint(1, 6)
        self.old: set[int] = set()  # records
        if self.random.random() < 0.33:
            run = self.random.randint(2, 7)
            self.old = {record for record in range(self.count) if record // run % 2 == 0}
        start = self.random.choice([0, 0, SEQUENCES - self.random.randint(1, 30)])
        self.log = Log()
        self.log.is_compacted = self.random.random() < 0.33
        for _ in range(self.random.randint(0, 2)):
            self.log.append_foreign(3)
            if self.random.random() < 0.5:
                self.log.replicate()
        self.ledger = (0, Cut(0, start, self.log.end if start_at_log_end else self.log.replicated))
        self.senders: list[Sender] = []  # the last one is who reports to the ledger
        self.wires: list[Connection] = []  # of the living and of the dead
        self.told: list[str] = []

    # -- what can happen

    def replace(self) -> None:
        """A successor starts from the ledger; whoever was there before may not have noticed."""
        source, cut = self.ledger
        if self.old:  # without a lease nobody sends
            self.senders.clear()
        elif len(self.senders) > 2 or self.random.random() < 0.4:
            self.crash()
        self.log.seen["in the middle"] += 0 < source < self.count
        self.log.seen["zombie"] += bool(self.senders)
        self.senders.append(self.new_sender(self.new_channel(OURS, cut), source))
        self.wires.append(self.senders[-1].connection)

    def crash(self) -> None:
        if self.senders:
            self.senders.remove(self.random.choice(self.senders))

    def lose_connection(self) -> None:
        if self.senders:
            sender = self.random.choice(self.senders)
            sender.lose_connection()
            self.wires.append(sender.connection)

    def send(self) -> None:
        if self.senders:
            sender = self.random.choice(self.senders)
            count = min(self.random.randint(1, self.largest), self.count - sender.next)
            old = self.old.issuperset(range(sender.next, sender.next + count))
            if sender.next == self.count or not sender.channel.may_send(old):
                return
            if sender.haunted and sender.next in self.old:
                self._lay_ghosts(sender)
            else:
                sender.send(count, old)

    def _lay_ghosts(self, sender: Sender) -> None:
        """Wait until no request of a former sender is left; then the log must be read again."""
        if not sender.under_way and not any(w.requests for w in self.wires if w is not sender.connection):
            sender.haunted = False
            sender.channel.stop_until_log_read()

    def deliver(self) -> None:
        self._handle(lambda request: self.log.append(request))

    def deliver_but_time_out(self) -> None:
        """Appended, but the replicas were too slow."""
        self._handle(lambda request: (self.log.append(request)[0] or TIMED_OUT, None))

    def refuse(self) -> None:
        """Nothing appended: a leader that has just stopped to be one, a topic not known yet, a full disk."""
        self._handle(lambda request: (NOT_LEADER, None))

    def _handle(self, handle: Callable[[Request], tuple[int, Kept | None]]) -> None:
        wires = [wire for wire in self.wires if wire.requests]
        if wires:
            wire = self.random.choice(wires)
            if all(wire is not sender.connection for sender in self.senders):
                self.log.seen["from the dead"] += 1
            wire.answers.append(handle(wire.requests.popleft()))

    def drop_wire(self) -> None:
        """What a dead sender had on its way is lost."""
        living = {id(sender.connection) for sender in self.senders}
        self.wires = [w for w in self.wires if id(w) in living or (w.requests and self.random.random() < 0.5)]

    def answer(self) -> None:
        if self.senders:
            sender = self.random.choice(self.senders)
            answers = sender.connection.answers
            if answers and (answers[0][1] is None or answers[0][1].end <= self.log.replicated):  # acks=all
                sender.hear(*answers.popleft())

    def replicate(self) -> None:
        self.log.replicate()

    def change_leader(self) -> None:
        """Requests that wait for replicas are answered with an error, also those that survive."""
        for wire in self.wires:
            wire.answers = deque(
                (NOT_LEADER, None) if kept and kept.end > self.log.replicated else (error, kept)
                for error, kept in wire.answers
            )
        self.log.change_leader(
            self.random.randint(0, max(1, self.log.end)), self.random.choice([1, REMEMBERED, REMEMBERED])
        )

    def resume(self) -> None:
        """In two steps, between which others go on: note the log's end, and read up to it once that is replicated."""
        if not self.senders:
            return
        sender = self.random.choice(self.senders)
        if not sender.channel.must_read_log or sender.under_way:
            sender.scan_to = None
        elif sender.scan_to is None or sender.scan_to > self.log.end:
            sender.scan_to = self.log.end
        elif self.log.replicated >= sender.scan_to or not self.wait_for_replicas:
            before = sender.next
            sender.resume(self.log, sender.scan_to)
            self.log.seen["found in the log"] += sender.next > before
            sender.scan_to = None

    def commit(self) -> None:
        if self.senders:
            sender = self.senders[-1]
            if sender.source >= self.ledger[0]:
                self.ledger = sender.source, sender.channel.cut

    def foreign(self) -> None:
        self.log.append_foreign(self.random.randint(1, 3))

    def forget(self) -> None:
        """Only after a day without a word from us: nobody is left by then, and nothing is under way."""
        if not self.senders and not any(wire.requests for wire in self.wires):
            self.log.forget()

    def forget_old(self) -> None:
        self.log.forget_old()

    def compact(self) -> None:
        if self.log.batches:
            self.log.compact(self.random.choice(self.log.batches).base_offset)

    LIKELY = (
        (replace, 3), (crash, 2), (lose_connection, 2), (send, 30), (deliver, 25), (deliver_but_time_out, 1),
        (refuse, 2), (drop_wire, 1), (answer, 25), (replicate, 12), (change_leader, 2), (resume, 15), (commit, 6),
        (foreign, 1), (forget, 4), (forget_old, 5), (compact, 8),
    )  # fmt: skip

    # -- the course of a history

    def run(self) -> None:
        happenings = [event for event, _ in self.LIKELY]
        weights = [weight for _, weight in self.LIKELY]
        self.replace()
        for event in self.random.choices(happenings, weights, k=STEPS):
            self._let(event)
        self._finish()

    def _let(self, event: Callable[[World], None]) -> None:
        try:
            event(self)
        except NumbersBroken as error:
            raise Wrong(f"a sender stops: {error}") from error
        self.told.append(event.__name__)

    def _finish(self) -> None:
        """All others die, a last successor does what is left; requests of the dead still come through now and then."""
        self.senders.clear()
        self.replace()
        last = self.senders[-1]
        for _ in range(500):
            self._let(World.send)
            self._let(World.deliver)
            if self.random.random() < 0.3:
                self._let(World.forget_old)
            self._let(World.replicate)
            self._let(World.answer)
            self._let(World.resume)
            if last.source == self.count:
                break
        else:
            raise Wrong(f"it never ends: {last.source} of {self.count} records are acknowledged")
        while any(wire.requests for wire in self.wires):
            self._let(World.deliver)
        self.check()

    def check(self) -> None:
        found, expected = self.log.records, list(range(self.count))
        if found != expected:
            doubled = sorted({record for record in found if found.count(record) > 1})
            lost = sorted(set(expected) - set(found))
            raise Wrong(f"lost {lost}, doubled {doubled}; the target holds {found}")


def test_each_record_arrives_once_and_in_order_whatever_happens() -> None:
    for seed in range(HISTORIES):
        world = World(seed)
        try:
            world.run()
        except Wrong as error:
            pytest.fail(f"history {seed}: {error}\n{' '.join(world.told)}")


def test_the_histories_are_worth_it() -> None:
    """What can happen does happen, and often, or the test above would prove little."""
    total: Counter[str] = Counter()
    for seed in range(300):
        world = World(seed)
        world.run()
        total += world.log.seen
    rare = {what: total[what] for what in EVERYTHING if total[what] < 10}
    assert not rare, f"hardly ever seen in 300 histories: {rare}"


# -- the model notices what each rule prevents


def wrongs(**variant: object) -> Iterator[str]:
    """What goes wrong in the histories of a variant that breaks a rule."""
    for seed in range(HISTORIES):
        try:
            World(seed, **variant).run()  # type: ignore[arg-type]
        except Wrong as error:
            yield str(error)


class PipelinesTooEarly(Channel):
    """Five in flight, whether or not the leader knows the identity."""

    def may_send(self, old: bool, limit: int = 5) -> bool:
        return not self.must_read_log and self.in_flight < limit


class GoesOnAfterAnError(Channel):
    """An error concerns only the batch that it was for."""

    def failed(self) -> None:
        self._in_flight.pop(0)


class TrustsAnOldBatch(Channel):
    """Five in flight behind a batch of old records, as behind any other."""

    def number(self, count: int, old: bool = False) -> int:
        return super().number(count)


class NeverLooks(Channel):
    """Goes on from the ledger's numbers, without asking the log."""

    def resume(self, log: object, *, log_start_passed: bool = False, is_compacted: bool = False) -> int:
        return super().resume([])


class CountsOnly(Channel):
    """Takes the highest number in the log, without looking for holes before it, and no offset amiss."""

    def may_send(self, old: bool, limit: int = 5) -> bool:
        return not self.must_read_log and self.in_flight < limit

    def resume(self, log: object, *, log_start_passed: bool = False, is_compacted: bool = False) -> int:
        ours = [seen for seen in log if seen.identity == self.identity]  # type: ignore[attr-defined]
        if not ours:
            return super().resume([])
        present = (ours[-1].last_sequence + 1 - self.sequence) % SEQUENCES
        return super().resume([ours[-1]._replace(base_sequence=self.sequence)]) or present


def test_sending_behind_the_first_batch_of_an_unknown_identity_leaves_a_hole() -> None:
    assert any("where" in wrong and "comes next" in wrong for wrong in wrongs(channel=PipelinesTooEarly))


def test_sending_young_records_behind_an_old_batch_leaves_a_hole() -> None:
    assert any("where" in wrong and "comes next" in wrong for wrong in wrongs(channel=TrustsAnOldBatch))


def test_a_batch_that_begins_with_an_old_record_comes_twice_if_it_does_not_wait_for_former_senders() -> None:
    """The former sender had sent only the old records of it. In random histories this happens once in 30,000."""
    log = Log()
    former, successor = (Sender(Channel(OURS, Cut(0, 0, 0)), 0) for _ in range(2))
    for sender, count, old in ((former, 2, True), (successor, 4, False)):
        sender.resume(log, log.end)
        sender.send(count, old)
    log.append(former.connection.requests.popleft())
    log.forget_old()
    log.append(successor.connection.requests.popleft())
    assert log.records == [0, 1, 0, 1, 2, 3]


class WantsEveryNumber(Channel):
    """Does not know that compaction removes batches."""

    def resume(self, log: object, *, log_start_passed: bool = False, is_compacted: bool = False) -> int:
        return super().resume(log, log_start_passed=log_start_passed)  # type: ignore[arg-type]


def test_a_compacted_target_stops_a_sender_that_wants_to_see_every_number() -> None:
    assert any("where" in wrong and "comes next" in wrong for wrong in wrongs(channel=WantsEveryNumber))


def test_and_counting_instead_of_reading_hides_that_hole() -> None:
    assert any("lost [" in wrong and "lost []" not in wrong for wrong in wrongs(channel=CountsOnly))


def test_going_on_after_an_error_loses_records() -> None:
    assert any("lost [" in wrong and "lost []" not in wrong for wrong in wrongs(channel=GoesOnAfterAnError))


def test_not_reading_the_log_doubles_records_once_the_identity_is_forgotten() -> None:
    assert any("doubled [" in wrong and "doubled []" not in wrong for wrong in wrongs(channel=NeverLooks))


def test_trusting_records_that_are_not_replicated_loses_them() -> None:
    assert any("lost [" in wrong and "lost []" not in wrong for wrong in wrongs(wait_for_replicas=False))


def test_starting_behind_what_is_not_replicated_stops_a_sender_for_nothing() -> None:
    """Others' records that vanish with their leader put ours before the offset that the ledger was opened with."""
    assert any("before the records that precede it" in wrong for wrong in wrongs(start_at_log_end=True))


def test_a_ledger_entry_whose_numbers_are_ahead_of_its_offset_doubles_records() -> None:
    assert any("doubled [" in wrong and "doubled []" not in wrong for wrong in wrongs(sender=Careless))
