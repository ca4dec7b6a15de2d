"""Measurements, and their medians over several runs."""

from __future__ import annotations

import statistics
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
other_load                   cores that were busy with anything else; if there are many, distrust the rest
p50_ms, p99_ms, p999_ms      from the producer's clock to the target's LogAppendTime
mirror_cpu, source_cpu,      CPU time at a steady rate, as percent of a core: of the mirror's process tree, and of each broker
target_cpu
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
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for measurement in measurements:
        row = values.setdefault((measurement.workload, measurement.tool), {})
        for name, value in measurement.figures.items():
            row.setdefault(name, []).append(value)
    return {key: {name: statistics.median(all_) for name, all_ in row.items()} for key, row in values.items()}
