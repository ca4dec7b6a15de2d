"""`python -m fuzz`: damage recorded answers and control messages, and give them to the code that uses them."""

from __future__ import annotations

import argparse
import time

from tests.support.command_line import names_from

from fuzz import decoders, replay
from fuzz.recorded import load
from fuzz.runner import run

_QUICK_SECONDS, _QUICK_ATTEMPTS = 60.0, 500


def main() -> int:
    """Run the chosen cases. Return 0 if nothing was found."""
    recorded = load()
    cases = [*decoders.cases(recorded), *replay.cases(recorded)]
    args = _arguments(tuple(case.name for case in cases))
    if args.list:
        print("\n".join(case.name for case in cases))
        return 0
    chosen = [case for case in cases if case.name in args.only]
    began = time.monotonic()
    print(f"{len(chosen)} cases, {len(recorded)} recorded answers, seed {args.seed}", flush=True)
    seconds = _QUICK_SECONDS if args.quick else args.minutes * 60
    most = _QUICK_ATTEMPTS if args.quick else None
    tried, findings = run(chosen, seed=args.seed, seconds=seconds, most=most, show=lambda text: print(text, flush=True))
    for name, attempts in tried.items():
        print(f"{name:40} {attempts:>9,}")
    print(f"{tried.total():,} attempts in {time.monotonic() - began:.0f} s, {len(findings)} findings")
    return 1 if findings else 0


def _arguments(names: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other inputs (default: 1)")
    parser.add_argument("--only", type=names_from(names), default=names, metavar="NAME,…", help="only these cases")
    parser.add_argument("--quick", action="store_true", help="at most a minute, and at most 500 attempts for each case")
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
