"""Write docs/command-lines.md.

Run `python -m mirrormaker.cli.reference docs/command-lines.md` after a change to a command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from mirrormaker.cli import COMMANDS
from mirrormaker.cli.command import Command
from mirrormaker.settings.reference_tables import options_table

_INTRODUCTION = """# Command lines

<!-- Written by python -m mirrormaker.cli.reference docs/command-lines.md; do not edit this page. -->

This page has the options of every command. `--help` of a command shows the same text. Each command also has
`--version`. Write options as `--option value` or `--option=value`; abbreviations are not accepted. A mistake on a
command line is one line on stderr.

| command | purpose |
| --- | --- |
"""


def page() -> str:
    """Return the text of docs/command-lines.md."""
    contents = "\n".join(
        f"| [`mirrormaker {command.name}`](#mirrormaker-{command.name}) | {command.purpose} |" for command in COMMANDS
    )
    return f"{_INTRODUCTION}{contents}\n\n" + "\n".join(line for command in COMMANDS for line in _section(command))


def _section(command: Command) -> Iterator[str]:
    program = f"mirrormaker {command.name}"
    yield from (f"## {program}", "", command.description, "", f"```\n{program} {command.usage}\n```", "")
    for group, options in groupby(command.options, key=lambda option: option.group):
        yield from ((f"### {program}: {group}", "") if group else ())
        yield from (options_table(options), "")
    yield from (f"### {program}: examples", "")
    for example in command.examples:
        yield from (example.purpose, "", f"```\n{example.line % {'prog': program}}\n```", "")
    if command.notes:
        yield from (command.notes, "")
    yield from ("| exit code | meaning |", "| --- | --- |")
    yield from (f"| {code} | {meaning} |" for code, meaning in command.exit_codes.items())
    yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
