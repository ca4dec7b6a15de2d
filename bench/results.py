"""What was measured, and its median over several runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

Figures = dict[str, float]
"""A measurement's figures by name; one that could not be taken is not in it.

records_per_s, mb_per_s      from the first record seen on the target to the last; payload bytes, 1 MB = 10^6
end_to_end_per_s             records by the time from the process's start to the last record
cpu_s_per_gb                 of the mirror's whole process tree, per GB of payload between first and last record
brokers_cpu_s_per_gb         of both brokers meanwhile: on a small machine they set the pace
startup_cpu_s                of the same tree up to the first record
peak_mb                      largest sum of the tree's proportional set sizes (PSS), looked at twice a second
first_record_s               from the process's start to the first record on the target
other_load                   cores busy with neither mirror nor brokers nor bench meanwhile: the trust in all the rest
p50_ms, p99_ms, p999_ms      producer's clock to the target's LogAppendTime
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
    """By workload and tool, each figure's median over the runs that have it."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for measurement in measurements:
        row = values.setdefault((measurement.workload, measurement.tool), {})
        for name, value in measurement.figures.items():
            row.setdefault(name, []).append(value)
    return {key: {name: statistics.median(all_) for name, all_ in row.items()} for key, row in values.items()}
