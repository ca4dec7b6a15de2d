"""`python -m bench`: measure, show and write down."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console

from bench import backlog, latency, report, throughput
from bench.progress import step
from bench.raw import BrokerError
from bench.results import Measurement
from bench.stage import Stage
from bench.tools import TOOLS, Tool
from bench.workloads import FULL, QUICK, Latency, Workload
from mirrormaker.embedded import EmbeddedError

_NAMES = tuple(work.name for work in FULL)
_REHEARSE = ("mm1", "ours", "mm1-handler", "ours-tables")


def main() -> int:
    args = _arguments()
    works = [work for work in (QUICK if args.quick else FULL) if work.name in args.only]
    tools = [tool for tool in TOOLS.values() if {tool.name, tool.like} & set(args.tools)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    measurements: list[Measurement] = []
    console.print("Starting a source and a target cluster")
    with Stage() as stage:
        for work in works:
            if isinstance(work, Workload):
                _prepare(console, stage, work, rehearse=not args.quick or work is works[0])
        for run in range(1, args.runs + 1):
            found = _run(console, stage, run, args.runs, works, tools)
            report.append_to_log(args.quick, works, found)
            measurements += found
    verdicts = report.show(console, args.quick, works, measurements)
    console.print(f"Written: {report.write_files(args.quick, works, measurements, verdicts)}", highlight=False)
    if not args.quick and len(works) == len(FULL) and {"ours", "mm1", "mm2"} <= set(args.tools):
        console.print(f"Written: {report.write_documentation(works, measurements, verdicts)}", highlight=False)
    console.print(f"{time.monotonic() - began:.0f} s in all", highlight=False)
    return 0


def _prepare(console: Console, stage: Stage, work: Workload, rehearse: bool) -> None:
    """Write the source's records, and let the brokers' compilers see them copied before anything is measured."""
    with step(console, f"{work.name}: writing {work.records:,} records") as tell:
        batches = backlog.write(work, stage, tell)
    console.print(f"  the source's log holds {batches}", highlight=False)
    for name in [name for name in _REHEARSE if name in work.tools] if rehearse else ():
        with step(console, f"{work.name}: warming up the brokers with {TOOLS[name].title}") as tell:
            throughput.measure(stage, work, TOOLS[name], tell)


def _run(
    console: Console, stage: Stage, run: int, runs: int, works: Sequence[Workload | Latency], tools: Sequence[Tool]
) -> list[Measurement]:
    """Every tool with every workload once; each run begins with another tool."""
    found = []
    for work in works:
        taking_part = [tool for tool in tools if tool.name in work.tools]
        turn = (run - 1) % max(1, len(taking_part))
        for tool in [*taking_part[turn:], *taking_part[:turn]]:
            with step(console, f"{work.name}, {tool.title}, run {run} of {runs}") as tell:
                if isinstance(work, Latency):
                    figures, notes = latency.measure(stage, work, tool, tell)
                else:
                    figures, notes = throughput.measure(stage, work, tool, tell)
            found.append(Measurement(work.name, tool.name, run, figures, tuple(notes)))
            console.print(f"  {_in_short(figures)} {'; '.join(notes)}", highlight=False)
    return found


def _in_short(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="smaller sizes, tools as shipped, one run: about 5 minutes"
    )
    parser.add_argument("--runs", type=int, help="how often to measure; medians are reported (3, with --quick 1)")
    parser.add_argument("--only", type=_list(_NAMES), default=_NAMES, help=f"workloads: {','.join(_NAMES)}")
    parser.add_argument("--tools", type=_list(tuple(TOOLS)), default=tuple(TOOLS), help=f"mirrors: {','.join(TOOLS)}")
    args = parser.parse_args()
    args.runs = args.runs or (1 if args.quick else 3)
    return args


def _list(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        wrong = [name for name in names if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {','.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (EmbeddedError, BrokerError) as error:
        sys.exit(f"bench: {error}")
