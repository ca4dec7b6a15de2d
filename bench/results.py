"""Measurements, their medians over several runs, and how far the runs differ."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

Figures = dict[str, float]
"""A measurement's figures by name. A figure that could not be measured is missing.

records_per_s, mb_per_s      from the first record on the target to the last; bytes of payload, 1 MB = 10^6
end_to_end_per_s             records per second from the start of the process to the last record
cpu_s_per_gb                 CPU time of the mirror's process tree per GB of payload, between first and last record
brokers_cpu_s_per_gb         CPU time of both brokers in the same time: on a small machine they limit the throughput
startup_cpu_s                CPU time of the mirror's process tree up to the first record
peak_mb                      largest sum of the tree's proportional set sizes (PSS), measured twice a second
first_record_s               from the start of the process to the first record on the target
share_of_limit               CPU time of mirror and brokers, divided by the time of all cores, between first and last record
other_load                   cores that were busy with anything else; if there are many, distrust the rest
p50_ms, p99_ms, p999_ms      from the producer's clock to the target's LogAppendTime
mirror_cpu, source_cpu,      CPU time at a steady rate, as percent of a core: of the mirror's process tree, and of each broker
target_cpu
restart_s                    from the start of a killed mirror's successor to its first record on the target
peak_2_mb, peak_3_mb         peak_mb with so many streams
mb_per_stream                what each further stream adds to it
idle_cpu                     CPU time of an idle mirror, as percent of a core
"""


@dataclass(frozen=True)
class Measurement:
    """One mirror's figures for one workload in one run."""

    workload: str
    tool: str
    run: int
    figures: Figures
    notes: tuple[str, ...] = ()


def medians(measurements: Iterable[Measurement]) -> dict[tuple[str, str], Figures]:
    """Return the median of each figure over the runs that have it, by workload and tool."""
    return {
        key: {name: statistics.median(values) for name, values in row.items()}
        for key, row in _values(measurements).items()
    }


def spreads(measurements: Iterable[Measurement]) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return the smallest and the largest value of each figure that several runs have, by workload and tool."""
    return {
        key: {name: (min(values), max(values)) for name, values in row.items() if len(values) > 1}
        for key, row in _values(measurements).items()
    }


def latest(measurements: Iterable[Measurement], runs: int) -> list[Measurement]:
    """Return the last `runs` measurements of each tool with each workload. `measurements` begin with the oldest."""
    kept: dict[tuple[str, str], deque[Measurement]] = {}
    for measurement in measurements:
        kept.setdefault((measurement.workload, measurement.tool), deque(maxlen=runs)).append(measurement)
    return [measurement for row in kept.values() for measurement in row]


def _values(measurements: Iterable[Measurement]) -> dict[tuple[str, str], dict[str, list[float]]]:
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for measurement in measurements:
        row = found.setdefault((measurement.workload, measurement.tool), {})
        for name, value in measurement.figures.items():
            row.setdefault(name, []).append(value)
    return found
