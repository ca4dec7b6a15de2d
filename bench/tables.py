"""The figures as rows of text, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from bench.chart import number_text
from bench.results import Measurement, medians, spreads
from bench.tools import TOOLS
from bench.workloads import AnyWorkload, IdleWorkload, LatencyWorkload, RestartWorkload, StreamsWorkload, Workload

_COLUMNS: dict[type, tuple[tuple[str, str], ...]] = {
    Workload: (
        ("records/s", "records_per_s"),
        ("MB/s", "mb_per_s"),
        ("CPU s/GB", "cpu_s_per_gb"),
        ("brokers' CPU s/GB", "brokers_cpu_s_per_gb"),
        ("share of the limit", "share_of_limit"),
        ("peak MB", "peak_mb"),
        ("first record s", "first_record_s"),
        ("start-up CPU s", "startup_cpu_s"),
        ("records/s from start", "end_to_end_per_s"),
    ),
    LatencyWorkload: (
        ("p50 ms", "p50_ms"),
        ("p99 ms", "p99_ms"),
        ("p99.9 ms", "p999_ms"),
        ("CPU %", "mirror_cpu"),
        ("source broker's CPU %", "source_cpu"),
        ("target broker's CPU %", "target_cpu"),
        ("peak MB", "peak_mb"),
        ("first record s", "first_record_s"),
    ),
    RestartWorkload: (("first record s", "first_record_s"), ("mirrors again after s", "restart_s")),
    StreamsWorkload: (
        ("peak MB, 2 streams", "peak_2_mb"),
        ("peak MB, 3 streams", "peak_3_mb"),
        ("MB for each further stream", "mb_per_stream"),
    ),
    IdleWorkload: (("idle CPU %", "idle_cpu"), ("PSS MB", "pss_mb"), ("all partitions s", "all_s")),
}
DISTURBED = 0.15  # cores of other load above which a figure is marked; the kernel's own work stays below

REMARKS = {
    "W4": "Ours and the Java MirrorMaker choose one of the 12 partitions by the record's key. "
    "MirrorMaker 2 always keeps the number of the source partition, and so writes to 8 of the 12.",
    "W5": "Every mirror is configured with `compression.type=lz4`.",
    "H": "The handler writes each value in upper case. Ours supports two kinds of handlers: a Python function that is "
    "called for each record, and one that is called for an Arrow table of many records. The Java MirrorMaker's "
    "handler is a class that is called for each record; MirrorMaker 2 has no message handlers.",
    "R": "The process is killed with SIGKILL and started again at once, under the same load. "
    "The Java MirrorMaker's group waits for the killed member until its session ends (45 s).",
}


def rows(work: AnyWorkload, measurements: Sequence[Measurement], line_break: str) -> list[list[str]]:
    """Return a table as text, its heading first. `line_break` stands between a median and its spread."""
    own = [measurement for measurement in measurements if measurement.workload == work.name]
    found, ranges = medians(own), spreads(own)
    columns = _COLUMNS[type(work)]
    table = [["", "runs", *(title for title, _ in columns)]]
    for tool in TOOLS.values():
        key = (work.name, tool.name)
        if key not in found:
            continue
        row = found[key]
        runs = sum(bool(measurement.figures) for measurement in own if measurement.tool == tool.name)
        mark = "~ " if row.get("other_load", 0) > DISTURBED else ""
        cells = [_cell(row.get(figure), ranges[key].get(figure), line_break) for _, figure in columns]
        table.append([mark + tool.title, str(runs), *cells])
    return table


def notes(work: AnyWorkload, measurements: Sequence[Measurement]) -> list[str]:
    """Return the notes of a workload's measurements, with the tool and the run."""
    return [
        f"{TOOLS[measurement.tool].title}, run {measurement.run}: {note}"
        for measurement in measurements
        if measurement.workload == work.name
        for note in measurement.notes
    ]


def _cell(median: float | None, spread: tuple[float, float] | None, line_break: str) -> str:
    if median is None:
        return "-"
    if spread is None:
        return number_text(median)
    return f"{number_text(median)}{line_break}{number_text(spread[0])}..{number_text(spread[1])}"
