"""The figures of `python -m bench grow`: stored in bench/grow.json, and shown in docs/benchmarks.md."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import BUILD, ROOT
from bench.chart import number_text
from bench.growth import Axis
from bench.line_chart import svg
from bench.page import DOCS, replace_block
from bench.results import Figures
from bench.store import Version, heading, rounded
from bench.tables import DISTURBED
from bench.tools import TOOLS

STORE = ROOT / "bench" / "grow.json"
_COLUMNS = {
    "records_per_s": "records/s",
    "mb_per_s": "MB/s",
    "cpu_s_per_gb": "CPU s/GB",
    "cpu_s_per_million": "CPU s/million",
    "brokers_cpu_s_per_gb": "brokers' CPU s/GB",
    "share_of_limit": "share of the limit",
    "peak_mb": "peak MB",
    "first_record_s": "first record s",
}


@dataclass(frozen=True)
class Row:
    """One mirror's figures at one point."""

    label: str
    tool: str
    figures: Figures
    notes: tuple[str, ...] = ()


def stored(axis: Axis, commits: Collection[str]) -> list[Row]:
    """Return what is stored of an axis for these commits, without points of which a mirror has no figures."""
    content = _stored().get(axis.name, {})
    if content.get("changed") or content.get("commit") not in commits:
        return []
    rows = _rows(content)
    failed = {row.label for row in rows if not row.figures}
    return [row for row in rows if row.label in axis.points.keys() - failed]


def measured() -> list[str]:
    """Return the names of the axes of which something is stored."""
    return list(_stored())


def keep(axis: Axis, rows: Sequence[Row], version: Version, quick: bool) -> None:
    """Store an axis in the place of its former figures; quick ones only in build/, as a file and as a chart."""
    content = heading([], quick) | {
        "commit": version.commit,
        "changed": version.is_changed,
        "rows": [rounded(asdict(row)) for row in rows],
    }
    if quick:
        BUILD.mkdir(exist_ok=True)
        (BUILD / f"grow-{axis.name}.json").write_text(json.dumps(content, indent=1) + "\n")
        (BUILD / f"grow-{axis.name}.svg").write_text(_drawing(axis, rows))
        return
    STORE.write_text(json.dumps(_stored() | {axis.name: content}, indent=1, sort_keys=True) + "\n")


def write(axis: Axis) -> Path:
    """Write the chart and the table of an axis into the documentation. Return the path of the chart."""
    content = _stored()[axis.name]
    places = list(axis.points)
    rows = sorted(_rows(content), key=lambda row: places.index(row.label))
    chart = DOCS / f"grow-{axis.name}.svg"
    chart.write_text(_drawing(axis, rows))
    head = ["", "", *_COLUMNS.values()]
    lines = [
        [
            row.label,
            ("~ " if row.figures.get("other_load", 0) > DISTURBED else "") + TOOLS[row.tool].title,
            *(number_text(row.figures[name]) if name in row.figures else "-" for name in _COLUMNS),
        ]
        for row in rows
    ]
    rule = [":--", ":--", *["--:"] * len(_COLUMNS)]
    notes = [f"- {row.label}, {TOOLS[row.tool].title}: {note}" for row in rows for note in row.notes]
    begin, end = f"<!-- grow: {axis.name} -->", f"<!-- grow: {axis.name}, end -->"
    parts = [
        begin,
        f"### By {axis.title}\n",
        f"One run of `python -m bench grow --only {axis.name}` on {content['date'][:10]}, {content['cores']} cores.\n",
        f"![cost and speed by {axis.title}](grow-{axis.name}.svg)\n",
        "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines)) + "\n",
    ]
    if axis.remark:
        parts.append(axis.remark + "\n")
    if notes:
        parts.append("\n".join(notes) + "\n")
    replace_block(DOCS / "benchmarks.md", begin, end, "\n".join([*parts, end]))
    return Path(os.path.relpath(chart, ROOT))


def _rows(content: Mapping[str, Any]) -> list[Row]:
    return [Row(**row | {"notes": tuple(row["notes"])}) for row in content["rows"]]


def _stored() -> dict[str, Any]:
    return dict(json.loads(STORE.read_text())) if STORE.exists() else {}


def _drawing(axis: Axis, rows: Sequence[Row]) -> str:
    lines = []
    for figure, title, scale in axis.panels:
        by_tool = {
            tool: [
                (row.label, row.figures[figure] * scale) for row in rows if row.tool == tool and figure in row.figures
            ]
            for tool in dict.fromkeys(row.tool for row in rows)
        }
        lines.append((f"{title} by {axis.title}", by_tool))
    return svg(list(axis.points), lines)
