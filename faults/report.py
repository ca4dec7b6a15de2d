"""Store the results in a file of JSON lines, and write the documentation from that file."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.store import commits_since, version
from rich import box
from rich.console import Console
from rich.table import Table
from tests.support.error_rows import ROWS

from faults import ROOT
from faults.case import Case, Result, SeparateCase, is_on_request

RESULTS = ROOT / "faults" / "results.jsonl"
DOCUMENT = ROOT / "docs" / "reliability.md"

_HEAD = (
    "case", "rounds", "records", "lost", "duplicated", "out of order", "longest pause", "committed lag", "verdict",
)  # fmt: skip
_JAVA_HEAD = ("mirror", "kills", "records", "lost", "duplicated", "out of order")
_JAVA_FIELDS = ("case", "rounds", "records", "lost", "duplicated", "out_of_order")
_TOP = "<!-- written by `make faults`: change faults/report.py instead -->"

_HOW = """\
Every case has its own topic of 8 partitions and its own group.
Source and target are clusters of three real brokers each (replication factor 3, `min.insync.replicas=2`),
under a steady load of {rate:,} numbered, keyed records per second.
The mirrors are `mirrormaker run` processes of two streams each, with default settings.
Unless the case says otherwise, two of them are in the group.
Faults happen at random moments.

- **lost, duplicated, out of order**: the logs of both clusters are read and compared partition by partition:
  number, key, timestamp and order of all records.
  A Java MirrorMaker chooses the partition by key; where one takes part, records may be in any partition.
- **longest pause**: the longest time for which any partition of the target stood still
  while the source had more records.
  End offsets are read every 0.2 s. A promise, if there is one, follows in parentheses.
- **committed lag**: the time from the end of the load until the lag of the group's committed offsets was 0.
- **verdict**: a case *holds* if every record is on the target once and in order,
  the committed lag was 0 within 30 s after the end of the load,
  every mirror that was asked to stop ended with exit code 0, and no pause was longer than promised.

The last rows have clusters of their own, and their committed lag is not measured.
Where the source loses records, the number of records is that of the lost ones,
and the verdict is about the mirror's report of them.
"""

_TABLE_HEAD = ("request", "codes", "hold", "other topics", "recovered")
_TABLE = """\
`python -m faults --table`: a proxy answers each request of driver and streams with each of Kafka's error codes,
and with one that Kafka does not define.
{holding} of {cells} cells hold.

Most errors concern one topic of several.
The others must not stand still for more than a second; the topic itself is named if it does, while the error lasts,
is tried again, and has all its records, none twice and in order, within 12 s after the error has ended.
An error that is about the whole answer has 25 s.
Where it concerns a connection, all topics of the cluster wait.
Errors of the offset map, of checkpoints and of groups must not stop any mirrored topic for more than a second.
The log says what is wrong if the mirror cannot do without the answer; within 60 s after the error has ended,
the map is written, and the offsets of groups are on the target.
Requests that open a connection, that belong to the group as a whole, that allocate producer ids,
or that read and write the offsets of other groups get one code of each kind here;
`tests/unit` tries all codes for them with scripted brokers.
Errors of the offset map and of checkpoints get one code of each kind too: each can take more than a minute.

- **other topics**: the longest time for which a topic stood still that the error does not concern.
- **recovered**: the longest time from the end of the error until every record was on the target,
  or until the map was written and the offsets of groups were there.
  The load goes on for half a second of it.
