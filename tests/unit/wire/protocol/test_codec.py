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
