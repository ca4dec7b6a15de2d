"""`python -m fuzz`: damage answers and control messages, and give them to the code that uses them."""

from __future__ import annotations

import argparse
import gc
import secrets
import time

from tests.support.command_line import names_from

from fuzz import decoders, logins, replay, zookeeper_frames
from fuzz.recording import load
from fuzz.runner import Finding, run


def main() -> int:
    """Run the chosen cases. Return 0 if nothing was found."""
    recorded = load()
    modules = (decoders, logins, zookeeper_frames, replay)
    cases = [case for module in modules for case in module.cases(recorded)]
    args = _arguments(tuple(case.name for case in cases))
    if args.list:
        print("\n".join(case.name for case in cases))
        return 0
    chosen = [case for case in cases if case.name in args.only]
    # Conversations collect garbage: everything that is there by now need not be looked at each time.
    gc.freeze()
    began = time.monotonic()
    print(f"{len(chosen)} cases, {len(recorded)} recorded answers, seed {args.seed}", flush=True)

    def show(found: Finding) -> None:
        again = f"python -m fuzz --seed {args.seed} --only {found.case} --first {found.number} --minutes 0.01"
        print(f"{found.case} {found.trouble.summary}: {found.file}\nagain: {again}\n{found.trouble.detail}", flush=True)

    tried, findings = run(chosen, seed=args.seed, seconds=args.minutes * 60, first=args.first, show=show)
    for name, attempts in tried.items():
        print(f"{name:40} {attempts:>9,}")
    print(f"{tried.total():,} attempts in {time.monotonic() - began:.0f} s, {len(findings)} findings")
    return 1 if findings else 0


def _arguments(names: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to go on (default: 60)")
    seed = secrets.randbelow(1 << 32)
    parser.add_argument("--seed", type=int, default=seed, help="the same seed makes the same inputs (default: random)")
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first attempt of each case (default: 0)"
    )
    parser.add_argument("--only", type=names_from(names), default=names, metavar="NAME,…", help="only these cases")
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
