"""`mirrormaker settings`: how each line of a consumer or producer file is understood, without asking any cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.file import File, Line
from mirrormaker.settings.together import unpacked_or_not

_EXAMPLES = """examples:
  mirrormaker settings consumer.properties producer.properties
  mirrormaker settings --producer.config target.properties --all

exit codes: 0 every file can be used, 1 there is a mistake in one of them."""
_WHOSE = {"consumer": "source", "producer": "target"}
_TYPED: dict[str, Callable[[properties.Properties], SourceSettings | TargetSettings]] = {
    "consumer": source_settings,
    "producer": target_settings,
}
HIDDEN = "[hidden]"


@dataclass(frozen=True)
class _Named:
    """A file, and what told us which side it is for."""

    file: properties.Properties
    side: str
    because: str


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "settings",
        help="show how each line of property files is understood",
        description="Show each line of consumer and producer files: today's name and value, and what it does here.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="a property file; its keys tell which side it is for")
    for side in _WHOSE:
        parser.add_argument(
            f"--{side}.config", dest=side, action="append", default=[], metavar="FILE", help=f"a {side} file"
        )
    parser.add_argument("--all", action="store_true", help="show the defaults that are in force, too")
    parser.set_defaults(body=body)


def body(args: argparse.Namespace) -> int:
    """Exit code 0 only if every file can be used."""
    named = [("", path) for path in args.files] + [(side, path) for side in _WHOSE for path in getattr(args, side)]
    if not named:
        raise SettingError("no file is named; write mirrormaker settings consumer.properties producer.properties")
    console = Console(highlight=False)
    mistakes = 0
    typed: list[SourceSettings | TargetSettings] = []
    for side, path in named:
        try:
            one = _name(side, properties.read(path, f"--{side}.config" if side else "file"))
        except SettingError as error:
            mistakes += _complain(console, str(error))
            continue
        mistakes += _show(console, one, args.all, typed)
        console.print()
    return 1 if mistakes + _compare(console, typed) else 0


def _name(side: str, file: properties.Properties) -> _Named:
    """The side that a file is for: told, or found from keys that only one side has."""
    if side:
        return _Named(file, side, "as you say")
    only = {
        one: [name for name in file if name in keys.TABLE[one] and name not in keys.TABLE[other]]
        for one, other in (("consumer", "producer"), ("producer", "consumer"))
    }
    if not only["consumer"] and not only["producer"]:
        return _Named(file, "producer", "it names no group")
    side = "consumer" if len(only["consumer"]) >= len(only["producer"]) else "producer"
    return _Named(file, side, f"it has {only[side][0]}")


def _show(console: Console, one: _Named, with_defaults: bool, typed: list[SourceSettings | TargetSettings]) -> int:
    """One file as a table; the number of its mistakes."""
    file = File(one.file, one.side)
    console.print(
        Text(f"{one.file.path}: a {one.side} file, for the {_WHOSE[one.side]} cluster ({one.because})", style="bold")
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", width=4)
    table.add_column(overflow="fold")
    for line in file.lines:
        table.add_row(str(line.written.line), Text(_setting(line), style="cyan"))
        table.add_row("", Padding(_effect(line, file), (0, 0, 0, 4)))
    if with_defaults:
        table.add_row("", Text("by default:", style="bold"))
        for key in keys.SIDES[one.side]:
            if key.used and key.default and not file.has(key.name):
                table.add_row("-", Text(f"{key.name}={key.default}", style="dim cyan"))
                table.add_row("", Padding(Text(key.meaning, style="dim"), (0, 0, 0, 4)))
    console.print(table)
    mistakes = sum(bool(line.error) for line in file.lines)
    try:
        typed.append(_TYPED[one.side](one.file))
    except SettingError as error:
        if not mistakes:
            mistakes += _complain(console, str(error))
    return mistakes


def _setting(line: Line) -> str:
    """As it is written, and below it today's words for the same."""
    name, text = line.written.key, line.text
    if keys.is_secret(name, text):
        return f"{name}={HIDDEN}"
    written = f"{name}={text}"
    if line.key is None or line.error or not line.key.used:
        return written
    today = f"{line.key.name}={line.key.kind.show(line.value)}"
    return written if today == written else f"{written}\n= {today}"


def _effect(line: Line, file: File) -> Text:
    where = f"{file.properties.path}, line {line.written.line}: "
    said = (line.error or line.note).removeprefix(where)
    said = said.removeprefix(f"{line.written.key}={line.text}: ").removeprefix(f"{line.written.key}: ")
    said = said.removeprefix(f"{line.written.key} ")
    if line.error:
        return Text(f"MISTAKE: {said}", style="red")
    if line.key is None:
        return Text(said or "given again below, with the same value", style="yellow")
    if not line.key.used:
        return Text(f"no effect: {said or line.key.meaning}", style="yellow" if line.key.told or said else "")
    return Text(f"{line.key.meaning}; {said}", style="yellow") if said else Text(line.key.meaning)


def _compare(console: Console, typed: list[SourceSettings | TargetSettings]) -> int:
    """What one file says of another; the number of mistakes."""
    sources = [one for one in typed if isinstance(one, SourceSettings)]
    mistakes = 0
    for target in typed:
        if isinstance(target, TargetSettings):
            try:
                for note in unpacked_or_not(sources, target).notes[len(target.notes) :]:
                    console.print(Text(note, style="yellow"))
            except SettingError as error:
                mistakes += _complain(console, str(error))
    return mistakes


def _complain(console: Console, text: str) -> int:
    console.print(Text(f"MISTAKE: {text}", style="red"), soft_wrap=True)
    return 1
