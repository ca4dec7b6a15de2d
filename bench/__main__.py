"""`python -m bench`: compare our mirror with both Java MirrorMakers, show the figures and write them down."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from tests.support.command_line import names_from
from tests.support.raw_requests import RequestFailed
from tests.support.topics import delete_all_topics
from tests.support.waiting import NotInTime

from bench import (
    backlog,
    groups,
    grow,
    latency,
    page,
    report,
    restart,
    schedule,
    store,
    streams,
    throughput,
    warming,
    wide,
)
from bench.clusters import BenchClusters
from bench.progress import step
from bench.results import Figures, Measurement
from bench.tools import TOOLS, USUAL, Tool
from bench.workloads import (
    FULL,
    QUICK,
    W1,
    AnyWorkload,
    IdleWorkload,
    LatencyWorkload,
    RestartWorkload,
    StreamsWorkload,
    Workload,
)
from mirrormaker.embedded import EmbeddedError

_NAMES = tuple(work.name for work in FULL)
_OTHERS = {"grow": grow.main, "wide": wide.main, "groups": groups.main, "page": page.main}
_WARM_UP = ("ours", "ours-tables")  # each workload has one of them
# The brokers are warmed up with these records if no backlog is copied before a workload that needs none.
_ANY = replace(W1, name="warm", title="", records=500_000)


def main() -> int:
    """Measure every chosen tool with every chosen workload, or carry out one of the other commands."""
    if sys.argv[1:2] and sys.argv[1] in _OTHERS:
        return _OTHERS[sys.argv[1]](sys.argv[2:])
    args = _arguments()
    works = [work for work in (QUICK if args.quick else FULL) if work.name in args.only]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    bench = Bench(console, args, began + 60 * args.minutes)
    console.print("Starting a source and a target cluster")
    with BenchClusters() as clusters:
        for work in works:
            bench.measure(clusters, work)
    measured = [work for work in works if any(row.workload == work.name for row in bench.measurements)]
    verdicts = report.show(console, args.quick, measured, bench.measurements)
    console.print(f"Wrote {report.write_files(args.quick, works, bench.measurements, verdicts)}", highlight=False)
    if not args.quick:
        bench.write_page()
    console.print(f"The benchmark took {time.monotonic() - began:.0f} s", highlight=False)
    return 0


class Bench:
    """One call of the benchmark: what was chosen, and what was measured so far."""

    def __init__(self, console: Console, args: argparse.Namespace, ends: float) -> None:
        self._console, self._args, self._ends = console, args, ends
        self._version = store.version()
        self._stored = [] if args.quick else store.load(store.commits_since(None)).measurements
        self._are_warm = False
        self.measurements: list[Measurement] = []

    def measure(self, clusters: BenchClusters, work: AnyWorkload) -> None:
        """Measure a workload in rounds: every tool, then every tool again. Store each round at once."""
        rounds = self._rounds(work)
        if not rounds or time.monotonic() > self._ends:
            return
        self._prepare(clusters, work)
        earlier = max((row.run for row in self._stored if row.workload == work.name), default=0)
        for number, tools in enumerate(rounds, 1):
            if time.monotonic() > self._ends:
                self._console.print(f"{work.name}: no time is left for {len(rounds) - number + 1} rounds")
                break
            found = []
            for tool in tools:
                with step(self._console, f"{work.name}, {tool.title}, round {number} of {len(rounds)}") as progress:
                    figures, notes = _measure(clusters, work, tool, progress)
                found.append(Measurement(work.name, tool.name, earlier + number, figures, tuple(notes)))
                self._console.print(f"  {_in_short(figures)} {'; '.join(notes)}", highlight=False)
            self.measurements += found
            if not self._args.quick:
                store.append(work, found, self._version)
        delete_all_topics(clusters.source)

    def _rounds(self, work: AnyWorkload) -> list[list[Tool]]:
        """Return the tools of each round."""
        args = self._args
        tools = schedule.participants(work, args.tools or USUAL)
        if args.rest:
            return schedule.turns(work, tools, schedule.lacking(work, self._stored, tools))
        if args.tools:
            return schedule.turns(work, tools, [args.runs] * len(tools))
        return schedule.turns(work, tools, [schedule.rounds(work, tool.name, args.runs) for tool in tools])

    def _prepare(self, clusters: BenchClusters, work: AnyWorkload) -> None:
        """Write the source's records, and warm the brokers up: their JVMs compile the code before anything is measured."""
        if isinstance(work, StreamsWorkload):
            self._write(clusters, work.backlog)
        elif isinstance(work, Workload):
            self._write(clusters, work)
            if not self._args.quick or not self._are_warm:
                self._warm_up(clusters, work)
        elif not self._are_warm and not self._args.quick:
            self._write(clusters, _ANY)
            self._warm_up(clusters, _ANY)

    def _write(self, clusters: BenchClusters, work: Workload) -> None:
        with step(self._console, f"{work.name}: writing {work.records:,} records") as progress:
            statistics = backlog.write(work, clusters, progress)
        self._console.print(f"  the source holds {statistics}", highlight=False)

    def _warm_up(self, clusters: BenchClusters, work: Workload) -> None:
        # The Java MirrorMaker sends many small requests, which warm up what ours would not.
        names = [name for name in (*_WARM_UP, "mm1") if name in work.tools]
        if not self._are_warm and "mm1" in names:
            self._copy(clusters, work, "mm1")
        most = 1 if self._args.quick else warming.MOST
        costs = list(warming.warm_up(lambda: self._copy(clusters, work, names[0]), most))
        self._are_warm = True
        self._console.print(f"  {warming.in_words(costs, most)}", highlight=False)

    def _copy(self, clusters: BenchClusters, work: Workload, tool: str) -> Figures:
        with step(self._console, f"{work.name}: warming up the brokers with {TOOLS[tool].title}") as progress:
            return throughput.measure(clusters, work, TOOLS[tool], progress)[0]

    def write_page(self) -> None:
        """Write the documentation's page if the log has all figures of this version; say what it lacks."""
        if self._version.is_changed:
            self._console.print(
                "The sources differ from the last commit: these figures do not go into the documentation"
            )
            return
        stored = store.load(store.commits_since(None))
        if not page.say_what_is_missing(self._console, stored):
            self._console.print(f"Wrote {page.write(stored)}", highlight=False)


