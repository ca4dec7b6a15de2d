"""Clears up after an owner that was killed: `python keeper.py`, fed through stdin until the owner is gone.

Each line is a JSON object: {"process": [pid, start time]} or {"directory": path} to take care of something,
the same with "forget": true once the owner has cleared it up itself. Only the standard library, and run by path:
it must start in no time and whatever the owner's working directory and module path are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

PATIENCE = 10.0
"""Seconds for killed processes to disappear before their directories go; a JVM takes well under one."""


def start_time(pid: int) -> str:
    """When a process started, in the system's own words; "" if it is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            # The name in parentheses may hold anything; state is the first field after it, start time the twentieth.
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except ProcessLookupError:
        return ""
    return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


def keep(lines: Iterable[str]) -> tuple[dict[int, str], set[str]]:
    """Follow the owner's lines to their end: what is left then."""
    processes: dict[int, str] = {}
    directories: set[str] = set()
    for line in lines:
        note = json.loads(line)
        if "process" in note:
            pid, started = note["process"]
            processes[pid] = started
            if note.get("forget"):
                del processes[pid]
        else:
            (directories.discard if note.get("forget") else directories.add)(note["directory"])
    return processes, directories


def clear(processes: dict[int, str], directories: set[str]) -> None:
    """Kill what still is the process that was registered, then remove the directories."""
    for pid, started in processes.items():
        if start_time(pid) == started:
            # Each registered process leads a session of its own, so its group is its children and nobody else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(start_time(pid) == started for pid, started in processes.items()):
        time.sleep(0.02)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    clear(*keep(sys.stdin))
