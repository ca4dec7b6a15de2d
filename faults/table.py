"""`python -m faults --table`: every request of the mirror times every error code of Kafka, for one topic of several."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from tests.support.attempt import Cell
from tests.support.error_rows import ROWS, codes_of, requests_without_row
from tests.support.error_table import Table
from tests.support.table_stage import table_stage

from faults import BUILD
from faults.report import store_row

_AT_ONCE = 24  # codes that are tried at the same time, each with a topic of its own
FILE = BUILD / "error-table.txt"


def run_table(
    console: Console, rows: Sequence[str], codes: Sequence[int], minutes: float, slack: float, at_once: int = _AT_ONCE
) -> bool:
    """Run the rows whose names begin with one of `rows`, for at most so many minutes. Return True if all cells hold."""
    BUILD.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    deadline = time.monotonic() + minutes * 60
    chosen = [row for row in ROWS if any(row.name.startswith(name) for name in rows or ("",))]
    left = list(chosen)
    strange: list[str] = []

    def report(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    for login, groups in sorted({(row.login, row.groups) for row in chosen}):
        directory = Path(tempfile.mkdtemp(prefix="table-", dir=BUILD))  # it stays: the logs tell what happened
        with table_stage(directory, slack, login=login, groups=groups) as stage:
            table = Table(stage, at_once, report)
            for row in (row for row in chosen if (row.login, row.groups) == (login, groups)):
                if time.monotonic() > deadline:
                    break
                wanted = codes or codes_of(row)
                found = table.run(row, wanted, deadline)
                cells += found
                if len(found) < len(wanted):
                    break
                left.remove(row)
                if not codes and not store_row(row.name, found, row.spreads or row.restarts, slack):
                    report(f"{row.name} is not stored, because its limits were {slack:g} times as long")
            strange += requests_without_row(stage)
    if strange:
        report(f"the mirror sends requests that have no row: {', '.join(strange)}")
    _write(cells)
    failed = [cell for cell in cells if not cell.holds]
    report(f"{len(cells)} cells, {len(failed)} do not hold; all of them are in {FILE}")
    for cell in failed:
        report(f"  {cell}")
    if left:
        report(f"no time was left for {', '.join(row.name for row in left)}")
    return not (failed or left or strange)


def parse_codes(text: str) -> tuple[int, ...]:
    """Parse a list of codes."""
    return tuple(int(part) for part in text.split(",") if part)


def _write(cells: Sequence[Cell]) -> None:
    FILE.write_text("".join(f"{cell}\n" for cell in cells))
