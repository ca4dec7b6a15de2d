"""`python -m faults`: cause faults under load, count every record, and write down which cases hold."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from types import FrameType

from rich.console import Console
from tests.support.command_line import names_from
from tests.support.load import RATE

from faults import (
    cases_broker,
    cases_forgotten_state,
    cases_group,
    cases_marathon,
    cases_mirror,
    cases_separate,
    cases_spark,
    cases_state,
    cases_topics,
    cases_upgrade,
    cases_wire,
    cases_yarn,
    java_comparison,
    readers,
    report,
    table,
)
from faults.case import Case, Result, is_on_request
from faults.clusters import FaultClusters
from faults.runner import group_by_mirrors, run_cases, run_separate_case
from mirrormaker.embedded import EmbeddedError

CASES = (
    *cases_mirror.CASES,
    *cases_spark.CASES,
    *cases_broker.CASES,
    *cases_group.CASES,
    *cases_forgotten_state.CASES,
    *cases_marathon.CASES,
)
SEPARATE = (
    *cases_separate.CASES,
    *cases_topics.CASES,
    *cases_state.CASES,
    *cases_upgrade.CASES,
    *cases_wire.CASES,
    *cases_spark.SEPARATE,
    *cases_yarn.CASES,
)
ALL = (*CASES, *SEPARATE)


def main() -> int:
    """Run the chosen cases. Return 0 if all of them hold."""
    args = _arguments()
    if args.list:
        for case in ALL:
            print(f"{case.name:24} {case.title}")
        return 0
    signal.signal(signal.SIGTERM, _interrupt)  # so that all processes are stopped
    if args.table is not None:
        console = Console(width=None if sys.stdout.isatty() else 160)
        rows = [name for name in args.table.split(",") if name]
        holds = table.run_table(console, rows, args.codes, args.minutes, args.slack)
        if not args.codes:
            console.print(f"Wrote {report.write_documentation(ALL)}", highlight=False)
        return 0 if holds else 1
    if args.readers:
        console = Console(width=None if sys.stdout.isatty() else 160)
        exact = readers.run(lambda text: console.print(text, highlight=False))
        console.print(f"Wrote {report.write_documentation(ALL)}", highlight=False)
        return 0 if exact else 1
    cases = [case for case in CASES if case.name in args.only and (case.quick or not args.quick)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    if args.java:
        cases = []
    results = _run_shared(console, cases, args) if cases or args.java else []
    for separate in SEPARATE:
        if separate.name in args.only and not args.quick and not args.java:
            console.print(f"{separate.name}: {separate.title}", highlight=False)
            results.append(run_separate_case(separate))
            _show_result(console, results[-1])
            report.store("case", results[-1], RATE)
    report.show(console, ALL, results)
    if not args.quick:
        console.print(f"Wrote {report.write_documentation(ALL)}", highlight=False)
    console.print(f"The run took {time.monotonic() - began:.0f} s", highlight=False)
    return 0 if (results or args.java) and all(result.holds for result in results) else 1


def _run_shared(console: Console, cases: list[Case], args: argparse.Namespace) -> list[Result]:
    """Run the cases on the shared clusters, and the comparison with the Java MirrorMakers."""

    def progress(case: Case, text: str) -> None:
        console.print(f"{cases.index(case) + 1}/{len(cases)} {case.name}: {text}", highlight=False)

    def rounds(case: Case) -> int:
        if case.on_request:
            return int(args.kills)
        return 1 if case.once or args.quick else int(args.rounds or case.rounds)

    results: list[Result] = []
    console.print(f"Starting two clusters of three brokers each (seed {args.seed})", highlight=False)
    with FaultClusters() as clusters:
        # Cases that need the same mirrors share them: starting Spark takes longer than most faults.
        for together in group_by_mirrors(cases):
            for result in run_cases(clusters, together, rounds, args.seed, args.quick, progress):
                _show_result(console, result)
                results.append(result)
                if not args.quick:
                    report.store("case", result, RATE)
        if not args.quick and not args.no_java and len(cases) in (0, len(CASES) - len(cases_marathon.CASES)):
            for mirror in args.java or java_comparison.MIRRORS:
                _compare(console, clusters, mirror, args.seed)
    return results


def _show_result(console: Console, result: Result) -> None:
    verdict = "holds" if result.holds else "DOES NOT HOLD"
    console.print(
        f"  {_counts(result)}, longest pause {result.longest_pause:.1f} s, {result.seconds:.0f} s: {verdict}",
        highlight=False,
    )
    for text in (*result.problems, *result.notes):
        console.print(f"  {text}", highlight=False, markup=False)


def _counts(result: Result) -> str:
    wrong = f"{result.lost} lost, {result.duplicated} duplicated, {result.out_of_order} out of order"
    return f"{result.records:,} records, {wrong}"


def _compare(console: Console, clusters: FaultClusters, mirror: str, seed: int) -> None:
    """Run the comparison for one mirror. Its result does not change the exit code."""
    title = java_comparison.MIRRORS[mirror]
    console.print(f"The same kills with {title}", highlight=False)

    def progress(text: str) -> None:
        console.print(f"  {title}: {text}", highlight=False)

    generator = random.Random(f"{seed} java")
    result = java_comparison.compare(clusters, mirror, generator, java_comparison.RECORDS, progress)
    problems = " ".join(result.problems)
    console.print(f"  {_counts(result)}, {result.seconds:.0f} s {problems}", highlight=False, markup=False)
    report.store("java", result, java_comparison.RATE)


def _arguments() -> argparse.Namespace:
    names = tuple(case.name for case in ALL)
    usual = tuple(case.name for case in ALL if not is_on_request(case))
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument(
        "--only", type=names_from(names), default=usual, metavar="CASE,...", help="run these cases (see --list)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="how often each fault happens (default: 10 for kills of mirrors, else 2)",
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=cases_marathon.KILLS,
        metavar="N",
        help=f"how many kills the kill-marathon has (default: {cases_marathon.KILLS})",
    )
    parser.add_argument("--quick", action="store_true", help="run few cases with one round each, and write nothing")
    parser.add_argument("--seed", type=int, default=1, help="choose other moments and victims (default: 1)")
    parser.add_argument("--no-java", action="store_true", help="leave out the comparison with the Java MirrorMakers")
    mirrors = tuple(java_comparison.MIRRORS)
    parser.add_argument(
        "--java",
        type=names_from(mirrors),
        metavar="MIRROR,...",
        help=f"run only the comparison, with these mirrors: {', '.join(mirrors)}",
    )
    parser.add_argument(
        "--table",
        nargs="?",
        const="",
        metavar="REQUEST,...",
        help="run the table of requests and error codes instead: all requests, or those whose names begin so",
    )
    parser.add_argument(
        "--codes", type=table.parse_codes, default=(), metavar="N,...", help="try these error codes (default: all)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=240,
        metavar="N",
        help="begin no further cell of the table after so many minutes",
    )
    parser.add_argument(
        "--slack", type=float, default=1.0, metavar="N", help="allow the table N times as long, on a busy machine"
    )
    parser.add_argument(
        "--readers", action="store_true", help="move consumer groups to the target instead, with ours and MirrorMaker 2"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser.parse_args()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("faults: interrupted")
    except EmbeddedError as error:
        sys.exit(f"faults: {error}")
