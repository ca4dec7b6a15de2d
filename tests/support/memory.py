"""How much memory something took, in libraries too: the kernel's own count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(run: Callable[[], object]) -> int:
    """By how many bytes this process grew at most while it ran."""
    try:
        _RESET.write_text("5")  # sets the high-water mark to what is used now
    except OSError:
        pytest.skip("only Linux tells how much memory was used")
    before = _peak()
    run()
    return _peak() - before


def _peak() -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no high-water mark")
