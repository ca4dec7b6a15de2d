"""The help text of every command, its examples, and the reference page that is generated from the same tables."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from mirrormaker.cli import COMMANDS, call, main_parser
from mirrormaker.cli.command import Command
from mirrormaker.cli.reference import page

ROOT = Path(__file__).parents[3]
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)


def help_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as end:
        call([*argv, "--help"])
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_main_help_lists_every_command_with_its_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text(capsys)
    for command in COMMANDS:
        assert f"{command.name} {command.purpose}" in text


@each_command
def test_help_describes_every_option_and_exit_code(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text(capsys, command.name)
    assert text.startswith(f"usage: mirrormaker {command.name} ")
    assert command.description in text
    for option in command.options:
        assert option.full_help in text
        assert all(name in text for name in option.names if not option.is_positional)
    for code, meaning in command.exit_codes.items():
        assert f"{code} {meaning}" in text


@each_command
def test_every_description_is_a_sentence_and_says_the_default(command: Command) -> None:
    for option in command.options:
        assert option.help[0].isupper()
        assert option.help.endswith(".")
        if option.value is not None and not option.repeated:
            assert option.required or "Default: " in option.full_help, option.names


@each_command
def test_every_example_can_be_parsed(command: Command) -> None:
    assert command.examples
    for example in command.examples:
        line = example.line % {"prog": f"mirrormaker {command.name}"}
        words = shlex.split(line.replace("\\\n", ""))
        assert words[:2] == ["mirrormaker", command.name]
        main_parser().parse_args(words[1:])


def test_the_page_is_as_the_code_has_it() -> None:
    path = ROOT / "docs" / "command-lines.md"
    assert path.read_text(encoding="utf-8") == page(), "run python -m mirrormaker.cli.reference docs/command-lines.md"
