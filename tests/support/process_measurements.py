"""CPU time and memory of a process and all its descendants, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mirrormaker.embedded.process_tree import PARENT, START_TIME, STATE, all_stat_fields, stat_fields

_TICKS = os.sysconf("SC_CLK_TCK")


class ProcessTree:
    """Processes and their descendants, also those that have got another parent meanwhile."""

    def __init__(self, *roots: int) -> None:
        self._roots = roots
        self._members: dict[int, str] = {}  # process id -> start time, because the system uses ids again
        self.peak_memory = 0  # bytes

    def update(self) -> None:
        """Find the processes that belong to the tree now."""
        stats = {pid: (int(fields[PARENT]), fields[START_TIME]) for pid, fields in all_stat_fields().items()}
        known = {pid: born for pid, born in self._members.items() if pid in stats and stats[pid][1] == born}
        if not self._members:
            known |= {root: stats[root][1] for root in self._roots if root in stats}
        while new := {pid: born for pid, (parent, born) in stats.items() if parent in known and pid not in known}:
            known |= new
        self._members = known

    def measure_memory(self) -> None:
        """Update `peak_memory` with the memory that all processes use now."""
        self.peak_memory = max(self.peak_memory, sum(_proportional_set_size(pid) for pid in self._members))

    def cpu_seconds(self) -> float:
        """Return the CPU time of every living process and of the children that it has reaped."""
        return cpu_seconds(self._members)

    def survivors(self) -> list[int]:
        """Return the ids of the processes that still run."""
        stats = {pid: stat_fields(pid) for pid in self._members}
        return [
            pid
            for pid, fields in stats.items()
            if fields and fields[START_TIME] == self._members[pid] and fields[STATE] != "Z"
        ]


def cpu_seconds(processes: Iterable[int]) -> float:
    """Return the CPU time of these processes and of the children that they have reaped."""
    return sum(sum(int(ticks) for ticks in stat_fields(pid)[11:15]) for pid in processes) / _TICKS


def machine_cpu_seconds() -> float:
    """Return the CPU time of all processes of this machine."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[1:8])
    return (user + nice + system + irq + softirq) / _TICKS


def _proportional_set_size(pid: int) -> int:
    """Return the bytes that a process uses; a page that n processes share counts as an n-th of its size."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0
