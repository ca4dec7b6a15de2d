"""`python -m bench page`: write the stored figures of the program as it is into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import ROOT, store, tables
from bench.chart import svg
from bench.goals import evaluate
from bench.results import latest, medians
from bench.schedule import ROUNDS, missing
from bench.store import Stored
from bench.workloads import FULL

DOCS = ROOT / "docs"
_BEGIN, _END = "<!-- bench: written by `make bench` -->", "<!-- bench: end -->"


def main(arguments: Sequence[str]) -> int:
    """Write the page; return 1 if figures are missing."""
    parser = argparse.ArgumentParser(prog="python -m bench page", description=__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="the oldest commit (default: the last that changed src/)")
    stored = store.load(store.commits_since(parser.parse_args(arguments).since))
    console = Console()
    lacking = say_what_is_missing(console, stored)
    if stored.measurements:
        console.print(f"Wrote {write(stored)}", highlight=False)
    return 1 if lacking else 0


def say_what_is_missing(console: Console, stored: Stored) -> bool:
    """Print which workloads lack runs, and return True if one does."""
    lacking = missing(FULL, stored.measurements)
    for work, runs in lacking.items():
        console.print(f"{work}: {runs} {'runs are' if runs > 1 else 'run is'} missing", highlight=False)
    if lacking:
        console.print("`python -m bench --rest` measures them, `python -m bench page` writes the page without them")
    return bool(lacking)


def write(stored: Stored) -> Path:
    """Write the chart and the tables into the documentation, between its markers. Return the path of the document."""
    measurements = latest(stored.measurements, ROUNDS)
    figures = medians(measurements)
    heading = store.heading([], quick=False)
    parts = [
        _BEGIN,
        f"Medians of the runs of `make bench` on {' and '.join(stored.days)}, with the smallest and the largest value below: "
        f"{heading['cores']} cores ({heading['processor']}) shared by both brokers and the mirror.\n",
        "![the figures below as bars](benchmarks.svg)\n",
    ]
    for work in FULL:
        head, *rows = tables.rows(work, measurements, "<br>")
        if not rows:
            continue
        rule = [":--"] + ["--:"] * (len(head) - 1)
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
        parts += [f"## {work.name}: {work.title}\n", "\n".join(lines) + "\n"]
        if work.name in tables.REMARKS:
            parts.append(tables.REMARKS[work.name] + "\n")
        if notes := tables.notes(work, measurements):
            parts.append("\n".join(f"- {note}" for note in notes) + "\n")
    parts += ["## Goals\n", "\n".join(f"- {verdict}" for verdict in evaluate(figures)) + "\n", _END]
    replace_block(DOCS / "benchmarks.md", _BEGIN, _END, "\n".join(parts))
    (DOCS / "benchmarks.svg").write_text(svg(figures))
    return Path(os.path.relpath(DOCS / "benchmarks.md", ROOT))


def replace_block(page: Path, begin: str, end: str, content: str) -> None:
    """Replace what stands between two markers of a page, and the markers, by `content`."""
    before, _, rest = page.read_text().partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page.name} does not have {begin} and {end} behind it")
    page.write_text(before + content + after)
