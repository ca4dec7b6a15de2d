"""`mirrormaker settings`: show what each line of a property file does, without a connection to any cluster."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mirrormaker.cli.command import Command, Example
from mirrormaker.errors import SettingError
from mirrormaker.settings import keys, options, properties
from mirrormaker.settings.clients import SourceSettings, TargetSettings, source_settings, target_settings
from mirrormaker.settings.command_line import Option
from mirrormaker.settings.consistency import apply_shallow_iterator
from mirrormaker.settings.login import LoginFiles, login_files
from mirrormaker.settings.property_file import OTHER_SIDE, Line, PropertyFile

_CLUSTERS = {"consumer": "source", "producer": "target"}
_TYPED_SETTINGS: dict[str, Callable[[properties.Properties, LoginFiles], SourceSettings | TargetSettings]] = {
    "consumer": source_settings,
    "producer": target_settings,
}
_OPTIONS = (
    Option(
        ("files",), "Property file. Its keys tell whether it is a consumer or a producer file.", "FILE", repeated=True,
    ),
    Option(("--consumer.config",), "Consumer file. Can be repeated.", "FILE", repeated=True),
    Option(("--producer.config",), "Producer file. Can be repeated.", "FILE", repeated=True),
    Option(("--all",), "Also show the settings that are not in the file, with their defaults."),
    *(option for option in options.OPTIONS if option.names[0] in ("--jaas.config", "--krb5.config")),
)  # fmt: skip
HIDDEN = "[hidden]"


def run(args: argparse.Namespace) -> int:
    """Print the meaning of each line; return 0 if every file can be used."""
    named = [("", path) for path in args.files]
    named += [("consumer", path) for path in args.consumer_config]
    named += [("producer", path) for path in args.producer_config]
    if not named:
        raise SettingError(
            "no file is named; write mirrormaker settings consumer.properties producer.properties", option=True
        )
    console = Console(highlight=False)
    logins = login_files(args.jaas_config, args.krb5_config, (), os.environ)
    settings = [_show(console, side, path, args.all, logins) for side, path in named]
    return 0 if _fit_together(console, settings) and all(settings) else 1


def _side(file: properties.Properties) -> tuple[str, str]:
    """Return the side that a file is for, and the reason: a key that only this side has."""
    own_keys = {
        side: [name for name in file if name in keys.TABLE[side] and name not in keys.TABLE[OTHER_SIDE[side]]]
        for side in _CLUSTERS
    }
    side = "consumer" if len(own_keys["consumer"]) >= len(own_keys["producer"]) else "producer"
    return (side, f"it has {own_keys[side][0]}") if own_keys[side] else ("producer", "it has no group.id")


def _show(
    console: Console, side: str, path: str, with_defaults: bool, logins: LoginFiles
) -> SourceSettings | TargetSettings | None:
    """Print one file line by line; return its settings, or None if it cannot be used."""
    try:
        lines = properties.read(path, f"--{side}.config" if side else "")
    except SettingError as error:
        _print_error(console, str(error))
        return None
    side, reason = (side, f"named by --{side}.config") if side else _side(lines)
    file = PropertyFile(lines, side)
    console.print(Text(f"{path}: a {side} file, for the {_CLUSTERS[side]} cluster ({reason})", style="bold"))
    console.print(_table(file, with_defaults))
    try:
        settings = _TYPED_SETTINGS[side](lines, logins)
        if (sasl := settings.endpoint.security.sasl) is not None:
            console.print(Text(f"logs in as {sasl.login} ({sasl.where})"), soft_wrap=True)
        # The table shows the notes on single lines. The others are about several lines together.
        for note in settings.notes[len(file.notes) :]:
            console.print(Text(note, style="yellow"), soft_wrap=True)
        return settings
    except SettingError as error:
        if not any(line.error for line in file.lines):
            _print_error(console, str(error))
        return None
    finally:
        console.print()


def _table(file: PropertyFile, with_defaults: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", width=4)
    table.add_column(overflow="fold")
    for line in file.lines:
        table.add_row(str(line.written.line), Text(_setting(line), style="cyan"))
        table.add_row("", Padding(_effect(line), (0, 0, 0, 4)))
    if with_defaults:
        table.add_row("", Text("by default:", style="bold"))
        for key in keys.SIDES[file.side]:
            if key.has_effect and key.default and not file.has(key.name):
                table.add_row("-", Text(f"{key.name}={key.default}", style="dim cyan"))
                table.add_row("", Padding(Text(key.meaning, style="dim"), (0, 0, 0, 4)))
    return table


def _setting(line: Line) -> str:
    """Return the line as the file has it, and below it the same with the current name and value if they differ."""
    name, text = line.written.key, line.text
    if keys.is_secret(name, text):
        return f"{name}={HIDDEN}"
    as_written = f"{name}={text}"
    if line.key is None or line.error or not line.key.has_effect or line.written.unresolved:
        return as_written
    current = f"{line.key.name}={line.key.type.format(line.value)}"
    return as_written if current == as_written else f"{as_written}\n= {current}"


def _effect(line: Line) -> Text:
    """Return what the line does, or what is wrong with it."""
    if line.error:
        return _error_text(line.detail)
    if line.key is None:
        return Text(line.detail or "given again below, with the same value", style="yellow")
    if not line.key.has_effect:
        style = "yellow" if line.key.is_announced or line.detail else ""
        return Text(f"No effect. {line.key.meaning if not line.detail else f'Note: {line.detail}'}", style=style)
    if line.detail:
        return Text(f"{line.key.meaning} Note: {line.detail}", style="yellow")
    return Text(line.key.meaning)


def _fit_together(console: Console, settings: list[SourceSettings | TargetSettings | None]) -> bool:
    """Return True if the files can be used together; print what contradicts."""
    sources = [one for one in settings if isinstance(one, SourceSettings)]
    fits = True
    for target in settings:
        if isinstance(target, TargetSettings):
            try:
                for note in apply_shallow_iterator(sources, target).notes[len(target.notes) :]:
                    console.print(Text(note, style="yellow"), soft_wrap=True)
            except SettingError as error:
                fits = False
                _print_error(console, str(error))
    return fits


def _print_error(console: Console, message: str) -> None:
    console.print(_error_text(message), soft_wrap=True)


def _error_text(message: str) -> Text:
    return Text(f"ERROR: {message}", style="red")


COMMAND = Command(
    name="settings",
    purpose="show what each line of a property file does",
    usage="FILE ... [OPTION ...]",
    description="Show each line of consumer and producer files: its current name and value, what it does, and what is"
    " wrong with it. No cluster is contacted. Passwords and keys are not shown.",
    options=_OPTIONS,
    examples=(
        Example("Show two files, and whether they fit together:", "%(prog)s consumer.properties producer.properties"),
        Example("Also show the defaults:", "%(prog)s --producer.config target.properties --all"),
    ),
    exit_codes={0: "every file can be used", 1: "at least one file has an error"},
    run=run,
)
