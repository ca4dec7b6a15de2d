"""What a mirror costs and when its records arrive, seen from outside: /proc, and the target's end offsets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")

_POLL = 0.02
"""Seconds between two looks at the target: one costs 0.2 ms, and 20 ms is 4 % of the shortest copy here."""

_LOOK_ROUND = 0.5
"""Seconds between two looks at memory and for new processes: the kernel counts pages for 10 to 20 ms each time."""


class Tree:
    """A process and all that it started, also what was handed on to another parent meanwhile."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._members: dict[int, str] = {}  # process id -> start time, since ids come back
        self.peak_memory = 0

    def find(self) -> None:
        """See which processes there are now."""
        stats = dict(_all_processes())
        known = {pid: born for pid, born in self._members.items() if pid in stats and stats[pid][1] == born}
        if not self._members and self._root in stats:
            known[self._root] = stats[self._root][1]
        grown = True
        while grown:
            new = {pid: born for pid, (parent, born) in stats.items() if parent in known and pid not in known}
            known |= new
            grown = bool(new)
        self._members = known

    def weigh(self) -> None:
        """Note how much memory they use now, if it is more than ever before."""
        self.peak_memory = max(self.peak_memory, sum(_pss(pid) for pid in self._members))

    def cpu(self) -> float:
        """CPU seconds so far: of every process that lives, and of the children that it has reaped."""
        return cpu(self._members)

    def survivors(self) -> list[int]:
        """What still runs."""
        stats = {pid: _stat(pid) for pid in self._members}
        return [pid for pid, stat in stats.items() if stat and stat[19] == self._members[pid] and stat[0] != "Z"]


@dataclass(frozen=True)
class Moment:
    """How far the copy was at one time."""

    time: float
    records: int
    cpu: float
    helpers: float
    """CPU seconds of the brokers, and of whoever produces meanwhile."""
    others: float
    """CPU seconds of everything on this machine that has no part in the copy."""


@dataclass(frozen=True)
class Copy:
    """A mirror's way from its start to the last record."""

    started: float
    first: Moment | None
    last: Moment | None
    seen: int
    """Records on the target when watching ended."""


def watch(
    tree: Tree,
    helpers: Collection[int],
    started: float,
    on_target: Callable[[], int],
    records: int,
    limit: float,
    alive: Callable[[], bool],
    tell: Callable[[int], None],
) -> Copy:
    """Follow a copy until all records are there, the mirror is dead or the limit is over.

    `helpers` are the processes that have their part in it: brokers, and whoever produces meanwhile.
    """
    first = last = None
    next_look = 0.0
    while True:
        seen, now = on_target(), time.monotonic()
        if seen and first is None:
            first = moment(tree, helpers, now, seen)
        if seen >= records:
            last = moment(tree, helpers, now, seen)
        over = last or now - started > limit or not alive()
        if over or now > next_look:
            tree.find()
            tree.weigh()
            tell(seen)
            next_look = now + _LOOK_ROUND
        if over:
            return Copy(started, first, last, seen)
        time.sleep(_POLL)


def moment(tree: Tree, helpers: Iterable[int], now: float, records: int) -> Moment:
    """What the mirror, and everybody else, has used up to now."""
    tree.find()
    mirror, helping = tree.cpu(), cpu(helpers)
    return Moment(now, records, mirror, helping, _busy() - mirror - helping - time.process_time())


def other_load(since: Moment, until: Moment) -> float:
    """How many cores were busy with something else between two moments."""
    return max(0.0, until.others - since.others) / (until.time - since.time)


def cpu(processes: Iterable[int]) -> float:
    """CPU seconds of these processes and of the children that they have reaped."""
    return sum(sum(int(ticks) for ticks in _stat(pid)[11:15]) for pid in processes) / _TICKS


def _busy() -> float:
    """CPU seconds that this machine has worked, whoever for."""
    fields = Path("/proc/stat").read_text().split(maxsplit=9)
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[1:8])
    return (user + nice + system + irq + softirq) / _TICKS


def _all_processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Every process id with its parent and start time."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(int(name))):
            yield int(name), (int(stat[1]), stat[19])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            # The name in parentheses may hold anything.
            return stat.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _pss(pid: int) -> int:
    """Bytes of memory, pages shared with n processes counted as an n-th."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0
