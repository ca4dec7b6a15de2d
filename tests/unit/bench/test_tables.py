"""Tables of figures: medians, and how far the runs differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import tables
from bench.page import replace_block
from bench.results import Measurement, latest, medians
from bench.workloads import W2

SPEEDS = (400.0, 380.0, 440.0)
RUNS = [Measurement("W2", "ours", run, {"records_per_s": speed}) for run, speed in enumerate(SPEEDS, 1)]


def test_a_cell_has_the_median_and_its_spread() -> None:
    head, row = tables.rows(W2, RUNS, "<br>")
    assert head[:3] == ["", "runs", "records/s"]
    assert row[:4] == ["ours", "3", "400<br>380..440", "-"]


def test_one_run_has_no_spread() -> None:
    assert tables.rows(W2, RUNS[:1], "<br>")[1][2] == "400"


def test_a_run_that_failed_does_not_count_and_leaves_its_note() -> None:
    failed = Measurement("W2", "ours", 4, {}, ("it ended",))
    assert tables.rows(W2, [*RUNS, failed], "<br>")[1][1] == "3"
    assert tables.notes(W2, [*RUNS, failed]) == ["ours, run 4: it ended"]


def test_disturbed_figures_are_marked() -> None:
    disturbed = Measurement("W2", "ours", 1, {"records_per_s": 1.0, "other_load": 0.3})
    assert tables.rows(W2, [disturbed], "<br>")[1][0] == "~ ours"


def test_the_latest_runs_count() -> None:
    kept = latest(RUNS, 2)
    assert [row.run for row in kept] == [2, 3]
    assert medians(kept) == {("W2", "ours"): {"records_per_s": 410.0}}


def test_a_block_of_a_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->old<!-- a, end -->\nafter\n<!-- b -->kept<!-- b, end -->\n")
    replace_block(page, "<!-- a -->", "<!-- a, end -->", "<!-- a -->new<!-- a, end -->")
    assert page.read_text() == "before\n<!-- a -->new<!-- a, end -->\nafter\n<!-- b -->kept<!-- b, end -->\n"


def test_a_page_without_the_markers_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n<!-- a -->\n")
    with pytest.raises(ValueError, match="does not have"):
        replace_block(page, "<!-- a -->", "<!-- a, end -->", "new")
    assert page.read_text() == "text\n<!-- a -->\n"
