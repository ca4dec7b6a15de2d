"""`python -m bench grow`: how speed and cost change with partitions, record size, streams, sources and round trip.

The Java MirrorMaker does the same. It reads from one source, so three of it run for three sources. A copy is measured from
the first record on the target to the last, or for a bounded time: with a long round trip, the Java MirrorMaker needs minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from tests.support.command_line import names_from
from tests.support.java_mirrors import Job, start_ours
from tests.support.process_measurements import ProcessTree
from tests.support.topics import EndOffsets

from bench import grow_page, store, warming
from bench.chart import number_text
from bench.grow_clusters import GrowClusters
from bench.grow_page import Row
from bench.growth import AXES, Axis, Point, small
from bench.measure import Moment, moment, other_load, watch_copy
from bench.mirror_run import running
from bench.progress import step
from bench.results import Figures
from bench.tools import TOOLS, Tool

_TOOLS = ("ours", "mm1")
_START = 60.0  # seconds for the first record
_LONGEST = 25.0  # seconds of a copy that are measured
_LAST_AXIS = 20 * 60.0  # seconds after which no axis is begun, so that the command ends after 25 minutes
_SHOWN = ("records_per_s", "mb_per_s", "cpu_s_per_gb", "cpu_s_per_million", "peak_mb", "first_record_s")


def main(arguments: Sequence[str]) -> int:
    """Measure every chosen axis. Store each point at once, and write each axis down when it is complete."""
    args = _arguments(arguments)
    console = Console(width=160)
    if args.draw:
        for name in [name for name in args.only if name in grow_page.measured()]:
            console.print(f"Wrote {grow_page.write(AXES[name])}", highlight=False)
        return 0
    began = time.monotonic()
    axes = [small(AXES[name]) if args.quick else AXES[name] for name in args.only]
    most = max(point.sources for axis in axes for point in axis.points.values())
    version, commits = store.version(), store.commits_since(None)
    console.print(f"Starting {most + 1} clusters")
    with GrowClusters(most) as clusters:
        run = Grow(console, clusters)
        if not args.quick:
            run.warm_up()
        for axis in axes:
            if time.monotonic() - began > _LAST_AXIS:
                console.print(f"No time is left for {axis.name}: measure it with --only {axis.name}", highlight=False)
                continue
            done = grow_page.stored(axis, commits) if args.rest else []
            for label, point in axis.points.items():
                if not any(row.label == label for row in done):
                    done += run.measure(axis, label, point)
                    grow_page.keep(axis, done, version, args.quick)
            _show(console, axis, done)
            if not args.quick:
                console.print(f"Wrote {grow_page.write(axis)}", highlight=False)
    console.print(f"It took {time.monotonic() - began:.0f} s", highlight=False)
    return 0


class Grow:
    """Running clusters, and what was measured with them."""

    def __init__(self, console: Console, clusters: GrowClusters) -> None:
        self._console, self._clusters = console, clusters
        self._known: dict[Point, list[tuple[str, Figures, list[str]]]] = {}

    def warm_up(self) -> None:
        """Copy the same records until the brokers' CPU per GB stops falling."""
        point, topic = Point(megabytes=500), "grow-warm"
        with step(self._console, "warming up the brokers") as progress:
            self._clusters.write(topic, point, progress)
            _measure(self._clusters, topic, point, "mm1", progress)
            costs = list(warming.warm_up(lambda: _measure(self._clusters, topic, point, "ours", progress)[0]))
        self._console.print(f"  {warming.in_words(costs)}", highlight=False)
        self._clusters.clear()

    def measure(self, axis: Axis, label: str, point: Point) -> list[Row]:
        """Return the figures of both mirrors at a point. A point that several axes share is measured once."""
        if point not in self._known:
            self._known[point] = self._measure_both(f"{axis.title} {label}", point)
        return [Row(label, tool, figures, tuple(notes)) for tool, figures, notes in self._known[point]]

    def _measure_both(self, title: str, point: Point) -> list[tuple[str, Figures, list[str]]]:
        topic = f"grow-{uuid.uuid4().hex[:8]}"
        with step(self._console, f"{title}: writing {point.records:,} records") as progress:
            self._clusters.write(topic, point, progress)
        found = []
        # Each point begins with the other tool.
        for tool in _TOOLS if len(self._known) % 2 else reversed(_TOOLS):
            with step(self._console, f"{title}, {TOOLS[tool].title}") as progress:
                figures, notes = _measure(self._clusters, topic, point, tool, progress)
            shown = ", ".join(f"{name} {figures[name]:,.4g}" for name in _SHOWN if name in figures)
            self._console.print(f"  {shown} {'; '.join(notes)}", highlight=False)
            found.append((tool, figures, notes))
        self._clusters.clear()
        return sorted(found, key=lambda row: _TOOLS.index(row[0]))


