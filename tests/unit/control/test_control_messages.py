"""Messages between driver and streams: they arrive as they were sent, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrormaker.control.control_messages import (
    CannotDeliver,
    Challenge,
    CounterReport,
    Ended,
    Hello,
    NeedsIdentity,
    Order,
    Outcome,
    PartitionReport,
    Released,
    Report,
    Stopped,
    Take,
    decode_challenge,
    decode_hello,
    decode_order,
    decode_report,
    encode,
)
from mirrormaker.errors import BadMessage
from mirrormaker.model.position import Cut, Identity, Position

numbers = st.integers(0, 2**60)
texts = st.text(max_size=20)
keys = st.tuples(texts, st.integers(0, 9999))
cuts = st.builds(Cut, st.integers(0, 99), st.integers(0, 2**31 - 1), numbers, texts, st.integers(0, 1000))
positions = st.builds(
    Position, texts, st.integers(0, 9999), numbers, st.integers(-1, 99), texts, st.builds(Identity, numbers, st.integers(0, 9)),
    texts, texts, st.integers(0, 99), st.lists(cuts, max_size=3).map(tuple), st.integers(0, 2**32), st.booleans(),
)  # fmt: skip
counters = st.builds(
    CounterReport, numbers, numbers, st.lists(st.tuples(st.integers(0, 28), numbers), max_size=3).map(tuple), numbers, numbers,
    numbers,
)  # fmt: skip
partitions = st.builds(
    PartitionReport, positions, numbers, texts, texts, numbers, numbers, st.integers(-1, 2**60), st.booleans(),
    st.none() | counters,
)  # fmt: skip
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Released()),
    st.builds(Stopped, texts, st.booleans()),
    st.builds(NeedsIdentity, st.integers(0, 4), texts, st.lists(texts, max_size=2).map(tuple)),
    st.builds(CannotDeliver, numbers, texts, texts),
)
orders = st.builds(
    Order,
    st.lists(st.builds(Take, positions, st.booleans(), numbers), max_size=3).map(tuple),
    st.lists(keys, max_size=3).map(tuple),
    st.booleans(),
    st.none() | numbers,
)
reports = st.builds(
    Report,
    numbers,
    st.lists(partitions, max_size=3).map(tuple),
    st.lists(st.builds(Ended, partitions, outcomes), max_size=3).map(tuple),
    st.lists(keys, max_size=2).map(tuple),
    numbers,
    st.floats(0, 1e9),
    numbers,
)


@given(orders, reports)
def test_orders_and_reports_arrive_as_they_were_sent(order: Order, report: Report) -> None:
    assert decode_order(encode(order)) == order
    assert decode_report(encode(report)) == report
    assert encode(report).count(b"\n") == 1


def test_the_first_words_arrive_as_they_were_sent() -> None:
    hello = Hello("proof", 1, 2, 3, 4)
    assert decode_hello(encode(hello)) == hello
    assert decode_challenge(encode(Challenge(b"12"))) == Challenge(b"12")


@pytest.mark.parametrize("decode", [decode_challenge, decode_hello, decode_order, decode_report])
@given(
    line=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.integers() | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)
    ).map(lambda value: json.dumps(value).encode())
)
def test_anything_else_is_a_bad_message(decode: object, line: bytes) -> None:
    assert callable(decode)
    with pytest.raises(BadMessage):
        decode(line)


@given(orders, st.data())
def test_a_damaged_message_is_read_or_refused(order: Order, data: st.DataObject) -> None:
    line = bytearray(encode(order))
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadMessage):
        decode_order(bytes(line))


def test_another_version_is_refused_by_name() -> None:
    line = encode(Order(stop=True)).replace(b'"version":1', b'"version":2')
    with pytest.raises(BadMessage, match="version 2"):
        decode_order(line)
