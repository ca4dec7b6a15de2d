"""A process that clears up after its owner: `python reaper.py` reads lines from the owner until the owner has ended.

Each line is a JSON object: {"process": [pid, start time]} or {"directory": path} registers something, and the same with
"forget": true removes it again, once the owner has cleared it up. When stdin ends, everything that is still registered
is killed or removed. The file uses only the standard library and is run by its path, so that it starts quickly and
whatever the owner's working directory and module path are.
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

PATIENCE = 10.0  # seconds for killed processes to end before their directories are removed; a JVM takes less than one


def start_time(pid: int) -> str:
    """Return when a process started, as the system says it; "" if it has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            # The process name in parentheses may hold any character. The state is the first field after it, and the
            # start time is the twentieth.
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except ProcessLookupError:
        return ""
    return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()


def read_registrations(lines: Iterable[str]) -> tuple[dict[int, str], set[str]]:
    """Read the owner's lines to their end. Return the processes and directories that are still registered."""
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


def clear_up(processes: dict[int, str], directories: set[str]) -> None:
    """Kill the registered processes, then remove the directories."""
    for pid, started in processes.items():
        if start_time(pid) == started:
            # Each registered process leads a session of its own: its process group holds only its children.
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
    clear_up(*read_registrations(sys.stdin))
