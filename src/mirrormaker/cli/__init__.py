"""The commands of `mirrormaker`, one module for each, and the names of Kafka's own tools."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mirrormaker.cli import demo, failover, groups, offsets, run, settings, submit, translate, verify
from mirrormaker.errors import MirrorError, SettingError
from mirrormaker.settings.command_line import CommandLineParser

COMMANDS = (
    run.COMMAND, submit.COMMAND, verify.COMMAND, groups.COMMAND, failover.COMMAND, translate.COMMAND, offsets.COMMAND,
    settings.COMMAND, demo.COMMAND,
)  # fmt: skip
_DESCRIPTION = "Mirror topics from one or more Kafka clusters to another: every record once, in order."
_EPILOG = """examples:
  See a mirror at work, without a cluster of your own:
    mirrormaker demo
  Mirror all topics:
    mirrormaker run --consumer.config source.properties --producer.config target.properties --whitelist ".*"
  Show the options and examples of a command:
    mirrormaker run --help"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run `mirrormaker`."""
    sys.exit(call(sys.argv[1:] if argv is None else argv))


def mirror_maker() -> None:
    """Run `kafka-mirror-maker`, which is `mirrormaker run` under the name of Kafka's tool."""
    sys.exit(call(["run", *sys.argv[1:]], "kafka-mirror-maker"))


def offset_checker() -> None:
    """Run `kafka-consumer-offset-checker`, which is `mirrormaker offsets` under the name of Kafka's tool."""
    sys.exit(call(["offsets", *sys.argv[1:]], "kafka-consumer-offset-checker"))


def call(argv: Sequence[str], known_as: str = "") -> int:
    """Run one command and return its exit code; an error is one line on stderr.

    `known_as` is the name under which the user started the command, if it is not `mirrormaker`.
    """
    parser = main_parser(known_as)
    command = next((command for command in COMMANDS if argv and command.name == argv[0]), None)
    try:
        args = parser.parse_args(list(argv))
        if command is None:
            parser.print_help(sys.stderr)
            return 1
        return command.run(args)
    except MirrorError as error:
        hint = ""
        if isinstance(error, SettingError) and error.is_option:
            hint = f" (see {known_as or (f'mirrormaker {command.name}' if command else 'mirrormaker')} --help)"
        print(f"{known_as or 'mirrormaker'}: {error}{hint}", file=sys.stderr)
        return command.error_code if command and command.error_code is not None else error.exit_code
    except KeyboardInterrupt:
        return 130


def main_parser(known_as: str = "") -> CommandLineParser:
    """Return the parser of all commands; `known_as` replaces `mirrormaker COMMAND` in their help texts."""
    parser = CommandLineParser(prog="mirrormaker", description=_DESCRIPTION, epilog=_EPILOG)
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=CommandLineParser)
    for command in COMMANDS:
        command.add_parser(subparsers, known_as)
    return parser
