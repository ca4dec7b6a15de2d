"""Which processes there are, and who started whom."""

from __future__ import annotations

import contextlib
from pathlib import Path


def command(pid: int) -> str:
    """A process's command line; nothing if it is gone."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parents() -> dict[int, int]:
    """Every process's parent."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found
