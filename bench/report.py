"""Write the figures of a run to the terminal and to files in build/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from bench import BUILD, ROOT, tables
from bench.chart import svg
from bench.goals import Verdict, evaluate
from bench.results import Measurement, medians
from bench.store import heading, rounded
from bench.workloads import AnyWorkload


def show(
    console: Console, quick: bool, works: Sequence[AnyWorkload], measurements: Sequence[Measurement]
) -> list[Verdict]:
    """Print the tables and the verdicts on the goals of these workloads. Return the verdicts."""
    for work in works:
        table = Table(
            title=f"{work.name}: {work.title}",
            caption=tables.REMARKS.get(work.name),
            box=box.SIMPLE_HEAD,
            title_justify="left",
            caption_justify="left",
        )
        head, *rows = tables.rows(work, measurements, "\n")
        for number, column in enumerate(head):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        for note in tables.notes(work, measurements):
            console.print(f"{work.name}, {note}", highlight=False)
    names = {work.name for work in works}
    verdicts = [verdict for verdict in evaluate(medians(measurements)) if verdict.goal.workload in names]
    for verdict in verdicts:
        colour = {True: "green", False: "red", None: "yellow"}[verdict.met]
        console.print(str(verdict), style=colour, highlight=False)
    if quick:
        console.print(
            "These are the quick sizes, too short for the Java tools' compilers. The goals apply to the full sizes."
        )
    return verdicts


def write_files(
    quick: bool, works: Sequence[AnyWorkload], measurements: Sequence[Measurement], verdicts: Sequence[Verdict]
) -> Path:
    """Write the JSON file and the chart of this run. Return the path of the JSON file."""
    figures = medians(measurements)
    BUILD.mkdir(exist_ok=True)
    content = heading(works, quick) | {
        "medians": [{"workload": work, "tool": tool, "figures": row} for (work, tool), row in figures.items()],
        "goals": [{"goal": v.goal.title, "value": v.value, "met": v.met, "text": str(v)} for v in verdicts],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    (BUILD / "bench.json").write_text(json.dumps(rounded(content), indent=2) + "\n")
    (BUILD / "bench.svg").write_text(svg(figures))
    return (BUILD / "bench.json").relative_to(ROOT)
