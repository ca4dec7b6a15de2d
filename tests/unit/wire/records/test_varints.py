"""Varints, compared with kafka-python's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.util import encode_varint

from mirrormaker.errors import BadVarint
from mirrormaker.wire.records import varints
from tests.support.strategies import int64


def varint_bytes(numbers: list[int]) -> tuple[bytes, list[int], list[int]]:
    """Encode numbers with kafka-python; return the bytes, and where each varint starts and ends."""
    out = bytearray()
    starts, ends = [], []
    for number in numbers:
        starts.append(len(out))
        encode_varint(number, out.append)
        ends.append(len(out))
    return bytes(out), starts, ends


EDGES = [sign * ((1 << bits) + by) for bits in range(0, 63, 7) for by in (-1, 0, 1) for sign in (1, -1)]


@given(st.lists(int64, min_size=1))
@example([0, -1, 2**63 - 1, -(2**63), *EDGES])
def test_numbers_are_read_and_written_as_kafka_python_does(numbers: list[int]) -> None:
    data, starts, ends = varint_bytes(numbers)
    found, after = varints.read(np.frombuffer(data, np.uint8), np.array(starts, np.int64))
    assert found.tolist() == numbers
    assert after.tolist() == ends
    assert [varints.read_one(memoryview(data), start) for start in starts] == list(zip(numbers, ends, strict=True))

    folded = varints.zigzag(np.array(numbers, np.int64))
    size = varints.sizes(folded)
    assert size.tolist() == [end - start for start, end in zip(starts, ends, strict=True)]
    out = np.zeros(len(data), np.uint8)
    varints.write(out, np.array(starts, np.int64), folded, size)
    assert out.tobytes() == data


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 11, b"\x80" * 10 + b"\1"])
def test_a_number_that_does_not_end_is_refused(data: bytes) -> None:
    with pytest.raises(BadVarint):
        varints.read(np.frombuffer(data, np.uint8), np.array([0]))
    with pytest.raises(BadVarint):
        varints.read_one(memoryview(data), 0)
