"""The commands: `mirrormaker run`, `verify`, `offsets`, `settings`, `demo`; and the names under which people know some of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mirrormaker import __version__
from mirrormaker.cli import demo, offsets, run, settings, verify
from mirrormaker.errors import MirrorError, SettingError
from mirrormaker.settings.options import Parser

COMMANDS = (run, verify, offsets, settings, demo)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `mirrormaker` command."""
    sys.exit(call(sys.argv[1:] if argv is None else argv))


def mirror_maker() -> None:
    """Entry point of `kafka-mirror-maker`: `mirrormaker run` under the original's name."""
    sys.exit(call(["run", *sys.argv[1:]], "kafka-mirror-maker"))


def offset_checker() -> None:
    """Entry point of `kafka-consumer-offset-checker`: `mirrormaker offsets` under the original's name."""
    sys.exit(call(["offsets", *sys.argv[1:]], "kafka-consumer-offset-checker"))


def call(argv: Sequence[str], known_as: str = "") -> int:
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
    if known_as and argv[0] in commands.choices:
        commands.choices[argv[0]].prog = known_as
    try:
        args = parser.parse_args(list(argv))
        if not hasattr(args, "body"):
            parser.print_help(sys.stderr)
            return 1
        code: int = args.body(args)
        return code
    except MirrorError as error:
        print(f"{known_as or 'mirrormaker'}: {error}{_where_to_look(error, argv, known_as)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _where_to_look(error: MirrorError, argv: Sequence[str], known_as: str) -> str:
    """For mistakes on the command line: they begin with the option that is wrong."""
    is_option = isinstance(error, SettingError) and str(error).startswith("--")
    if not is_option or str(error).endswith("--help)"):
        return ""
    return f" (see {known_as or f'mirrormaker {argv[0]}'} --help)"
