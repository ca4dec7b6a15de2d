"""Measure how much memory a call takes, in libraries too, by the kernel's own count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
