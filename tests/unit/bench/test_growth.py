"""The points that `python -m bench grow` measures, and its charts."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from bench.growth import AXES, Point, small
from bench.line_chart import svg


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
