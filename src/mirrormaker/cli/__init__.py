"""The commands: `mirrormaker run`, `mirrormaker verify`, `mirrormaker demo`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mirrormaker import __version__
from mirrormaker.cli import demo, run, verify
from mirrormaker.errors import MirrorError
from mirrormaker.settings.options import Parser

COMMANDS = (run, verify, demo)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `mirrormaker` command."""
    sys.exit(call(sys.argv[1:] if argv is None else argv))


def call(argv: Sequence[str]) -> int:
    """Run one command; a mistake is one line on stderr and exit code 1."""
    parser = Parser(
        prog="mirrormaker",
        description="Mirror topics from one or more Kafka clusters to another: every record once, in order.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Each command has its own --help with examples. Try it without any cluster at hand: mirrormaker demo",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mirrormaker {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
    for command in COMMANDS:
        command.add_to(commands)
    try:
        args = parser.parse_args(list(argv))
        if not hasattr(args, "body"):
            parser.print_help(sys.stderr)
            return 1
        code: int = args.body(args)
        return code
    except MirrorError as error:
        print(f"mirrormaker: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
