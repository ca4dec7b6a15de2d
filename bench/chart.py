"""The figures as a bar chart in SVG, for light and for dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from bench.results import Figures
from bench.tools import TOOLS

_PANELS = (
    ("W1", "records_per_s", "W1: thousand records/s", 1e-3),
    ("W2", "records_per_s", "W2: thousand records/s", 1e-3),
    ("W1", "cpu_s_per_gb", "W1: CPU seconds per GB, less is better", 1),
    ("W2", "cpu_s_per_gb", "W2: CPU seconds per GB, less is better", 1),
    ("W3", "records_per_s", "W3: thousand records/s", 1e-3),
    ("W4", "records_per_s", "W4: thousand records/s", 1e-3),
    ("W5", "records_per_s", "W5: thousand records/s", 1e-3),
    ("W6", "records_per_s", "W6: thousand records/s", 1e-3),
    ("H", "records_per_s", "H: thousand records/s", 1e-3),
    ("W7", "mirror_cpu", "W7: CPU, % of a core, less is better", 1),
    ("W7", "p99_ms", "W7: latency p99 in ms, less is better", 1),
    ("W1", "peak_mb", "W1: peak memory in MB, less is better", 1),
    ("W2", "peak_mb", "W2: peak memory in MB, less is better", 1),
    ("L", "p50_ms", "L: latency p50 in ms, less is better", 1),
    ("L", "p99_ms", "L: latency p99 in ms, less is better", 1),
)
_WIDTH, _LABEL, _BAR, _LINE, _HEAD = 470, 190, 200, 20, 28

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 13px }
  .java { fill: #9aa4af } .tuned { fill: #c3cad1 } .ours { fill: #2f81f7 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .java { fill: #6e7781 } .tuned { fill: #484f58 }
  }
"""


def svg(figures: Mapping[tuple[str, str], Figures]) -> str:
    """Return the chart: all panels that have figures, in two columns."""
    panels = []
    for workload, figure, title, scale in _PANELS:
        bars = [
            (tool.title, _kind(tool.name), figures[workload, tool.name][figure] * scale)
            for tool in TOOLS.values()
            if figure in figures.get((workload, tool.name), {})
        ]
        if bars:
            panels.append((title, bars))
    height = _HEAD + _LINE * max((len(bars) for _, bars in panels), default=0) + 16
    drawings = [
        _panel(title, bars, _WIDTH * (number % 2), height * (number // 2))
        for number, (title, bars) in enumerate(panels)
    ]
    size = (_WIDTH * 2, height * ((len(panels) + 1) // 2))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", *drawings, "</svg>", ""])


def _panel(title: str, bars: list[tuple[str, str, float]], x: int, y: int) -> str:
    longest = max(value for *_, value in bars)
    lines = [f'<g transform="translate({x},{y})">', f'<text class="title" x="8" y="18">{escape(title)}</text>']
    for number, (label, kind, value) in enumerate(bars):
        top = _HEAD + _LINE * number
        width = max(1.0, _BAR * value / longest)
        lines.append(f'<text x="{_LABEL - 6}" y="{top + 13}" text-anchor="end">{escape(label)}</text>')
        lines.append(f'<rect class="{kind}" x="{_LABEL}" y="{top + 2}" width="{width:.1f}" height="14" rx="2"/>')
        lines.append(f'<text x="{_LABEL + width + 6:.1f}" y="{top + 13}">{number_text(value)}</text>')
    return "\n".join([*lines, "</g>"])


def _kind(tool: str) -> str:
    return "ours" if tool.startswith("ours") else "tuned" if tool.endswith("-tuned") else "java"


def number_text(value: float) -> str:
    """Return a number with about three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
