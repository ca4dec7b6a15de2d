"""Unsigned varints: read back as they were written, and refused if they do not end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrormaker.errors import BadFrame, BadVarint
from mirrormaker.wire.protocol.codec import MAX_VARINT_32, MAX_VARINT_64, Reader, read_varint, varint


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=3), st.binary(max_size=3))
@example(0, b"", b"")
@example((1 << 32) - 1, b"\xff", b"\xff")
def test_a_varint_is_read_as_it_was_written(number: int, before: bytes, after: bytes) -> None:
    data = memoryview(before + varint(number) + after)
    assert read_varint(data, len(before)) == (number, len(data) - len(after))
    reader = Reader(data, True)
    reader.at = len(before)
    assert (reader.varint(), reader.at) == (number, len(data) - len(after))


@given(st.integers(0, (1 << 64) - 1))
def test_a_varint_of_64_bits_has_at_most_ten_bytes(number: int) -> None:
    data = memoryview(varint(number))
    assert read_varint(data, 0, MAX_VARINT_64) == (number, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 4, b"\x80" * MAX_VARINT_32 + b"\1"])
def test_a_varint_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(BadVarint):
        read_varint(memoryview(data), 0)
    with pytest.raises(BadFrame):
        Reader(memoryview(data), True).varint()


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_list_of_fewer_than_no_elements_is_refused_and_makes_no_room_for_others(count: int) -> None:
    reader = Reader(memoryview(count.to_bytes(4, "big", signed=True)), False, 10)
    with pytest.raises(BadFrame, match="null"):
        reader.count()
    with pytest.raises(BadFrame, match="null"):
        reader.begin_elements(count)
    with pytest.raises(BadFrame, match="more than a broker can have"):
        reader.begin_elements(11)


def test_a_list_has_no_more_elements_than_were_asked_for() -> None:
    for count in (0, 7):
        assert Reader(memoryview(varint(count + 1)), True).count_within(7) == count
    for raw in (varint(0), varint(9)):
        with pytest.raises(BadFrame, match="at most 7"):
            Reader(memoryview(raw), True).count_within(7)


def test_a_text_is_no_longer_than_kafka_writes_one() -> None:
    longest = b"x" * 32767
    assert Reader(memoryview(varint(32768) + longest), True).string() == longest.decode()
    with pytest.raises(BadFrame, match="a text has 32768 bytes"):
        Reader(memoryview(varint(32769) + longest + b"x"), True).string()


def test_texts_that_take_four_times_their_bytes_are_counted() -> None:
    """A single character outside of the basic plane makes each of the others take four bytes."""
    text = "\U0001f600" + "x" * 1000
    raw = varint(len(text.encode()) + 1) + text.encode()
    count = 100
    reader = Reader(memoryview(raw * count), True, 61 * count)
    assert {reader.string() for _ in range(count)} == {text}
    with pytest.raises(BadFrame, match="more than a broker can have"):
        reader.begin_elements(1)


def test_short_texts_are_not_counted() -> None:
    """The element that they belong to is."""
    reader = Reader(memoryview((varint(66) + b"x" * 65) * 100), True, 0)
    assert {reader.string() for _ in range(100)} == {"x" * 65}
