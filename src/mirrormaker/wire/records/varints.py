"""Varints by the thousand: many numbers at once, each at its own place in one array of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadVarint

Data = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def read(data: Data, at: Ints) -> tuple[Ints, Ints]:
    """The zigzag numbers that start at the given places, and where each one ends."""
    try:
        byte = data[at]
        value = (byte & 0x7F).astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        while more.size:
            if shift > 63:
                raise BadVarint("a number of more than 64 bits")
            byte = data[after[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte > 0x7F]
            shift += 7
    except IndexError as error:
        raise BadVarint("a number goes beyond the data") from error
    signed: Ints = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    return signed, after


def read_one(raw: memoryview, at: int) -> tuple[int, int]:
    """The zigzag number that starts here, and where it ends."""
    value = shift = 0
    try:
        while raw[at] > 0x7F:
            value |= (raw[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if shift > 63:
                raise BadVarint("a number of more than 64 bits")
        value |= raw[at] << shift
    except IndexError as error:
        raise BadVarint("a number goes beyond the data") from error
    return value >> 1 ^ -(value & 1), at + 1


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    folded: Any = (values << 1) ^ (values >> 63)
    return folded.view(np.uint64)  # type: ignore[no-any-return]


def sizes(folded: npt.NDArray[np.uint64]) -> Ints:
    """How many bytes each number takes."""
    size = np.ones(len(folded), np.int64)
    largest = int(folded.max(initial=0))
    bits = 7
    while bits < 64 and largest >> bits:
        size += folded >= np.uint64(1 << bits)
        bits += 7
    return size


def write(out: Data, at: Ints, folded: npt.NDArray[np.uint64], size: Ints) -> None:
    """Put each number at its place."""
    longest = int(size.max(initial=1))
    for byte in range(longest):
        here = slice(None) if byte == 0 else np.flatnonzero(size > byte)
        bits = (folded[here] >> np.uint64(7 * byte)).astype(np.uint8) & 0x7F
        out[at[here] + byte] = bits | ((size[here] > byte + 1).astype(np.uint8) << 7)
