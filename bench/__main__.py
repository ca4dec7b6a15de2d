"""`python -m bench`: compare our mirror with both Java MirrorMakers, show the figures and write them down."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from tests.support.command_line import names_from
from tests.support.raw_requests import RequestFailed
from tests.support.waiting import NotInTime

from bench import backlog, groups, latency, report, throughput, wide
from bench.clusters import BenchClusters
from bench.progress import step
from bench.results import Measurement
from bench.tools import TOOLS, Tool
from bench.workloads import FULL, QUICK, LatencyWorkload, Workload
from mirrormaker.embedded import EmbeddedError

_NAMES = tuple(work.name for work in FULL)
_WARM_UP = ("mm1", "ours", "mm1-handler", "ours-tables")


def main() -> int:
    """Measure every chosen tool with every chosen workload; `wide` and `groups` measure many partitions and many groups."""
    if sys.argv[1:2] == ["wide"]:
        return wide.main(sys.argv[2:])
    if sys.argv[1:2] == ["groups"]:
        return groups.main(sys.argv[2:])
    args = _arguments()
    works = [work for work in (QUICK if args.quick else FULL) if work.name in args.only]
    tools = [tool for tool in TOOLS.values() if {tool.name, tool.variant_of} & set(args.tools)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    measurements: list[Measurement] = []
    console.print("Starting a source and a target cluster")
    with BenchClusters() as clusters:
        for work in works:
            if isinstance(work, Workload):
                _prepare(console, clusters, work, warm_up=not args.quick or work is works[0])
        for run in range(1, args.runs + 1):
            of_this_run = _run(console, clusters, run, args.runs, works, tools)
            report.append_to_log(args.quick, works, of_this_run)
            measurements += of_this_run
    verdicts = report.show(console, args.quick, works, measurements)
    console.print(f"Wrote {report.write_files(args.quick, works, measurements, verdicts)}", highlight=False)
    if not args.quick and len(works) == len(FULL) and {"ours", "mm1", "mm2"} <= set(args.tools):
        console.print(f"Wrote {report.write_documentation(works, measurements, verdicts)}", highlight=False)
    console.print(f"The benchmark took {time.monotonic() - began:.0f} s", highlight=False)
    return 0


def _prepare(console: Console, clusters: BenchClusters, work: Workload, warm_up: bool) -> None:
    """Write the source's records and warm up the brokers: their JVMs compile the code before anything is measured."""
    with step(console, f"{work.name}: writing {work.records:,} records") as progress:
        statistics = backlog.write(work, clusters, progress)
    console.print(f"  the source holds {statistics}", highlight=False)
    for name in [name for name in _WARM_UP if name in work.tools] if warm_up else ():
        with step(console, f"{work.name}: warming up the brokers with {TOOLS[name].title}") as progress:
            throughput.measure(clusters, work, TOOLS[name], progress)


def _run(
    console: Console,
    clusters: BenchClusters,
    run: int,
    runs: int,
    works: Sequence[Workload | LatencyWorkload],
    tools: Sequence[Tool],
) -> list[Measurement]:
    """Measure every tool with every workload once. Each run begins with another tool."""
    measurements = []
    for work in works:
        participants = [tool for tool in tools if tool.name in work.tools]
        turn = (run - 1) % max(1, len(participants))
        for tool in [*participants[turn:], *participants[:turn]]:
            with step(console, f"{work.name}, {tool.title}, run {run} of {runs}") as progress:
                if isinstance(work, LatencyWorkload):
                    figures, notes = latency.measure(clusters, work, tool, progress)
                else:
                    figures, notes = throughput.measure(clusters, work, tool, progress)
            measurements.append(Measurement(work.name, tool.name, run, figures, tuple(notes)))
            console.print(f"  {_in_short(figures)} {'; '.join(notes)}", highlight=False)
    return measurements


def _in_short(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer records, Java tools with their defaults, one run: about 5 minutes"
    )
    parser.add_argument(
        "--runs", type=int, help="how often to measure; the report shows medians (default: 3, with --quick 1)"
    )
    parser.add_argument("--only", type=names_from(_NAMES), default=_NAMES, help=f"workloads: {','.join(_NAMES)}")
    tools = tuple(TOOLS)
    parser.add_argument("--tools", type=names_from(tools), default=tools, help=f"mirrors: {','.join(tools)}")
    args = parser.parse_args()
    args.runs = args.runs or (1 if args.quick else 3)
    return args


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (EmbeddedError, RequestFailed, NotInTime) as error:
        sys.exit(f"bench: {error}")
