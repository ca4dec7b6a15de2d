"""What a stream reports: all that has changed, and nothing twice."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.control.control_encoding import DriverEnd, StreamEnd
from mirrormaker.control.control_messages import CounterReport, Order, PartitionReport, Report, Take
from mirrormaker.control.control_session import DriverHandshake, StreamAttempt, StreamHandshake
from mirrormaker.model.position import Cut, Identity, Position
from mirrormaker.model.progress import Progress, Unit
from mirrormaker.worker.counters import Counters
from mirrormaker.worker.outlet import Outlet
from mirrormaker.worker.reporting import Reporting

# All that the driver should know of a partition.
Facts = tuple[object, ...]

PARTITIONS, PLACES = 4, 3
STATES = ("waiting", "resuming", "flowing")
NOTES = ("", "source: away", "NOT_ENOUGH_REPLICAS (19)")


def start(partition: int) -> Position:
    cuts = tuple(Cut(place, 0, 0) for place in range(PLACES))
    return Position("orders", partition, 100, -1, "ab" * 16, Identity(7, 0), "there", "cd" * 16, PLACES, cuts)


@dataclass
class Done:
    """The future of a cursor that was released."""

    def result(self) -> None:
        return None


class MovingCursor:
    """As much of a cursor as reports are made of; the test moves it."""

    def __init__(self, take: Take) -> None:
        self.position, self.tenancy = take.position, take.tenancy
        self.progress, self.counters = Progress(take.position), Counters()
        self.records = self.bytes = 0
        self.high_watermark, self.state, self.note = -1, "waiting", ""
        self.is_clean, self.done = True, Done()
        self.outlets: tuple[Outlet, ...] = ()
        # Everything that was ever counted, apart from what counters forget.
        self.counted: Counter[str] = Counter()

    @property
    def current(self) -> Position:
        return self.position.advanced(self.progress.offset, self.progress.epoch, self.progress.cuts.values())

    @property
    def closing(self) -> Position:
        """Return a last position with records ahead, as a cursor that could not finish does."""
        cuts = [cut._replace(ahead=1) for cut in list(self.progress.cuts.values())[:1]]
        return self.current.advanced(self.progress.offset, self.progress.epoch, cuts)

    def deliver(self, place: int, count: int) -> None:
        unit = Unit(self.progress.offset + count, self.progress.epoch + 1, 1)
        self.progress.add(unit)
        cut = self.progress.cuts["", place]
        self.progress.acknowledged(unit, cut._replace(sequence=cut.sequence + count, offset=cut.offset + count))
        self.records += count
        self.bytes += 100 * count
        self.counters.batches_forwarded += 1
        self.counters.latency_counts[place] += count
        self.counted.update({"batches": 1, f"class {place}": count})

    def retry(self) -> None:
        self.counters.retries += 1
        self.counted["retries"] += 1

    @property
    def facts(self) -> Facts:
        """Return all that the driver should know."""
        return (
            self.current, self.state, self.note, self.records, self.bytes, self.high_watermark, +self.counted
        )  # fmt: skip


class DriversView:
    """A partition as the driver knows it from reports."""

    def __init__(self) -> None:
        self.last: PartitionReport | None = None
        self.counted: Counter[str] = Counter()

    def take_in(self, part: PartitionReport) -> None:
        self.last = replace(part, counters=None)
        if (counters := part.counters) is not None:
            self.counted.update({"batches": counters.batches_forwarded, "retries": counters.retries})
            self.counted.update({f"class {at}": count for at, count in counters.latency_counts})

    @property
    def facts(self) -> Facts:
        last = self.last
        assert last is not None, "a partition that was taken is reported once, changed or not"
        return last.position, last.state, last.note, last.records, last.bytes, last.high_watermark, +self.counted


class Model:
    """A driver, a stream that reports to it, and a connection that delivers late, loses answers and breaks."""

    def __init__(self) -> None:
        self.tenancies = 0
        self.known = {partition: start(partition) for partition in range(PARTITIONS)}  # as the driver would commit
        self.break_off(0, 0)

    def break_off(self, *_: int) -> None:
        """Begin a new session: a stream that has lost its connection ends, and its successor has nothing."""
        driver, stream = DriverHandshake(b"secret"), StreamHandshake(b"secret", StreamAttempt(0, 0, 0, 0))
        _, welcome, self.driver_session = driver.accept(stream.hello(driver.challenge()))
        self.stream_session = stream.session(welcome)
        self.driver_end, self.stream_end = DriverEnd(), StreamEnd()
        self.to_stream: deque[bytes] = deque()
        self.to_driver: deque[bytes] = deque()
        self.reporting = Reporting()
        self.cursors: dict[int, MovingCursor] = {}  # by partition
        self.views: dict[int, DriversView] = {}  # by tenancy
        self.at_work: set[int] = set()  # partitions that the stream has, as the driver sees it
        # The facts of each tenancy when a report was made, by its number.
        self.said: dict[int, dict[int, Facts]] = {}

    # -- the driver

    def order(self, order: Order) -> None:
        self.to_stream.extend(map(self.driver_session.seal, self.driver_end.orders(order)))

    def give(self, first: int, _: int) -> None:
        takes = []
        for partition in set(range(first % PARTITIONS, PARTITIONS)) - self.at_work:
            self.tenancies += 1
            self.views[self.tenancies] = DriversView()
            takes.append(Take(self.known[partition], True, self.tenancies))
            self.at_work.add(partition)
        self.order(Order(take=tuple(takes)))

    def hear(self, answers: int, _: int) -> None:
        """Take in a report, and answer it, or do not; then the driver knows what was true when the report was made."""
        if not self.to_driver:
            return
        report = self.driver_end.report(self.driver_session.open(self.to_driver.popleft()))
        for part in (*report.partitions, *(ended.partition for ended in report.ended)):
            self.views[part.tenancy].take_in(part)
            self.known[part.position.partition] = part.position
        for ended in report.ended:
            self.at_work.remove(ended.partition.position.partition)
        if answers % 3:
            self.order(Order(heard=report.number))
        for tenancy, facts in self.said[report.number].items():
            assert self.views[tenancy].facts == facts

    # -- the stream

    def obey(self, *_: int) -> None:
        while self.to_stream:
            order = self.stream_end.order(self.stream_session.open(self.to_stream.popleft()))
            for take in order.take:
                self.cursors[take.position.partition] = MovingCursor(take)

    def change(self, what: int, number: int) -> None:
        if not self.cursors:
            return
        cursor = list(self.cursors.values())[number % len(self.cursors)]
        match what % 8:
            case 0:
                cursor.high_watermark = number
            case 1:
                cursor.state = STATES[number % len(STATES)]
            case 2:
                cursor.note = NOTES[number % len(NOTES)]
            case 3:
                cursor.retry()
            case _:
                for place in range(what % PLACES + 1):
                    cursor.deliver(place, number)

    def report(self, *_: int) -> None:
        """Send a report at its time: of every cursor, if it has changed."""
        said = {cursor.tenancy: cursor.facts for cursor in self.cursors.values()}
        cursors: list[Any] = list(self.cursors.values())
        self.send(self.reporting.report(cursors, 0), said)
        again = self.reporting.report(cursors, 0)
        assert not again.partitions, "nothing is said twice"
        self.send(again, said)

    def end(self, first: int, _: int) -> None:
        """Let go of some partitions, and report that before the time of the next report."""
        said = {}
        for partition in [partition for partition in self.cursors if partition >= first % PARTITIONS]:
            ended: Any = self.cursors.pop(partition)
            said[ended.tenancy] = (ended.closing, *ended.facts[1:])
            self.reporting.ended(ended)
        self.send(self.reporting.report((), 0), said)

    def send(self, report: Report, said: dict[int, Facts]) -> None:
        self.said[report.number] = said
        self.to_driver.extend(map(self.stream_session.seal, self.stream_end.reports(report)))


STEPS = ["give"] * 2 + ["obey"] * 3 + ["change"] * 8 + ["report"] * 4 + ["hear"] * 6 + ["end"] + ["break_off"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000), st.integers(1, 50)), min_size=20, max_size=150))
def test_the_driver_knows_what_was_true_when_a_report_was_made(steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    model.give(0, 1)
    model.obey()
    for step, first, second in steps:
        getattr(model, step)(first, second)
    model.obey()
    model.report()
    while model.to_driver:
        model.hear(1, 0)
    model.obey()
    assert not model.to_stream
    assert {cursor.tenancy for cursor in model.cursors.values()} == model.driver_end._positions.keys()


def taken(count: int) -> tuple[StreamEnd, list[Any]]:
    """Return a stream's end of a session, and cursors of partitions that it has taken and reported."""
    driver, stream = DriverEnd(), StreamEnd()
    takes = tuple(Take(start(partition), True, partition) for partition in range(count))
    for message in driver.orders(Order(take=takes)):
        stream.order(message)
    return stream, [MovingCursor(take) for take in takes]


