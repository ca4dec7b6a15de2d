"""Where the rows go: a file of JSON lines, and the documentation that is made of it."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from faults import ROOT
from faults.case import Apart, Case, Row

RESULTS = ROOT / "faults" / "results.jsonl"
DOCUMENT = ROOT / "docs" / "reliability.md"

_HEAD = ("case", "rounds", "records", "lost", "doubled", "out of order", "longest pause", "verdict")
_JAVA_HEAD = ("mirror", "kills", "records", "lost", "doubled", "out of order")
_TOP = "<!-- written by `make faults`: change faults/report.py instead -->"

_HOW = """\
Every case has its own topic of 8 partitions and its own group on two clusters of three real brokers each (replication 3,
`min.insync.replicas=2`), under a steady load of {rate:,} numbered, keyed records a second. The mirrors are `mirrormaker run`
processes of two streams each, with default settings: two in one group unless the case says otherwise. Faults come at random
moments.

- **lost, doubled, out of order**: the logs of both sides are read back and compared partition by partition: number, key and
  timestamp of every record, and the order. (A Java MirrorMaker sends records to other partitions, by key: where one takes
  part, they are looked for in all of them.)
- **longest pause**: the longest time for which any partition stood still on the target while the source had more of it. Both
  sides are asked every 0.2 s. A time behind it is what is promised.
- The last rows have clusters of their own; what they count is said in the remarks.
- **verdict**: *holds* if every record is there once and in order, the group's committed lag came back to 0 within 30 s after
  the load ended, every mirror that was asked to stop ended with exit code 0, and no pause was longer than promised.
"""

_OTHERS = """\
One process mirrors a load of {rate:,} records a second, is killed at random moments, and is started again at once; all run
with their defaults. In the end both sides are compared as above.
"""


def show(console: Console, cases: Sequence[Case | Apart], rows: Iterable[Row]) -> None:
    """The table of this run."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(_HEAD):
        table.add_column(column, justify="right" if 0 < number < len(_HEAD) - 1 else "left")
    by_name = {case.name: case for case in cases}
    for row in rows:
        table.add_row(row.case, *_cells(by_name[row.case], row)[1:], style=None if row.holds else "red")
    console.print(table)


def keep(kind: str, rows: Iterable[Row], rate: int) -> None:
    """Replace the rows of the cases that were run; of both kinds, `case` and `java`."""
    machine = {"cores": os.cpu_count(), "memory_gb": round(_memory() / 1e9), "date": _today(), "rate": rate}
    kept = {(line["kind"], line["case"]): line for line in _lines()}
    for row in rows:
        kept[kind, row.case] = {"kind": kind, **asdict(row), **machine}
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in kept.values()))


def write_documentation(cases: Sequence[Case | Apart]) -> Path:
    """The whole document, made of the rows that are kept."""
    lines = _lines()
    rows = {line["case"]: line for line in lines if line["kind"] == "case"}
    parts = [_TOP, "# Reliability\n", _summary(lines)]
    table = [_HEAD, (":--", *("--:",) * (len(_HEAD) - 2), ":--")]
    remarks = []
    for case in cases:
        if case.name in rows:
            fields = {key: value for key, value in rows[case.name].items() if key in Row.__dataclass_fields__}
            row = Row(**fields)
            table.append(_cells(case, row))
            remarks += [f"- *{case.title}*: {text}" for text in (*row.troubles, *row.notes)]
    parts.append(_markdown(table))
    java = [line for line in lines if line["kind"] == "java"]
    if java:
        parts.append("## The same kills, other mirrors\n")
        parts.append(_OTHERS.format(rate=max(line["rate"] for line in java)))
        found = [
            tuple(_number(line[key]) for key in ("case", "rounds", "records", "lost", "doubled", "out_of_order"))
            for line in java
        ]
        parts.append(_markdown([_JAVA_HEAD, (":--", *("--:",) * (len(_JAVA_HEAD) - 1)), *found]))
    if remarks:
        parts += ["## Remarks\n", "\n".join(remarks) + "\n"]
    parts += ["## How it is counted\n", _HOW.format(rate=max(line["rate"] for line in lines if line["kind"] == "case"))]
    DOCUMENT.write_text("\n".join(parts))
    return DOCUMENT.relative_to(ROOT)


def _summary(lines: Sequence[dict[str, Any]]) -> str:
    cases = [line for line in lines if line["kind"] == "case"]
    held = sum(line["holds"] for line in cases)
    records = sum(line["records"] for line in cases)
    days = sorted({line["date"] for line in lines})
    shape = "; ".join(sorted({f"{line['cores']} cores, {line['memory_gb']} GB of memory" for line in lines}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"`make faults` ({when}; {shape}, shared by all brokers, mirrors and the load): {held} of {len(cases)} cases hold,"
        f" {records:,} records in all. `python -m faults --only CASE` runs one again; `--list` names them.\n"
    )


def _cells(case: Case | Apart, row: Row) -> tuple[str, ...]:
    promised = f" (of {case.limit:g})" if case.limit is not None else ""
    counts = (row.rounds, row.records, row.lost, row.doubled, row.out_of_order)
    verdict = "holds" if row.holds else "does not hold"
    if row.holds and not case.exact:
        verdict = "holds (nothing lost)"
    return (case.title, *map(_number, counts), f"{row.pause:.1f} s{promised}" if row.pause else "", verdict)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _markdown(table: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in table) + "\n"


def _lines() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
