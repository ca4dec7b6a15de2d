"""The documentation's page, written from stored figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import page
from bench.results import Measurement
from bench.store import Stored
from bench.workloads import W1

TEXT = "# Benchmarks\n\n<!-- bench: written by `make bench` -->old<!-- bench: end -->\n\n## How it is measured\n"


def test_stored_figures_become_tables_and_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "DOCS", tmp_path)
    (tmp_path / "benchmarks.md").write_text(TEXT)
    rows = [
        Measurement("W1", tool, run, {"records_per_s": speed + run}, ("unusual",) if run == 7 else ())
        for tool, speed in (("ours", 400.0), ("mm1", 100.0))
        for run in range(1, 8)
    ]
    page.write(Stored(rows, ["2026-11-18", "2026-11-19"]))
    text = (tmp_path / "benchmarks.md").read_text()
    assert f"## W1: {W1.title}" in text
    assert "| ours | 5 | 405<br>403..407 |" in text, "the latest five of seven runs count"
    assert "- ours, run 7: unusual" in text
    assert "- met: records/s on W1, 3.86 of the better Java tool's (goal: at least 3.6)" in text
    assert "- unknown: records/s on W2, not measured (goal: at least 8)" in text
    assert "2026-11-18 and 2026-11-19" in text
    assert "## W2" not in text
    assert "old" not in text
    assert text.endswith("\n\n## How it is measured\n")
    assert "W1: thousand records/s" in (tmp_path / "benchmarks.svg").read_text()