def test_a_stream_with_5000_idle_partitions_reports_a_few_bytes() -> None:
    stream, cursors = taken(5000)
    reporting = Reporting()
    first = reporting.report(cursors, 0)
    assert len(first.partitions) == 5000
    stream.reports(first)
    (message,) = stream.reports(reporting.report(cursors, 0))
    assert len(message) < 100
    cursors[17].deliver(0, 10)
    (message,) = stream.reports(reporting.report(cursors, 0))
    assert len(message) < 250


@pytest.mark.parametrize(
    "change",
    [
        lambda cursor: cursor.deliver(0, 1),
        lambda cursor: cursor.progress.pass_over(500, 3),
        lambda cursor: setattr(cursor, "high_watermark", 7),
        lambda cursor: setattr(cursor, "state", "flowing"),
        lambda cursor: setattr(cursor, "note", "source: away"),
        lambda cursor: cursor.retry(),
        lambda cursor: setattr(cursor.counters, "resumes", 1),
        lambda cursor: setattr(cursor.counters, "batches_repacked", 1),
    ],
)
def test_every_change_is_reported_once(change: Callable[[Any], None]) -> None:
    _, cursors = taken(3)
    reporting = Reporting()
    reporting.report(cursors, 0)
    change(cursors[1])
    assert [part.tenancy for part in reporting.report(cursors, 0).partitions] == [1]
    assert not reporting.report(cursors, 0).partitions


def test_many_partitions_that_end_at_once_are_one_report() -> None:
    _, cursors = taken(2500)
    reporting = Reporting()
    for cursor in cursors:
        reporting.ended(cursor)
    assert reporting.is_urgent.is_set()
    assert len(reporting.report((), 0).ended) == 2500
    assert not reporting.report((), 0).ended


def test_counters_of_a_cursor_that_ends_are_reported_once() -> None:
    _, (cursor,) = taken(1)
    reporting = Reporting()
    cursor.deliver(1, 3)
    (part,) = reporting.report([cursor], 0).partitions
    assert part.counters == CounterReport(1, 0, ((1, 3),), 0, 0, 0)
    cursor.retry()
    reporting.ended(cursor)
    (ended,) = reporting.report((), 0).ended
    assert ended.partition.counters == CounterReport(0, 0, (), 0, 1, 0)
    assert ended.partition.records == 3
