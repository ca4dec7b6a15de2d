"""One command of `mirrormaker` as a value: its options, help text, examples and function."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mirrormaker.settings import options as run_options
from mirrormaker.settings.command_line import CommandLineParser, Option

_WIDTH = 100


class Example(NamedTuple):
    """A command line that works, and its purpose."""

    purpose: str
    line: str  # begins with %(prog)s, which stands for the command's name


@dataclass(frozen=True)
class Command:
    """One command. `--help` and docs/command-lines.md are made from these values."""

    name: str
    purpose: str  # one line for the list of commands
    usage: str  # the arguments of a typical call
    description: str
    options: tuple[Option, ...]
    examples: tuple[Example, ...]
    exit_codes: Mapping[int, str]
    run: Callable[[argparse.Namespace], int]  # returns the exit code
    notes: str = ""  # further paragraphs of the help text
    error_code: int | None = None  # the exit code of every error; None: the error's own

    def add_parser(self, subparsers: Any, known_as: str = "") -> None:
        """Add this command's parser; `known_as` is the name of the program if it is not `mirrormaker COMMAND`."""
        parser: CommandLineParser = subparsers.add_parser(
            self.name,
            help=self.purpose,
            usage=f"%(prog)s {self.usage}",
            description=textwrap.fill(self.description, _WIDTH),
            epilog=self._epilog(),
        )
        if known_as:
            parser.prog = known_as
        parser.add_options(self.options)

    def _epilog(self) -> str:
        parts = ["examples:", *(f"  {example.purpose}\n    {_indented(example.line)}" for example in self.examples)]
        if self.notes:
            parts += ["", *(textwrap.fill(paragraph, _WIDTH) for paragraph in self.notes.split("\n"))]
        parts += ["", "exit codes:", *(f"  {code}  {meaning}" for code, meaning in self.exit_codes.items())]
        return "\n".join(parts)


def _indented(line: str) -> str:
    return line.replace("\n", "\n    ")


def shared_with_run(helps: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> tuple[Option, ...]:
    """Return the named options of `mirrormaker run`, in their order, with the help texts and defaults that differ here."""
    return tuple(
        replace(
            option,
            help=helps[option.names[0]] or option.help,
            default_text=(defaults or {}).get(option.names[0]) or option.default_text,
        )
        for option in run_options.OPTIONS
        if option.names[0] in helps
    )
