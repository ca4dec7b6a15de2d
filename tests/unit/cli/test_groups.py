"""`mirrormaker groups`: mistakes on its command line, and its exit codes."""

from __future__ import annotations

import json
import os
import sys

import pytest

from mirrormaker.cli import call
from mirrormaker.errors import ClusterError
from mirrormaker.groups import readiness_reader
from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness, Readiness
from mirrormaker.model.group_sync import Cost, State
from tests.support.mistakes import error_of

COMMAND = ("groups",)

SEE = "(see mirrormaker groups --help)"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "--groups REGEX is missing"),
        (
            ("--groups", "a(b"),
            "--groups 'a(b': this must be regular expressions, separated by commas: missing ), unterminated subpattern (see",
        ),
        (("--groups", "(a,b)"), "--groups '(a,b)': this must be regular expressions"),
        (("--groups", ".*", "--groups.exclude", "[x"), "--groups.exclude '[x': this must be regular expressions"),
        (("--groups", ""), "--groups '': this names no group; write --groups \".*\" for all of them"),
        (("--groups.exclude", "a"), "--groups REGEX is missing"),
        (("--groups", ".*", "--watch", "0"), "--watch 0: this must be from 0.1 to 86400 seconds"),
        (("--groups", ".*", "--whitelist", "a(b"), "a(b: this command reads regular expressions as Python does"),
        (("--groups", ".*", "--whitelist", "a", "--blacklist", "b"), "contradict each other"),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str], more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in error_of([*line, *more], capsys)


def test_files_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["groups", "--groups", ".*"]) == 1
    assert capsys.readouterr().err == (
        f"mirrormaker: --consumer.config FILE is missing: the property file of the source cluster {SEE}\n"
    )


def test_a_target_that_is_away_is_one_line(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of([*line, "--groups", ".*"], capsys)
    assert "the target cluster cannot be reached: 127.0.0.1:1: " in error and "(bootstrap.servers=127.0.0.1:1)" in error


@pytest.mark.parametrize(
    ("state", "code"), [(State.SYNCED, 0), (State.BEHIND, 0), (State.OWNED, 3), (State.PENDING, 3)]
)
def test_the_exit_code_says_whether_all_are_ready(
    line: list[str], state: State, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = GroupReadiness("g", "t", (PartitionReadiness(0, 1, 2, Cost(state, 0, 0)),), None, "do this")

    async def read(_: object) -> Readiness:
        return Readiness("old", "new", (row,))

    monkeypatch.setattr(readiness_reader.ReadinessReader, "read", read)
    assert call([*line, "--groups", ".*", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["ready"] is (code == 0)
    assert document["sources"][0]["groups"][0]["state"] == state.value
    assert call([*line, "--groups", ".*"]) == code
    assert ("do this" in capsys.readouterr().out) is (code == 3)


def readiness(state: State) -> Readiness:
    """Return one group in this state."""
    return Readiness("old", "new", (GroupReadiness("g", "t", (PartitionReadiness(0, 1, 2, Cost(state, 0, 0)),)),))


READY, WAITING = readiness(State.SYNCED), readiness(State.PENDING)
TROUBLE, CTRL_C = ClusterError("it does not answer"), KeyboardInterrupt()


@pytest.mark.parametrize(
    ("looks", "code"),
    [
        pytest.param([WAITING, READY], 0, id="ready at last"),
        pytest.param([READY, WAITING], 3, id="not ready any more"),
        pytest.param([READY, TROUBLE], 130, id="nobody knows"),
        pytest.param([TROUBLE, READY], 1, id="the first look fails"),
        pytest.param([READY, TROUBLE, READY], 0, id="it answers again"),
        pytest.param([], 130, id="no look has ended"),
    ],
)
def test_the_exit_code_of_a_watch_is_that_of_the_last_look(
    line: list[str],
    looks: list[Readiness | Exception],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left: list[Readiness | BaseException] = [*looks, CTRL_C]

    async def read(_: object) -> Readiness:
        found = left.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(readiness_reader.ReadinessReader, "read", read)
    assert call([*line, "--groups", ".*", "--watch", "0.1", "--json"]) == code
    shown = [json.loads(row)["ready"] for row in capsys.readouterr().out.splitlines()]
    assert shown == ([look is READY for look in looks if look is not TROUBLE] if code != 1 else [])


@pytest.mark.parametrize(("found", "code"), [(READY, 0), (WAITING, 3)])
@pytest.mark.parametrize("more", [(), ("--watch", "0.1")])
def test_a_reader_that_ends_early_does_not_change_the_exit_code(
    line: list[str], more: tuple[str, ...], found: Readiness, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(_: object) -> Readiness:
        return found

    monkeypatch.setattr(readiness_reader.ReadinessReader, "read", read)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", closefd=True) as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        assert call([*line, "--groups", ".*", *more]) == code
