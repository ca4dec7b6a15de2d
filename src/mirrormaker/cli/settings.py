"""`mirrormaker settings`: how each line of a consumer or producer file is understood, without asking any cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mirrormaker.errors import SettingError
from mirrormaker.settings import keys, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.consistency import as_they_are
from mirrormaker.settings.login import LoginFiles, login_files
from mirrormaker.settings.property_file import OTHER, File, Line

_EXAMPLES = """examples:
  mirrormaker settings consumer.properties producer.properties
  mirrormaker settings --producer.config target.properties --all

exit codes: 0 every file can be used, 1 there is a mistake in one of them."""
_WHOSE = {"consumer": "source", "producer": "target"}
_TYPED: dict[str, Callable[[properties.Properties, LoginFiles], SourceSettings | TargetSettings]] = {
    "consumer": source_settings,
    "producer": target_settings,
}
HIDDEN = "[hidden]"


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
    for name, what in (("jaas", "Java's login configuration"), ("krb5", "a krb5.conf")):
        parser.add_argument(f"--{name}.config", dest=name, metavar="FILE", help=f"{what}, as for mirrormaker run")
    parser.add_argument("--all", action="store_true", help="show the defaults that are in force, too")
    parser.set_defaults(body=body)


def body(args: argparse.Namespace) -> int:
    """Exit code 0 only if every file can be used."""
    named = [("", path) for path in args.files] + [(side, path) for side in _WHOSE for path in getattr(args, side)]
    if not named:
        raise SettingError(
            "no file is named; write mirrormaker settings consumer.properties producer.properties (see mirrormaker settings --help)"
        )
    console = Console(highlight=False)
    logins = login_files(args.jaas, args.krb5, (), os.environ)
    typed = [_show(console, side, path, args.all, logins) for side, path in named]
    return 0 if _fit(console, typed) and all(typed) else 1


def _side(file: properties.Properties) -> tuple[str, str]:
    """The side that a file is for, found from keys that only one side has; and what told us."""
    only = {
        side: [name for name in file if name in keys.TABLE[side] and name not in keys.TABLE[OTHER[side]]]
        for side in _WHOSE
    }
    side = "consumer" if len(only["consumer"]) >= len(only["producer"]) else "producer"
    return (side, f"it has {only[side][0]}") if only[side] else ("producer", "it names no group")


def _show(
    console: Console, side: str, path: str, with_defaults: bool, logins: LoginFiles
) -> SourceSettings | TargetSettings | None:
    """One file, line by line; the result is what it says, or None if it cannot be used."""
    try:
        found = properties.read(path, f"--{side}.config" if side else "file")
    except SettingError as error:
        _complain(console, error)
        return None
    side, because = (side, "as you say") if side else _side(found)
    file = File(found, side)
    console.print(Text(f"{path}: a {side} file, for the {_WHOSE[side]} cluster ({because})", style="bold"))
    console.print(_table(file, with_defaults))
    try:
        typed = _TYPED[side](found, logins)
        if (sasl := typed.endpoint.security.sasl) is not None:
            console.print(Text(f"logs in as {sasl.login} ({sasl.where})"), soft_wrap=True)
        for note in typed.notes[len(file.notes) :]:  # of several lines together
            console.print(Text(note, style="yellow"), soft_wrap=True)
        return typed
    except SettingError as error:
        if not any(line.error for line in file.lines):
            _complain(console, error)
        return None
    finally:
        console.print()


def _table(file: File, with_defaults: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", width=4)
    table.add_column(overflow="fold")
    for line in file.lines:
        table.add_row(str(line.written.line), Text(_setting(line), style="cyan"))
        table.add_row("", Padding(_effect(line, file), (0, 0, 0, 4)))
    if with_defaults:
        table.add_row("", Text("by default:", style="bold"))
        for key in keys.SIDES[file.side]:
            if key.used and key.default and not file.has(key.name):
                table.add_row("-", Text(f"{key.name}={key.default}", style="dim cyan"))
                table.add_row("", Padding(Text(key.meaning, style="dim"), (0, 0, 0, 4)))
    return table


def _setting(line: Line) -> str:
    """As it is written, and below it today's words for the same."""
    name, text = line.written.key, line.text
    if keys.is_secret(name, text):
        return f"{name}={HIDDEN}"
    written = f"{name}={text}"
    if line.key is None or line.error or not line.key.used or line.written.written:
        return written
    today = f"{line.key.name}={line.key.kind.show(line.value)}"
    return written if today == written else f"{written}\n= {today}"


def _effect(line: Line, file: File) -> Text:
    said = (line.error or line.note).removeprefix(f"{file.properties.path}, line {line.written.line}: ")
    said = said.removeprefix(line.written.key).removeprefix(f"={line.text}").removeprefix(": ").strip()
    if line.error:
        return Text(f"MISTAKE: {said}", style="red")
    if line.key is None:
        return Text(said or "given again below, with the same value", style="yellow")
    if not line.key.used:
        return Text(f"no effect: {said or line.key.meaning}", style="yellow" if line.key.told or said else "")
    return Text(f"{line.key.meaning}; {said}", style="yellow") if said else Text(line.key.meaning)


def _fit(console: Console, typed: list[SourceSettings | TargetSettings | None]) -> bool:
    """Whether the files can be used together."""
    sources = [one for one in typed if isinstance(one, SourceSettings)]
    fits = True
    for target in typed:
        if isinstance(target, TargetSettings):
            try:
                for note in as_they_are(sources, target).notes[len(target.notes) :]:
                    console.print(Text(note, style="yellow"), soft_wrap=True)
            except SettingError as error:
                fits = False
                _complain(console, error)
    return fits


def _complain(console: Console, error: SettingError) -> None:
    console.print(Text(f"MISTAKE: {error}", style="red"), soft_wrap=True)
