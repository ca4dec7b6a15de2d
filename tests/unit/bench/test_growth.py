"""The points that `python -m bench grow` measures, and its charts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench import grow_page
from bench.grow_page import Row
from bench.growth import AXES, Point, small
from bench.line_chart import svg
from bench.store import Version


@pytest.mark.parametrize("name", AXES)
def test_the_points_of_an_axis_have_about_the_same_bytes(name: str) -> None:
    for point in AXES[name].points.values():
        assert point.records * point.record_size == pytest.approx(point.megabytes * 1e6, rel=0.09)


def test_batches_are_as_large_as_a_producer_makes_them_by_default() -> None:
    assert Point(record_size=100).per_batch == 160
    assert Point(record_size=1_000_000).per_batch == 1


def test_a_small_axis_has_two_points() -> None:
    assert list(small(AXES["partitions"]).points) == ["8", "100"]
    assert {point.megabytes for point in small(AXES["streams"]).points.values()} == {100}


def test_a_chart_shows_every_value_even_if_one_tool_has_none() -> None:
    lines = {"ours": [("8", 3.0), ("100", 4.0)], "mm1": [("8", 90.0)]}
    drawing = ElementTree.fromstring(svg(["8", "100"], [("CPU & memory", lines), ("nothing", {})]))
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"3.00", "4.00", "90.0", "8", "100"} <= set(texts)
    assert "CPU & memory, logarithmic" in texts


def test_a_chart_of_zeros_can_be_drawn() -> None:
    assert "polyline" in svg(["1"], [("idle", {"ours": [("1", 0.0)]})])


def test_points_that_are_stored_for_this_version_need_no_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow_page, "STORE", tmp_path / "grow.json")
    axis = AXES["streams"]
    good = [Row("1", tool, {"records_per_s": 5.0}, ("a note",)) for tool in ("ours", "mm1")]
    failed = [Row("2", "ours", {"records_per_s": 5.0}), Row("2", "mm1", {}, ("it ended",))]
    grow_page.keep(axis, [*good, *failed], Version("abc", is_changed=False), quick=False)
    assert grow_page.stored(axis, {"abc", "later"}) == good
    assert grow_page.stored(AXES["sources"], {"abc"}) == []
    assert grow_page.stored(axis, {"other"}) == []
    grow_page.keep(axis, good, Version("abc", is_changed=True), quick=False)
    assert grow_page.stored(axis, {"abc"}) == []


def test_an_axis_is_shown_in_its_order_between_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grow_page, "STORE", tmp_path / "grow.json")
    monkeypatch.setattr(grow_page, "DOCS", tmp_path)
    page = tmp_path / "benchmarks.md"
    page.write_text("before\n<!-- grow: streams -->\nold\n<!-- grow: streams, end -->\nafter\n")
    rows = [Row(label, "ours", {"records_per_s": 5.0, "other_load": load}) for label, load in (("2", 0.5), ("1", 0.0))]
    grow_page.keep(AXES["streams"], rows, Version("abc", is_changed=False), quick=False)
    grow_page.write(AXES["streams"])
    lines = page.read_text().splitlines()
    assert [line.split("|")[1:4] for line in lines if line.startswith(("| 1", "| 2"))] == [
        [" 1 ", " ours ", " 5.00 "],
        [" 2 ", " ~ ours ", " 5.00 "],
    ]
    assert (lines[0], lines[-1]) == ("before", "after")
    assert "old" not in lines
    assert (tmp_path / "grow-streams.svg").exists()
