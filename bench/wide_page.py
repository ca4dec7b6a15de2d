"""The rows of `python -m bench wide`: stored in bench/wide.json, judged by our goals, and shown in docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench import ROOT
from bench.chart import number_text
from bench.page import DOCS, replace_block
from bench.results import Figures
from bench.store import Version, heading, rounded
from bench.tools import TOOLS

STORE = ROOT / "bench" / "wide.json"
FEW, MANY = 8, 5000  # partitions of the mirror that a wide one is held against, and of the wide one
COLUMNS = {
    "first_s": "first record s",
    "all_s": "all partitions s",
    "start_cpu_s": "start-up CPU s",
    "idle_cpu": "idle CPU %",
    "again_s": "a record each s",
    "killed_s": "after a kill s",
    "pss_mb": "PSS MB",
    "kb_per_partition": "KB a partition",
    "blocked_s": "loop blocked s",
    "busy_s": "of it busy s",
}
_BEGIN, _END = "<!-- wide: written by `python -m bench wide` -->", "<!-- wide: end -->"

# Goals of ours: seconds until a record of every partition has arrived, memory, and seconds for which the loop stands still.
_WOKEN_WITHIN, _KB_PER_PARTITION, _BLOCKED_FOR = 2.0, 20.0, 0.1
# Seconds after a kill: the default session timeout, and two to take over and to write.
_KILLED_WITHIN = 10.0 + 2.0

_Key = tuple[str, int, int]


def number(value: float) -> str:
    """Return a figure with about three significant digits; small ones are near their goals."""
    return f"{value:.3g}" if value < 1 else number_text(value)


@dataclass(frozen=True)
class Row:
    """One mirror's figures with so many partitions."""

    tool: str
    partitions: int
    processes: int
    figures: Figures
    notes: tuple[str, ...] = ()
    # When it was measured and with which program; an empty commit is not known.
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> _Key:
        """What a newer row replaces."""
        return self.tool, self.partitions, self.processes

    @property
    def title(self) -> str:
        """The mirror in words."""
        several = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{TOOLS[self.tool].title}, {self.partitions:,} partitions{several}"


def keep(rows: Iterable[Row], version: Version) -> None:
    """Store rows in the place of their former ones, and leave the others."""
    measured = heading([], quick=False) | {"commit": version.commit, "changed": version.is_changed}
    new = {row.key: asdict(row) | {"figures": rounded(row.figures), "measured": measured} for row in rows}
    content = {row.key: asdict(row) for row in stored()} | new
    STORE.write_text(json.dumps([content[key] for key in sorted(content, key=_place)], indent=1) + "\n")


def stored() -> list[Row]:
    """Return all stored rows in the order of the page."""
    content = json.loads(STORE.read_text()) if STORE.exists() else []
    return [Row(**row | {"notes": tuple(row["notes"])}) for row in content]


def _place(key: _Key) -> tuple[int, int, int]:
    """Return the place of a row in the table: ours before the others, those of several processes at the end."""
    tool, partitions, processes = key
    return processes, sorted(TOOLS, key=lambda name: (name != "ours", name)).index(tool), partitions


def write() -> None:
    """Write the table and the verdicts into the documentation, between its markers."""
    rows = stored()
    head = ["", "measured", *COLUMNS.values()]
    lines = [
        [
            row.title,
            _when(row),
            *(number(row.figures[name]) if name in row.figures else "" for name in COLUMNS),
        ]
        for row in rows
    ]
    table = "\n".join(
        "| " + " | ".join(cells) + " |" for cells in (head, [":--", ":--", *["--:"] * len(COLUMNS)], *lines)
    )
    parts = [_BEGIN, table + "\n"]
    if notes := [f"- {row.title}: {note}" for row in rows for note in row.notes]:
        parts.append("\n".join(notes) + "\n")
    for row in rows:
        if verdicts := list(goals(rows, row)):
            parts += [f"Goals of {row.title}:\n", "\n".join(f"- {verdict}" for verdict in verdicts) + "\n"]
    replace_block(DOCS / "benchmarks.md", _BEGIN, _END, "\n".join([*parts, _END]))


def _when(row: Row) -> str:
    """Return the day of a row, and the commit if it was noted."""
    commit, changed = row.measured.get("commit"), " with changes" if row.measured.get("changed") else ""
    return str(row.measured["date"])[:10] + (f", {commit[:10]}{changed}" if commit else "")


def goals(rows: Sequence[Row], ours: Row) -> Iterator[str]:
    """Yield how each figure of a wide mirror of ours compares with its goal; nothing for any other row.

    The start may take as long as that of a small mirror of as many processes and of the Java MirrorMaker together, and the
    idle CPU twice as much as the latter's.
    """
    if ours.tool != "ours" or ours.partitions == FEW:
        return
    figures = {row.key: row.figures for row in rows}
    few = figures.get(("ours", FEW, ours.processes), {})
    java = figures.get(("mm1", ours.partitions, 1), {})
    start = few["all_s"] + java["all_s"] if "all_s" in few and "all_s" in java else None
    limits = {
        "all_s": start,
        "idle_cpu": 2 * java["idle_cpu"] if "idle_cpu" in java else None,
        "again_s": _WOKEN_WITHIN,
        "killed_s": _KILLED_WITHIN,
        "kb_per_partition": _KB_PER_PARTITION,
        "blocked_s": _BLOCKED_FOR,
        "busy_s": _BLOCKED_FOR,
    }
    for name, most in limits.items():
        value = ours.figures.get(name)
        if name in ("killed_s", "busy_s") and value is None:
            continue  # only measured if one of several processes is killed, and only by newer versions
        if value is None or most is None:
            missing = (
                "not measured" if value is None else f"{number(value)}, and what it is held against is not measured"
            )
            yield f"unknown: {COLUMNS[name]}, {missing}"
        else:
            # A figure that is not a number was not reached in time.
            verdict = "met" if value <= most else "missed"
            yield f"{verdict}: {COLUMNS[name]}, {number(value)} (goal: at most {number(most)})"
