"""Measure how much memory each further stream needs."""

from __future__ import annotations

from collections.abc import Callable

from bench import throughput
from bench.clusters import BenchClusters
from bench.results import Figures
from bench.tools import Tool
from bench.workloads import StreamsWorkload


def measure(
    clusters: BenchClusters, work: StreamsWorkload, tool: Tool, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    """Copy the backlog with each number of streams. Return the peaks, and notes on everything unusual."""
    figures: Figures = {}
    notes: list[str] = []
    peaks = []
    for streams in work.streams:
        copied, more = throughput.measure(clusters, work.backlog, tool, progress, streams)
        notes += [f"{streams} streams: {note}" for note in more]
        if "records_per_s" not in copied:
            return figures, notes
        peaks.append(copied["peak_mb"])
        figures[f"peak_{streams}_mb"] = copied["peak_mb"]
    figures["mb_per_stream"] = (peaks[-1] - peaks[0]) / (work.streams[-1] - work.streams[0])
    return figures, notes
