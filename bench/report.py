"""Write the figures to the terminal, to a JSON file, to the log of all results, and into the documentation."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench import BUILD, ROOT
from bench.chart import number_text, svg
from bench.goals import Verdict, evaluate
from bench.results import Figures, Measurement, medians
from bench.tools import TOOLS
from bench.workloads import LatencyWorkload, Workload

Works = Sequence[Workload | LatencyWorkload]

_LOG = ROOT / "bench" / "results.jsonl"
_DOCS = ROOT / "docs"
_BEGIN, _END = "<!-- bench: written by `make bench` -->", "<!-- bench: end -->"

_COPY = (
    ("records/s", "records_per_s"),
    ("MB/s", "mb_per_s"),
    ("CPU s/GB", "cpu_s_per_gb"),
    ("brokers' CPU s/GB", "brokers_cpu_s_per_gb"),
    ("peak MB", "peak_mb"),
    ("first record s", "first_record_s"),
    ("start-up CPU s", "startup_cpu_s"),
    ("records/s from start", "end_to_end_per_s"),
)
_LATENCY = (
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
    ("p99.9 ms", "p999_ms"),
    ("CPU %", "mirror_cpu"),
    ("source broker's CPU %", "source_cpu"),
    ("target broker's CPU %", "target_cpu"),
    ("peak MB", "peak_mb"),
    ("first record s", "first_record_s"),
)
_DISTURBED = 0.15  # cores of other load above which a figure is marked; the kernel's own work stays below

_REMARKS = {
    "W4": "Ours and the Java MirrorMaker choose one of the 12 partitions by the record's key. "
    "MirrorMaker 2 always keeps the number of the source partition, and so writes to 8 of the 12.",
    "W5": "Every mirror is configured with `compression.type=lz4`.",
    "H": "The handler writes each value in upper case. Ours supports two kinds of handlers: a Python function that is "
    "called for each record, and one that is called for an Arrow table of many records. The Java MirrorMaker's "
    "handler is a class that is called for each record; MirrorMaker 2 has no message handlers. "
    "There is no goal for this workload.",
}

HOW = """\
Source and target are one broker each (Kafka 4.3.1, 1 GB heap). Topics have 8 partitions (W4's target: 12, W7: 16).
Everything runs on one machine.
Every mirror has two streams or tasks, and every copy has an empty target topic and a new group.

The Java tools run with the JVM options of Kafka's own start scripts, and with their defaults
except for addresses, group and `auto.offset.reset=earliest`
(MirrorMaker 2: heartbeats, checkpoints, offset syncs and config sync are off).
*Tuned* ones have batches of 1 MB, a linger of 50 ms, large fetches, five requests in flight
and the source's codec (W5: lz4).
Ours runs with its defaults.

The records of W2, W5 and H are chosen from 10,000 JSON lines, those of W7 from 500.
Those of W4 have keys of 8 bytes, 80,000 different ones, in the partitions that Java's partitioner chooses.
If both clusters do not hold the same number of records after a copy, a note below the table says so.

- **records/s, MB/s**: from the first record on the target to the last. The target's end offsets are read every 20 ms.
  MB are 10^6 bytes of payload. *From start*: from the start of the process.
- **CPU s/GB**: user and system time of the mirror's whole process tree (for ours: driver, JVM, Python workers)
  between the first and the last record, per GB of payload.
  *Start-up CPU* is the time before the first record.
  *Brokers'* is the CPU time of both brokers between the first and the last record:
  where all processes share a few cores, the brokers limit the throughput.
  They are warm: before the first run, the Java MirrorMaker and ours copy each backlog once without being measured.
- **peak MB**: the largest sum of the tree's proportional set sizes (PSS), measured twice a second.
- **first record**: from the start of the process to the first record on the target.
- **CPU %**: of a core, while records come at a steady rate (W7, L).
- **latency**: from the producer's clock, which each record holds, to the target's LogAppendTime
  (whole milliseconds; half a millisecond is added), after a warm-up.
  Tuned settings trade latency for throughput and are not measured here.

A `~` marks figures that were measured while other processes kept the machine busy.
"""


def show(console: Console, quick: bool, works: Works, measurements: Sequence[Measurement]) -> list[Verdict]:
    """Print the tables and the verdicts on the goals of these workloads. Return the verdicts."""
    figures = medians(measurements)
    for work in works:
        table = Table(
            title=f"{work.name}: {work.title}",
            caption=_REMARKS.get(work.name),
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
        )
        head, *rows = _rows(work, figures)
        for number, column in enumerate(head):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for measurement in measurements:
        for note in _notes(measurement):
            console.print(f"{measurement.workload}, {note}", highlight=False)
    names = {work.name for work in works}
    verdicts = [verdict for verdict in evaluate(figures) if verdict.goal.workload in names]
    for verdict in verdicts:
        colour = {True: "green", False: "red", None: "yellow"}[verdict.met]
        console.print(str(verdict), style=colour, highlight=False)
    if quick:
        console.print(
            "These are the quick sizes, too short for the Java tools' compilers. The goals apply to the full sizes."
        )
    return verdicts


def append_to_log(quick: bool, works: Works, measurements: Iterable[Measurement]) -> None:
    """Append one line for one run to the log. Lines are never changed."""
    line = _heading(quick, works) | {"measurements": [_rounded(asdict(m)) for m in measurements]}
    with open(_LOG, "a") as log:
        log.write(json.dumps(line) + "\n")


def write_files(quick: bool, works: Works, measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> Path:
    """Write the JSON file and the chart of this run. Return the path of the JSON file."""
    figures = medians(measurements)
    BUILD.mkdir(exist_ok=True)
    content = _heading(quick, works) | {
        "medians": [{"workload": work, "tool": tool, "figures": row} for (work, tool), row in figures.items()],
        "goals": [{"goal": v.goal.title, "ratio": v.ratio, "met": v.met, "text": str(v)} for v in verdicts],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    (BUILD / "bench.json").write_text(json.dumps(_rounded(content), indent=2) + "\n")
    (BUILD / "bench.svg").write_text(svg(figures))
    return (BUILD / "bench.json").relative_to(ROOT)


def write_documentation(works: Works, measurements: Sequence[Measurement], verdicts: Sequence[Verdict]) -> Path:
    """Write the chart and the tables into the documentation, between its markers. Return the path of the document."""
    figures = medians(measurements)
    runs = len({measurement.run for measurement in measurements})
    heading = _heading(False, works)
    how_many = f"Medians of {runs} runs" if runs > 1 else "One run"
    parts = [
        _BEGIN,
        f"{how_many} of `make bench` on {heading['date'][:10]}: {heading['cores']} cores "
        f"({heading['processor']}) shared by both brokers and the mirror.\n",
        "![the figures below as bars](benchmarks.svg)\n",
    ]
    for work in works:
        head, *rows = _rows(work, figures)
        rule = [":--"] + ["--:"] * (len(head) - 1)
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
        parts += [f"## {work.name}: {work.title}\n", "\n".join(lines) + "\n"]
        if work.name in _REMARKS:
            parts.append(_REMARKS[work.name] + "\n")
        notes = [
            f"- {note}"
            for measurement in measurements
            if measurement.workload == work.name
            for note in _notes(measurement)
        ]
        if notes:
            parts.append("\n".join(notes) + "\n")
    parts += ["## Goals\n", "\n".join(f"- {verdict}" for verdict in verdicts) + "\n"]
    parts += ["## How it is measured\n", HOW + _END]
    file = _DOCS / "benchmarks.md"
    text = file.read_text() if file.exists() else f"# Benchmarks\n\n{_BEGIN}{_END}\n"
    if _BEGIN not in text:
        text += f"\n{_BEGIN}{_END}\n"
    before, after = text.split(_BEGIN)[0], text.split(_END)[-1]
    file.write_text(before + "\n".join(parts) + after)
    (_DOCS / "benchmarks.svg").write_text(svg(figures))
    return file.relative_to(ROOT)


def _rows(work: Workload | LatencyWorkload, figures: Mapping[tuple[str, str], Figures]) -> list[list[str]]:
    """Return a table as text, its heading first."""
    columns = _LATENCY if isinstance(work, LatencyWorkload) else _COPY
    rows = [["", *(title for title, _ in columns)]]
    for tool in TOOLS.values():
        row = figures.get((work.name, tool.name))
        if row is not None:
            mark = "~ " if row.get("other_load", 0) > _DISTURBED else ""
            rows.append([mark + tool.title, *(number_text(row[f]) if f in row else "-" for _, f in columns)])
    return rows


def _notes(measurement: Measurement) -> list[str]:
    """Return the notes of a measurement, with the tool and the run."""
    title = TOOLS[measurement.tool].title
    return [f"{title}, run {measurement.run}: {note}" for note in measurement.notes]


def _heading(quick: bool, works: Works) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "python": platform.python_version(),
        "work": [asdict(work) for work in works],
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _rounded(value: Any) -> Any:
    """Return a value with all floats rounded to five significant digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, (list, tuple)) else value
