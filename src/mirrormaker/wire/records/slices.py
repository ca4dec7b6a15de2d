"""Slices of one piece of memory, as an Arrow array of binary values: Arrow copies such values at the speed of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mirrormaker.errors import CorruptBatch
from mirrormaker.wire.records.varints import Data, Ints


def in_memory_order(starts: Ints, ends: Ints) -> tuple[Ints, Ints, npt.NDArray[np.integer[Any]] | None]:
    """Return the slices start:end in the order of memory, each once, and for each given slice its place among them.

    The place is None if the slices are in that order already. The offsets of an Arrow array must not decrease.
    """
    if bool((starts[1:] >= ends[:-1]).all()):
        return starts, ends, None
    distinct, places = np.unique(starts << 32 | (ends - starts), return_inverse=True)
    starts = distinct >> 32
    ends = starts + (distinct & 0xFFFFFFFF)
    if bool((starts[1:] < ends[:-1]).any()):
        raise CorruptBatch("the fields of two records overlap")
    return starts, ends, places


def binary_array(edges: npt.NDArray[np.int32], data: Data) -> Any:
    """Return data[edges[0]:edges[1]], data[edges[1]:edges[2]], ... as an Arrow array. The edges must not decrease."""
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
