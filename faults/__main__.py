"""`python -m faults`: do harm, count, and write down what held."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

from rich.console import Console

from faults import BUILD, cases_apart, cases_broker, cases_group, cases_memory, cases_mirror, cases_spark, java, report
from faults.case import Apart, Case, Row, play
from faults.load import RATE
from faults.stage import Stage
from mirrormaker.embedded import EmbeddedError

CASES = (
    *cases_mirror.CASES,
    *cases_spark.CASES,
    *cases_broker.CASES,
    *cases_group.CASES,
    *cases_memory.CASES,
)
ALL = (*CASES, *cases_apart.CASES)


def main() -> int:
    args = _arguments()
    if args.list:
        for case in ALL:
            print(f"{case.name:24} {case.title}")
        return 0
    signal.signal(signal.SIGTERM, _interrupted)  # so that everything is stopped in order
    cases = [case for case in CASES if case.name in args.only and (case.quick or not args.quick)]
    console = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    if args.java:
        cases = []
    rows = _on_stage(console, cases, args) if cases or args.java else []
    for apart in cases_apart.CASES:
        if apart.name in args.only and not args.quick and not args.java:
            console.print(f"{apart.name}: {apart.title}", highlight=False)
            rows.append(_play_apart(console, apart))
            report.keep("case", rows[-1:], RATE)
    report.show(console, ALL, rows)
    if not args.quick:
        console.print(f"Written: {report.write_documentation(ALL)}", highlight=False)
    console.print(f"{time.monotonic() - began:.0f} s in all", highlight=False)
    return 0 if (rows or args.java) and all(row.holds for row in rows) else 1


def _on_stage(console: Console, cases: list[Case], args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    console.print(f"Starting two clusters of three brokers each (seed {args.seed})", highlight=False)
    with Stage() as stage:
        # Cases that need the same mirrors share them: starting Spark takes longer than most faults.
        for together in _alike(cases):
            for row in _run(console, stage, together, cases, args):
                rows.append(row)
                if not args.quick:
                    report.keep("case", [row], RATE)
        if not args.quick and not args.no_java and len(cases) in (0, len(CASES)):
            for mirror in args.java or java.MIRRORS:
                _compare(console, stage, mirror, args)
    return rows


def _alike(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases that need the same mirrors, together."""
    found: dict[tuple[int, bool, bool], list[Case]] = {}
    for case in cases:
        found.setdefault((case.processes, case.forgetful, case.cluster), []).append(case)
    return list(found.values())


def _run(
    console: Console, stage: Stage, together: list[Case], cases: list[Case], args: argparse.Namespace
) -> Iterator[Row]:
    def tell(case: Case, text: str) -> None:
        console.print(f"{cases.index(case) + 1}/{len(cases)} {case.name}: {text}", highlight=False)

    def rounds(case: Case) -> int:
        return 1 if case.once or args.quick else int(args.rounds or case.rounds)

    for row in play(stage, together, rounds, args.seed, args.quick, tell):
        _tell_of(console, row)
        yield row


def _play_apart(console: Console, case: Apart) -> Row:
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=BUILD) as directory:
        row = cases_apart.play(case, Path(directory))
    _tell_of(console, row)
    return row


def _tell_of(console: Console, row: Row) -> None:
    console.print(
        f"  {row.records:,} records, {row.lost} lost, {row.doubled} doubled, {row.out_of_order} out of order, "
        f"longest pause {row.pause:.1f} s, {row.seconds:.0f} s: {'holds' if row.holds else 'DOES NOT HOLD'}",
        highlight=False,
    )
    for text in (*row.troubles, *row.notes):
        console.print(f"  {text}", highlight=False, markup=False)


def _compare(console: Console, stage: Stage, mirror: str, args: argparse.Namespace) -> None:
    """Not part of the verdict: what the others do is not ours to hold."""
    title = java.MIRRORS[mirror]
    console.print(f"The same kills through {title}", highlight=False)
    chance = random.Random(f"{args.seed} java")
    row = java.compare(
        stage, mirror, chance, java.RECORDS, lambda text: console.print(f"  {title}: {text}", highlight=False)
    )
    console.print(
        f"  {row.records:,} records, {row.lost} lost, {row.doubled} doubled, {row.out_of_order} out of order, "
        f"{row.seconds:.0f} s {' '.join(row.troubles)}",
        highlight=False,
        markup=False,
    )
    report.keep("java", [row], java.RATE)


def _arguments() -> argparse.Namespace:
    names = tuple(case.name for case in ALL)
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--only", type=_list(names), default=names, metavar="CASE,...", help="these cases (see --list)")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="how often each fault happens (10 for kills of ours, 2)"
    )
    parser.add_argument("--quick", action="store_true", help="the short form: few cases, one round, nothing written")
    parser.add_argument("--seed", type=int, default=1, help="another number, other moments and victims (1)")
    parser.add_argument("--no-java", action="store_true", help="leave out the comparison with the Java MirrorMakers")
    mirrors = tuple(java.MIRRORS)
    parser.add_argument(
        "--java",
        type=_list(mirrors),
        metavar="MIRROR,...",
        help=f"only the comparison, with these: {', '.join(mirrors)}",
    )
    parser.add_argument("--list", action="store_true", help="name the cases")
    return parser.parse_args()


def _list(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        wrong = [name for name in names if name not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {', '.join(known)}")
        return names

    return parse


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("faults: interrupted")
    except EmbeddedError as error:
        sys.exit(f"faults: {error}")