"""

_READERS = """\
`python -m faults --readers`: consumer groups stop on the source and go on at the target.
The columns say how far each group was behind, in records; the cells, how many records it reads a second time.
Negative: it misses so many. A plain topic of 1.2 million records; the target's offsets differ by 7.
Both mirrors run with their defaults, and with their groups switched on.
"""

_OTHERS = """\
One process mirrors a load of {rate:,} records per second.
It is killed at random moments and started again at once.
All mirrors run with their defaults. In the end both clusters are compared as above.
"""


def show(console: Console, cases: Sequence[Case | SeparateCase], results: Iterable[Result]) -> None:
    """Print the table of this run."""
    table = Table(box=box.SIMPLE_HEAD)
    for number, column in enumerate(_HEAD):
        table.add_column(column, justify="right" if 0 < number < len(_HEAD) - 1 else "left")
    by_name = {case.name: case for case in cases}
    for result in results:
        cells = _cells(by_name[result.case], result)
        table.add_row(result.case, *cells[1:], style=None if result.holds else "red")
    console.print(table)


def store(kind: str, result: Result, rate: int) -> None:
    """Replace the stored result of the same case. `kind` is "case" or "java"."""
    _store_line({"kind": kind, **asdict(result)}, rate)


def store_row(name: str, cells: Sequence[Any], spreads: bool, slack: float) -> bool:
    """Replace the stored result of a row of the error table. `spreads`: its errors concern all topics.

    Nothing is stored, and False is returned, if `slack` made the limits others than those that the page names.
    """
    if slack != 1:
        return False
    line = {
        "kind": "table",
        "case": name,
        "cells": len(cells),
        "problems": [str(cell) for cell in cells if not cell.holds],
        "calm_pause": None if spreads else round(max(cell.calm_pause for cell in cells), 1),
        "recovered": round(max(cell.recovered for cell in cells), 1),
    }
    _store_line(line, 0)
    return True


def store_readers(title: str, again: dict[str, int | None]) -> None:
    """Replace the stored figures of groups that a mirror has moved: records read again, by how far the group was behind."""
    _store_line({"kind": "readers", "case": title, "again": again}, 0)


def _store_line(line: dict[str, Any], rate: int) -> None:
    measured = version()
    program = {"commit": measured.commit, "changed": measured.is_changed}
    machine = {"cores": os.cpu_count(), "memory_gb": round(_memory() / 1e9), "date": _today(), "rate": rate}
    lines = {(line["kind"], line["case"]): line for line in _stored()}
    lines[line["kind"], line["case"]] = {**line, **machine, **program}
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))


def write_documentation(cases: Sequence[Case | SeparateCase]) -> Path:
    """Write the whole document from the stored results. Return its path."""
    lines = _stored()
    by_case = {line["case"]: line for line in lines if line["kind"] == "case"}
    parts = [_TOP, "# Reliability\n", _summary(lines, cases)]
    table = [_HEAD, (":--", *("--:",) * (len(_HEAD) - 2), ":--")]
    remarks = []
    for case in cases:
        if case.name in by_case:
            fields = {key: value for key, value in by_case[case.name].items() if key in Result.__dataclass_fields__}
            result = Result(**fields)
            table.append(_cells(case, result))
            remarks += [f"- *{case.title}*: {text}" for text in (*result.problems, *result.notes)]
    parts.append(_markdown(table))
    java = [line for line in lines if line["kind"] == "java"]
    if java:
        parts.append("## The same kills with other mirrors\n")
        parts.append(_OTHERS.format(rate=max(line["rate"] for line in java)))
        kills = [tuple(_number(line[key]) for key in _JAVA_FIELDS) for line in java]
        parts.append(_markdown([_JAVA_HEAD, (":--", *("--:",) * (len(_JAVA_HEAD) - 1)), *kills]))
    readers = [line for line in lines if line["kind"] == "readers"]
    if readers:
        parts += ["## Readers that move\n", _readers_section(readers)]
    rows = [line for line in lines if line["kind"] == "table" and line["case"] in {row.name for row in ROWS}]
    if rows:
        parts += ["## Errors in answers\n", _table_section(rows)]
    if remarks:
        parts += ["## Remarks\n", "\n".join(remarks) + "\n"]
    parts += ["## How it is counted\n", _HOW.format(rate=max(line["rate"] for line in lines if line["kind"] == "case"))]
    DOCUMENT.write_text("\n".join(parts))
    return DOCUMENT.relative_to(ROOT)


def _readers_section(lines: Sequence[dict[str, Any]]) -> str:
    """Return the text about consumer groups that move to the target, and how many records each reads again."""
    behind = sorted({count for line in lines for count in line["again"]}, key=int)
    table: list[Sequence[str]] = [
        ("mirror", *(f"{int(count):,} behind" for count in behind)),
        (":--", *("--:",) * len(behind)),
    ]
    for line in lines:
        counts = (line["again"].get(count) for count in behind)
        table.append((line["case"], *("not moved" if count is None else _number(count) for count in counts)))
    return _READERS + "\n" + _markdown(table)


def _table_section(rows: Sequence[dict[str, Any]]) -> str:
    """Return the text about the error table: what it is, its rows, and the cells that do not hold."""
    cells, failed = sum(row["cells"] for row in rows), [text for row in rows for text in row["problems"]]
    table: list[Sequence[str]] = [_TABLE_HEAD, (":--", *("--:",) * (len(_TABLE_HEAD) - 1))]
    for row in sorted(rows, key=lambda row: str(row["case"])):
        calm = "all wait" if row["calm_pause"] is None else f"{row['calm_pause']:.1f} s"
        holding = row["cells"] - len(row["problems"])
        table.append((row["case"], str(row["cells"]), str(holding), calm, f"{row['recovered']:.1f} s"))
    text = _TABLE.format(cells=f"{cells:,}", holding=f"{cells - len(failed):,}") + "\n" + _markdown(table)
    without = sorted({row.name for row in ROWS} - {row["case"] for row in rows})
    remarks = [*failed, f"{len(without)} of {len(ROWS)} rows have no stored result yet"] if without else failed
    return text + ("\n" + "\n".join(f"- {remark}" for remark in remarks) + "\n" if remarks else "")


def _summary(lines: Sequence[dict[str, Any]], known: Sequence[Case | SeparateCase]) -> str:
    """Return the first lines of the page: what `make faults` runs, what runs only on request, and what was measured."""
    by_name = {line["case"]: line for line in lines if line["kind"] == "case"}
    stored = [(case, by_name[case.name]) for case in known if case.name in by_name]
    usual = [(case, line) for case, line in stored if not is_on_request(case)]
    holding = sum(_keeps_its_promise(line["holds"], line["longest_pause"], case.limit) for case, line in usual)
    records = sum(line["records"] for _, line in usual)
    days = sorted({line["date"] for line in lines})
    machines = "; ".join(sorted({f"{line['cores']} cores, {line['memory_gb']} GB of memory" for line in lines}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    more = [
        f"`{case.name}` runs only on request: {line['rounds']:,} rounds, {line['records']:,} records,"
        f" {'holds' if _keeps_its_promise(line['holds'], line['longest_pause'], case.limit) else 'does not hold'}."
        for case, line in stored
        if is_on_request(case)
    ]
    return "\n".join(
        (
            f"`make faults` ({when}; {machines}, shared by all brokers, mirrors and the load):",
            f"{holding} of {len(usual)} cases hold, {records:,} records in all.",
            *more,
            _commits(lines),
            "`python -m faults --only CASE` runs one case again; `--list` lists them.\n",
        )
    )


def _commits(lines: Sequence[dict[str, Any]]) -> str:
    """Return the sentence about the program that was measured."""
    noted = [line for line in lines if line.get("commit")]
    if not noted:
        return f"All {len(lines)} stored results were measured before their commit was noted."
    commits = {line["commit"] for line in noted}
    oldest = max(sorted(commits), key=lambda commit: len(commits & commits_since(commit)))
    text = f"The oldest commit of the stored results is {oldest[:10]}"
    if changed := sum(line["changed"] for line in noted):
        text += f"; {changed} of {len(lines)} were measured with changed sources"
    if before := len(lines) - len(noted):
        text += f"; {before} of {len(lines)} were measured before that was noted"
    return text + "."


def _cells(case: Case | SeparateCase, result: Result) -> tuple[str, ...]:
    counts = (result.rounds, result.records, result.lost, result.duplicated, result.out_of_order)
    promise = f" (promised: {case.limit:g})" if case.limit is not None else ""
    pause = f"{result.longest_pause:.1f} s{promise}" if result.longest_pause else ""
    lag = result.committed_lag_zero_after
    committed_lag = "" if lag is None else f"0 after {lag:.1f} s"
    holds = _keeps_its_promise(result.holds, result.longest_pause, case.limit)
    verdict = "holds" if holds else "does not hold"
    if holds and not case.exact:
        verdict = "holds (nothing lost)"
    return (case.title, *map(_number, counts), pause, committed_lag, verdict)


def _keeps_its_promise(holds: bool, longest_pause: float, limit: float | None) -> bool:
    """Return True if a result holds under today's limit too, which may be younger than the result."""
    return holds and (limit is None or longest_pause <= limit)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _markdown(table: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in table) + "\n"


def _stored() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
