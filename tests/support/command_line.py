"""Options that the command lines of benchmarks and fault cases share."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def names_from(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser for an option whose value is a list of known names, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return names

    return parse