def _measure(
    clusters: BenchClusters, work: AnyWorkload, tool: Tool, progress: Callable[[int], None]
) -> tuple[Figures, list[str]]:
    match work:
        case Workload():
            return throughput.measure(clusters, work, tool, progress)
        case LatencyWorkload():
            return latency.measure(clusters, work, tool, progress)
        case RestartWorkload():
            return restart.measure(clusters, work, tool, progress)
        case StreamsWorkload():
            return streams.measure(clusters, work, tool, progress)
        case IdleWorkload():
            return wide.measure(tool.name, work.partitions, work.topics, 1, False, progress)


def _in_short(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer records, fewer Java tools, one run: about 8 minutes; nothing is kept",
    )
    parser.add_argument(
        "--runs",
        type=int,
        help=f"how often to measure; the report shows medians (default: {schedule.ROUNDS}, with --quick 1)",
    )
    parser.add_argument("--only", type=names_from(_NAMES), default=_NAMES, help=f"workloads: {','.join(_NAMES)}")
    tools = tuple(TOOLS)
    parser.add_argument(
        "--tools", type=names_from(tools), help=f"mirrors: {','.join(tools)} (default: {','.join(USUAL)})"
    )
    parser.add_argument(
        "--rest", action="store_true", help="measure only what is not stored yet for the program as it is"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no round after this time; --rest goes on later"
    )
    args = parser.parse_args()
    if args.rest and (args.quick or args.runs):
        parser.error("--rest knows how often to measure; it goes with neither --quick nor --runs")
    args.runs = args.runs or (1 if args.quick else schedule.ROUNDS)
    return args


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (EmbeddedError, RequestFailed, NotInTime) as error:
        sys.exit(f"bench: {error}")
