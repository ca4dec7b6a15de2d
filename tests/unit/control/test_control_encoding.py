"""Orders and reports as bytes: they arrive as they were sent, in pieces of bounded size, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.control import control_encoding
from mirrormaker.control.control_encoding import MAX_MESSAGE, PIECE, DriverEnd, StreamEnd
from mirrormaker.control.control_messages import (
    CannotDeliver,
    CounterReport,
    Ended,
    NeedsIdentity,
    Order,
    Outcome,
    PartitionReport,
    Released,
    Report,
    Stopped,
    Take,
)
from mirrormaker.errors import BadMessage
from mirrormaker.model.position import Cut, Identity, Position

numbers = st.integers(0, 2**60)
texts = st.text(max_size=20)
topic_ids = st.sampled_from(["", "0f" * 16, "a0" * 16])
keys = st.tuples(texts, st.integers(0, 9999))
cuts = st.builds(Cut, st.integers(0, 99), st.integers(0, 2**31 - 1), numbers, texts, st.integers(0, 1000))
cut_lists = st.lists(cuts, max_size=4, unique_by=lambda cut: cut.place).map(tuple)
positions = st.builds(
    Position, texts, st.integers(0, 9999), numbers, st.integers(-1, 99), texts, st.builds(Identity, numbers, st.integers(0, 9)),
    texts, texts, st.integers(0, 99), cut_lists, st.integers(0, 2**32), st.booleans(),
)  # fmt: skip
counters = st.builds(
    CounterReport, numbers, numbers, st.lists(st.tuples(st.integers(0, 28), numbers), max_size=3).map(tuple), numbers, numbers,
    numbers,
)  # fmt: skip
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Released()),
    st.builds(Stopped, texts, st.booleans()),
    st.builds(NeedsIdentity, st.integers(0, 4), texts, st.lists(texts, max_size=2).map(tuple)),
    st.builds(CannotDeliver, numbers, texts, texts),
)
takes = st.lists(st.builds(Take, positions, st.booleans(), numbers), max_size=3, unique_by=lambda take: take.tenancy)
orders = st.builds(
    Order, takes.map(tuple), st.lists(keys, max_size=3).map(tuple), st.booleans(), st.none() | numbers
)  # fmt: skip


@st.composite
def partition_reports(draw: st.DrawFn, tenancy: int, before: Position) -> PartitionReport:
    """Return what a stream may report of a partition that was at this position before."""
    position = before.advanced(draw(numbers), draw(st.integers(-1, 99)), draw(cut_lists))
    if (ids := draw(st.none() | st.tuples(topic_ids, topic_ids))) is not None:
        position = replace(position, topic_id=ids[0], target_topic_id=ids[1])
    return PartitionReport(
        position, tenancy, draw(texts), draw(texts), draw(numbers), draw(numbers), draw(st.integers(-1, 2**60)), False,
        draw(st.none() | counters),
    )  # fmt: skip


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Order, list[Report]]:
    """Return an order, and reports of the partitions in it, some of which end."""
    order = draw(orders)
    running, reports = {take.tenancy: take.position for take in order.take}, []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        rows: list[PartitionReport] = []
        ended: list[Ended] = []
        for tenancy in list(running):
            if draw(st.booleans()):
                rows.append(draw(partition_reports(tenancy, running[tenancy])))
                running[tenancy] = rows[-1].position
            if draw(st.booleans()):
                last = draw(partition_reports(tenancy, running.pop(tenancy)))
                ended.append(Ended(replace(last, clean=draw(st.booleans())), draw(outcomes)))
        never_taken = draw(st.lists(keys, max_size=2))
        figures = draw(numbers), draw(st.floats(0, 1e9)), draw(numbers)
        reports.append(Report(number, tuple(rows), tuple(ended), tuple(never_taken), *figures))
    return order, reports


@given(conversations(), st.sampled_from([1, 100, PIECE]))
def test_orders_and_reports_arrive_as_they_were_sent(conversation: tuple[Order, list[Report]], piece: int) -> None:
    driver, stream = DriverEnd(), StreamEnd()
    order, reports = conversation
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_encoding, "PIECE", piece)
        assert joined_orders([stream.order(message) for message in driver.orders(order)]) == order
        for report in reports:
            assert joined_reports([driver.report(message) for message in stream.reports(report)]) == report


def joined_orders(pieces: list[Order]) -> Order:
    assert not any(piece.stop or piece.heard is not None for piece in pieces[:-1])
    takes = [take for piece in pieces for take in piece.take]
    releases = [key for piece in pieces for key in piece.release]
    return replace(pieces[-1], take=tuple(takes), release=tuple(releases))


def joined_reports(pieces: list[Report]) -> Report:
    assert not any(piece.number for piece in pieces[:-1]), "only the last piece is answered"
    return replace(
        pieces[-1],
        partitions=tuple(row for piece in pieces for row in piece.partitions),
        ended=tuple(row for piece in pieces for row in piece.ended),
        never_taken=tuple(key for piece in pieces for key in piece.never_taken),
    )


def position(partition: int, cuts: int = 1) -> Position:
    topic_id, numbers = "a1" * 16, tuple(Cut(n, 1_000_000 + n, 50_000_000) for n in range(cuts))
    return Position(
        "a-topic-with-a-name-of-usual-length", partition, 50_000_000, 7, topic_id, Identity(123_456, 0), "Tz8sJ1dYQkq0uIxCfQxW3w",
        "b2" * 16, cuts, numbers, 3_000_000_000,
    )  # fmt: skip


def row(take: Take, offset: int) -> PartitionReport:
    now = take.position.advanced(offset, 7, [cut._replace(sequence=cut.sequence + 1) for cut in take.position.cuts[:1]])
    latencies = CounterReport(3, 0, ((8, 120), (9, 30)), 4321, 0, 0)
    return PartitionReport(now, take.tenancy, "flowing", "", 150_000, 15_000_000, offset + 10, False, latencies)


def test_a_report_says_nothing_of_partitions_that_have_not_changed_and_little_of_the_others() -> None:
    driver, stream = DriverEnd(), StreamEnd()
    takes = [Take(position(n, cuts=100), True, 1_000_000 + n) for n in range(100)]
    for message in driver.orders(Order(take=tuple(takes))):
        stream.order(message)
    (idle,) = stream.reports(Report(123_456, (), (), (), 30_000_000, 12345.678, 500_000_000))
    assert len(idle) < 100
    one, all_of_them = ((row(takes[0], 50_000_100),), tuple(row(take, 50_000_200) for take in takes))
    sizes = [len(b"".join(stream.reports(Report(1, rows)))) for rows in (one, all_of_them)]
    assert sizes[0] < 200
    assert sizes[1] < 160 * len(takes)


def test_long_orders_and_reports_come_in_pieces() -> None:
    driver, stream = DriverEnd(), StreamEnd()
    takes = tuple(Take(position(n), True, n) for n in range(5000))
    messages = driver.orders(Order(take=takes, release=tuple(take.position.key for take in takes), heard=3))
    assert max(map(len, messages)) < PIECE + 1000
    assert joined_orders([stream.order(message) for message in messages]).take == takes
    messages = stream.reports(Report(7, tuple(row(take, 60_000_000) for take in takes)))
    assert max(map(len, messages)) < PIECE + 1000
    pieces = [driver.report(message) for message in messages]
    assert [piece.number for piece in pieces] == [0] * (len(pieces) - 1) + [7]
    assert sum(len(piece.partitions) for piece in pieces) == 5000


def test_a_note_of_any_length_fits_into_a_message() -> None:
    driver, stream = DriverEnd(), StreamEnd()
    take = Take(position(0), True, 1)
    (message,) = driver.orders(Order(take=(take,)))
    stream.order(message)
    note = "\U0001f600" * MAX_MESSAGE
    end = Ended(replace(row(take, 1), note=note), Stopped(note, final=True))
    messages = stream.reports(Report(1, ended=(end,)))
    assert max(map(len, messages)) < MAX_MESSAGE // 10
    (ended,) = [ended for message in messages for ended in driver.report(message).ended]
    assert note.startswith(ended.partition.note.removesuffix("..."))


def test_a_partition_that_was_never_taken_cannot_be_reported() -> None:
    driver, stream = DriverEnd(), StreamEnd()
    take = Take(position(0), True, 1)
    stream.order(DriverEnd().orders(Order(take=(take,)))[0])
    (message,) = stream.reports(Report(1, (row(take, 1),)))
    with pytest.raises(BadMessage):
        driver.report(message)


def test_nothing_is_remembered_of_a_tenancy_that_has_ended() -> None:
    driver, stream = DriverEnd(), StreamEnd()
    take = Take(position(0), True, 1)
    stream.order(driver.orders(Order(take=(take,)))[0])
    driver.report(stream.reports(Report(1, ended=(Ended(row(take, 1), Released()),)))[0])
    assert not driver._positions
    assert not stream._positions


DECODERS: list[Callable[[bytes], object]] = [DriverEnd().report, StreamEnd().order]


@pytest.mark.parametrize("decode", DECODERS)
@given(
    message=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.integers() | st.floats() | texts,
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["take", "release", "heard", "number", "partitions", "ended"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_anything_else_is_read_or_a_bad_message(decode: Callable[[bytes], object], message: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(message)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    "message",
    [
        b"[]", b"1", b"null", b"\xff", b"", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000,
        b'{"heard":Infinity,"number":Infinity}', b'{"heard":"1","number":"1"}', b'{"take":5,"partitions":5}',
        b'{"take":[[[],true,1]],"partitions":[[1]]}', b'{"release":[["orders"]],"never_taken":[["orders"]]}',
    ],
)  # fmt: skip
def test_no_message_ends_in_a_traceback(decode: Callable[[bytes], object], message: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(message)


@given(conversations(), st.data())
def test_a_damaged_message_is_read_or_refused(conversation: tuple[Order, list[Report]], data: st.DataObject) -> None:
    driver, stream = DriverEnd(), StreamEnd()
    (order,) = driver.orders(conversation[0])
    stream.order(order)
    (report,) = stream.reports(conversation[1][0])
    for message, decode in ((order, StreamEnd().order), (report, driver.report)):
        damaged = bytearray(message)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        with contextlib.suppress(BadMessage):
            decode(bytes(damaged))
