"""The processes of this machine and their parents, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

# Positions in the list that `stat_fields` returns.
STATE, PARENT, START_TIME = 0, 1, 19


def command(pid: int) -> str:
    """Return the command line of a process, or "" if the process has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat from the state on, or an empty list if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            # The process name before them is in parentheses and may hold any character.
            return stat.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def all_stat_fields() -> dict[int, list[str]]:
    """Return the `stat_fields` of every process by its id."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: fields for pid in pids if (fields := stat_fields(pid))}


def parents() -> dict[int, int]:
    """Return the parent of every process."""
    return {pid: int(fields[PARENT]) for pid, fields in all_stat_fields().items()}
