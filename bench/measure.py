"""Measure a mirror from outside: its processes in /proc, and the end offsets of the target."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tests.support.process_measurements import ProcessTree, cpu_seconds, machine_cpu_seconds

# Seconds between two requests for the target's end offsets. One costs 0.2 ms; 20 ms are 4 % of the shortest copy here.
_POLL = 0.02
# With thousands of partitions a request costs more: then it is sent less often, for a tenth of the time.
_LOOKS = 10

# Seconds between two measurements of memory and searches for new processes. The kernel counts pages for 10 to 20 ms.
_MEMORY_INTERVAL = 0.5


@dataclass(frozen=True)
class Moment:
    """The state of a copy at one time. CPU times are in seconds."""

    time: float
    records: int
    mirror_cpu: float
    helpers_cpu: float  # of the brokers and of a producer that runs at the same time
    others_cpu: float  # of all processes that take no part in the copy


@dataclass(frozen=True)
class Copy:
    """A copy from the start of the mirror to its last record."""

    started: float
    first: Moment | None  # when the first record was on the target
    last: Moment | None  # when all records were on the target
    records: int  # on the target when the mirror was last watched


def watch_copy(
    tree: ProcessTree,
    helpers: Collection[int],
    started: float,
    records_on_target: Callable[[], int],
    records: int,
    limit: float,
    is_alive: Callable[[], bool],
    progress: Callable[[int], None],
) -> Copy:
    """Watch a mirror until all records are on the target, the mirror has ended, or `limit` seconds have passed.

    `helpers` are the processes that take part in the copy: brokers, and a producer that runs at the same time.
    """
    first = last = None
    next_measurement = 0.0
    while True:
        asked = time.monotonic()
        seen, now = records_on_target(), time.monotonic()
        if seen and first is None:
            first = moment(tree, helpers, now, seen)
        if seen >= records:
            last = moment(tree, helpers, now, seen)
        is_over = last or now - started > limit or not is_alive()
        if is_over or now > next_measurement:
            tree.update()
            tree.measure_memory()
            progress(seen)
            next_measurement = now + _MEMORY_INTERVAL
        if is_over:
            return Copy(started, first, last, seen)
        time.sleep(max(_POLL, _LOOKS * (now - asked)))


def moment(tree: ProcessTree, helpers: Iterable[int], now: float, records: int) -> Moment:
    """Return the CPU times up to now."""
    tree.update()
    mirror, helping = tree.cpu_seconds(), cpu_seconds(helpers)
    return Moment(now, records, mirror, helping, machine_cpu_seconds() - mirror - helping - time.process_time())


def other_load(since: Moment, until: Moment) -> float:
    """Return how many cores were busy with other processes between two moments."""
    return max(0.0, until.others_cpu - since.others_cpu) / (until.time - since.time)
