"""Figures that grow as lines in SVG, for light and for dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.chart import STYLE, number_text

Lines = Mapping[str, Sequence[tuple[str, float]]]
"""The labels and values of each tool."""

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 330, 210, 30, 60, 44, 34
_WIDE_RANGE = 15  # from this ratio of the largest to the smallest value on, the scale is logarithmic
_LINES = ".line { fill: none; stroke-width: 2 } .line.ours { stroke: #2f81f7 } .line.java { stroke: #9aa4af }"
_GRID = ".axis { stroke: #9aa4af; stroke-width: 1 }"


def svg(labels: Sequence[str], panels: Sequence[tuple[str, Lines]]) -> str:
    """Return the panels side by side. All of them have the same places from left to right."""
    size = (_WIDTH * len(panels), _HEIGHT)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" role="img">'
    drawings = [_panel(title, lines, labels, _WIDTH * number) for number, (title, lines) in enumerate(panels)]
    return "\n".join([head, f"<style>{STYLE}{_LINES} {_GRID}</style>", *drawings, "</svg>", ""])


def _panel(title: str, lines: Lines, labels: Sequence[str], left: int) -> str:
    values = [value for line in lines.values() for _, value in line]
    height_of = _scale(values)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(labels) - 1)
    places = {label: _LEFT + step * number for number, label in enumerate(labels)}
    is_logarithmic = _is_logarithmic(values)
    floor = _HEIGHT - _BOTTOM
    parts = [
        f'<g transform="translate({left},0)">',
        f'<text class="title" x="8" y="18">{escape(title)}{", logarithmic" if is_logarithmic else ""}</text>',
        f'<path class="axis" d="M{_LEFT - 8} {floor} H{_WIDTH - _RIGHT + 8}"/>',
    ]
    parts += [
        f'<text x="{x:.0f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(label)}</text>'
        for label, x in places.items()
    ]
    best = {
        label: max((v for line in lines.values() for at, v in line if at == label), default=0.0) for label in labels
    }
    for tool, line in lines.items():
        kind = "ours" if tool.startswith("ours") else "java"
        points = [(places[label], height_of(value), value, label) for label, value in line]
        parts.append(f'<polyline class="line {kind}" points="{" ".join(f"{x:.0f},{y:.0f}" for x, y, *_ in points)}"/>')
        for x, y, value, label in points:
            # The larger of two values stands above its line, the smaller one below.
            text = y - 7 if value >= best[label] else y + 15
            parts.append(f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.0f}" r="3"/>')
            parts.append(f'<text x="{x:.0f}" y="{text:.0f}" text-anchor="middle">{number_text(value)}</text>')
        if points:
            name = "ours" if kind == "ours" else "Java"
            parts.append(f'<text x="{points[-1][0] + 22:.0f}" y="{points[-1][1] + 4:.0f}">{escape(name)}</text>')
    return "\n".join([*parts, "</g>"])


def _is_logarithmic(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) > _WIDE_RANGE * min(positive)


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Return the function from a value to its place from top to bottom."""
    floor, most = _HEIGHT - _BOTTOM, max(values, default=1.0) or 1.0
    if not _is_logarithmic(values):
        return lambda value: floor - (floor - _TOP) * value / most
    least = min(value for value in values if value > 0) / 2
    return lambda value: floor - (floor - _TOP) * math.log(max(value, least) / least) / math.log(most / least)
