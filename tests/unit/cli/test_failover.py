"""`mirrormaker failover`: mistakes on its command line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mirrormaker.cli import call, failover, main_parser
from tests.support.mistakes import error_of

COMMAND = ("failover",)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "--whitelist REGEX is missing"),
        (("--whitelist", "a", "--blacklist", "b"), "contradict each other"),
        (("--whitelist", "a(b"), "a(b: this command reads regular expressions as Python does"),
        (("--whitelist", ".*", "--groups", "a(b"), "--groups 'a(b': this must be regular expressions"),
        (
            ("--whitelist", ".*", "--groups.exclude", "a"),
            "--groups.exclude needs --groups, or groups in a consumer file",
        ),
        (("--whitelist", ".*", "--deadline.ms", "-1"), "--deadline.ms -1: this must be at least 0"),
        (("--undo", "--dry.run"), "--undo and --dry.run contradict each other"),
        (("--undo", "--repeat"), "--undo and --repeat contradict each other"),
        (("--undo", "--accept.missing"), "--undo and --accept.missing contradict each other"),
        (("--undo", "--json"), "--undo and --json contradict each other"),
        (("--undo", "--deadline.ms", "60000"), "--undo and --deadline.ms contradict each other"),
        (("--whitelist", ".*", "--source.is.gone", "--accept.missing"), "--accept.missing needs the source"),
        (("--whitelist", ".*", "--source.is.gone", "--deadline.ms", "60000"), "--deadline.ms needs the source"),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str], more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in error_of([*line, *more], capsys)


def test_every_command_of_the_runbook_is_understood(line: list[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "failover.md").read_text(encoding="utf-8")
    given = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    commands = re.findall(r"(?:^ *|`)mirrormaker (failover .*?)(?:`|$)", text, re.MULTILINE)
    commands = [command for command in commands if "$" in command]
    assert len(commands) >= 6
    for command in commands:
        words = shlex.split(re.sub(r"\$(\w+)", lambda found: given[found[1]], command))
        words = [{"source.properties": line[2], "target.properties": line[4]}.get(word, word) for word in words]
        failover._check(main_parser().parse_args(words))


def test_several_sources_are_a_mistake(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "name the one source cluster" in error_of([*line, "--consumer.config", line[2], "--whitelist", ".*"], capsys)


@pytest.mark.parametrize("more", [("--whitelist", ".*"), ("--undo",)])
def test_a_source_that_is_away_is_one_line_with_the_way_out(
    line: list[str], more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    error = error_of([*line, *more], capsys)
    assert "the source cluster cannot be reached" in error and "--source.is.gone" in error


def test_a_target_that_is_away_is_one_line(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*line, "--whitelist", ".*", "--source.is.gone"]) == 1
    error = capsys.readouterr().err
    assert "the target cluster cannot be reached: 127.0.0.1:1: " in error and "(bootstrap.servers=127.0.0.1:1)" in error
    assert len(error.splitlines()) == 1