def _measure(
    clusters: GrowClusters, topic: str, point: Point, name: str, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    """Copy the records to an empty topic. Return the figures, and notes on everything unusual."""
    clusters.empty_target(topic, point)
    ends = EndOffsets(clusters.target, topic, point.partitions)
    with contextlib.ExitStack() as stack:
        jobs = stack.enter_context(clusters.jobs(topic, point, f"grow{uuid.uuid4().hex[:8]}"))
        mirrors = [stack.enter_context(running(tool, job)) for tool, job in _starts(name, jobs)]
        tree = ProcessTree(*(mirror.process.pid for mirror in mirrors))

        def is_alive() -> bool:
            return all(mirror.is_alive() for mirror in mirrors)

        began = mirrors[0].started
        start = watch_copy(tree, clusters.brokers, began, ends.records, 1, _START, is_alive, progress)
        if start.first is None:
            mirrors[0].failed(f"no record arrived within {_START:g} s")
            return {}, mirrors[0].notes
        limit = time.monotonic() - began + _LONGEST
        rest = watch_copy(tree, clusters.brokers, began, ends.records, point.records, limit, is_alive, progress)
        last = rest.last or moment(tree, clusters.brokers, time.monotonic(), ends.records())
        figures = {"peak_mb": tree.peak_memory / 1e6, "first_record_s": start.first.time - began}
        figures |= _figures(start.first, last, point)
        if not is_alive():
            mirrors[0].failed(f"a mirror ended after {last.records:,} of {point.records:,} records")
        elif last.records > point.records:
            mirrors[0].notes.append(f"{last.records:,} records arrived, {point.records:,} were there")
    ends.close()
    return figures, [note for mirror in mirrors for note in mirror.notes]


def _starts(name: str, jobs: Sequence[Job]) -> list[tuple[Tool, Job]]:
    """Return what to start: one process of ours for all sources, or one of the Java MirrorMaker for each."""
    if name != "ours":
        return [(TOOLS[name], job) for job in jobs]
    first, *others = jobs
    more = [word for job in others for word in ("--consumer.config", job.write_properties("consumer", job.consumer))]

    def start(job: Job, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_ours(job, log, *more)

    return [(Tool("ours-grow", "ours", start), first)]


def _figures(first: Moment, last: Moment, point: Point) -> Figures:
    if last.records <= first.records:
        return {}
    seconds, records = last.time - first.time, last.records - first.records
    gigabytes = records * point.record_size / 1e9
    mirror, brokers = last.mirror_cpu - first.mirror_cpu, last.helpers_cpu - first.helpers_cpu
    figures = {
        "records_per_s": records / seconds,
        "mb_per_s": gigabytes * 1000 / seconds,
        "cpu_s_per_gb": mirror / gigabytes,
        "cpu_s_per_million": mirror / records * 1e6,
        "brokers_cpu_s_per_gb": brokers / gigabytes,
        "share_of_limit": (mirror + brokers) / ((os.cpu_count() or 1) * seconds),
        "share_copied": last.records / point.records,
    }
    # A proxy would count as other load.
    return figures if point.round_trip is not None else figures | {"other_load": other_load(first, last)}


def _show(console: Console, axis: Axis, rows: Sequence[Row]) -> None:
    table = Table(axis.title, "", *_SHOWN, box=box.SIMPLE)
    for row in rows:
        cells = [number_text(row.figures[name]) if name in row.figures else "-" for name in _SHOWN]
        table.add_row(row.label, TOOLS[row.tool].title, *cells)
    console.print(table)
    for row in rows:
        for note in row.notes:
            console.print(f"{row.label}, {TOOLS[row.tool].title}: {note}", highlight=False)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench grow", description=__doc__)
    names = tuple(AXES)
    parser.add_argument("--only", type=names_from(names), default=names, help=f"axes: {','.join(names)}")
    parser.add_argument(
        "--quick", action="store_true", help="two points of each axis, a tenth of the records: nothing is kept"
    )
    parser.add_argument("--draw", action="store_true", help="write the page again from the stored figures")
    parser.add_argument(
        "--rest", action="store_true", help="measure only the points that are not stored yet for the program as it is"
    )
    args = parser.parse_args(arguments)
    if args.rest and args.quick:
        parser.error("--rest does not go with --quick, which stores nothing")
    return args
