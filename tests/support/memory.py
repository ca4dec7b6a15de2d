"""Measure how much memory a call takes: by the kernel's own count, or as the allocators of Python and Arrow count it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

_STATUS, _CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # sets the peak to the memory that is in use now: see proc(5)


def growth(run: Callable[[], object]) -> int:
    """Return by how many bytes this process grew at most during the call."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        pytest.skip("only Linux tells how much memory was used")
    before = _peak()
    run()
    return _peak() - before


def _peak() -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not report a peak")


def peak(run: Callable[[], object]) -> int:
    """Return how many bytes Python and numpy held at most during the call, beyond those of before. Arrow is not counted.

    The caller must have loaded all modules that the call needs.
    """
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def leaked(run: Callable[[], object]) -> int:
    """Return how many bytes Python, numpy and Arrow still hold after the call."""
    tracemalloc.start()
    try:
        gc.collect()
        before = _held()
        run()
        gc.collect()
        return _held() - before
    finally:
        tracemalloc.stop()


def _held() -> int:
    in_arrow: int = pa.total_allocated_bytes()
    return tracemalloc.get_traced_memory()[0] + in_arrow
