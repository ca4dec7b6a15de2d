"""Signed (zigzag) varints: many at once, each at its own place in one array of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mirrormaker.errors import BadVarint
from mirrormaker.wire.protocol.codec import MAX_VARINT_64, read_varint

Data = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def read(data: Data, at: Ints) -> tuple[Ints, Ints]:
    """Decode the varints that begin at the given places; return the numbers, and the places where the varints end."""
    try:
        byte = data[at]
        value = (byte & 0x7F).astype(np.uint64)
        after = at + 1
        more = np.flatnonzero(byte & 0x80)
        shift = 7
        while more.size:
            if shift > 63:
                raise BadVarint("a varint has more than 64 bits")
            byte = data[after[more]]
            value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            after[more] += 1
            more = more[byte > 0x7F]
            shift += 7
    except IndexError as error:
        raise BadVarint("a varint goes beyond the end of the data") from error
    signed: Ints = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
    return signed, after


def read_one(raw: memoryview, at: int) -> tuple[int, int]:
    """Decode the varint that begins at `at`; return the number and the place where the varint ends."""
    value, after = read_varint(raw, at, MAX_VARINT_64)
    return value >> 1 ^ -(value & 1), after


def zigzag(values: Ints) -> npt.NDArray[np.uint64]:
    """Fold signed numbers into unsigned ones: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    folded: Any = (values << 1) ^ (values >> 63)
    return folded.view(np.uint64)  # type: ignore[no-any-return]


def sizes(folded: npt.NDArray[np.uint64]) -> Ints:
    """Return the size in bytes of each number's varint."""
    size = np.ones(len(folded), np.int64)
    largest = int(folded.max(initial=0))
    bits = 7
    while bits < 64 and largest >> bits:
        size += folded >= np.uint64(1 << bits)
        bits += 7
    return size


def size_of(number: int) -> int:
    """Return the size in bytes of the varint of a number, or of its negative if that is larger."""
    return max(1, ((2 * number).bit_length() + 6) // 7)


def write(out: Data, at: Ints, folded: npt.NDArray[np.uint64], size: Ints) -> None:
    """Write each number's varint, of the given size, to its place in `out`."""
    longest = int(size.max(initial=1))
    for byte in range(longest):
        here = slice(None) if byte == 0 else np.flatnonzero(size > byte)
        bits = (folded[here] >> np.uint64(7 * byte)).astype(np.uint8) & 0x7F
        out[at[here] + byte] = bits | ((size[here] > byte + 1).astype(np.uint8) << 7)
