"""Kafka's own ways to start a tool: bin/kafka-run-class.sh and the commands that it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mirrormaker
from mirrormaker.cli import call

BIN = Path(__file__).parents[3] / "bin"
SOURCES = Path(mirrormaker.__file__).parents[1]
# A script like those that pip writes, but with this Python and these sources.
COMMAND = """#!/bin/sh
PYTHONPATH={sources} exec {python} -c 'from mirrormaker.cli import {function}; {function}()' "$@"
"""
ECHO = """#!/bin/sh
for word in "$0" "$@"; do printf '%s\\n' "$word"; done
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the scripts, in a directory with a blank in its name."""
    root = tmp_path / "my mirror"
    shutil.copytree(BIN, root / "bin")
    return root


def install(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)
    return directory / name


def run(script: Path, *argv: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    return subprocess.run(
        [str(script), *argv], capture_output=True, text=True, check=False, cwd="/", env=environment, timeout=60
    )


def test_the_class_is_run_from_the_repository_with_every_word_as_it_was(repository: Path) -> None:
    command = install(repository / ".venv" / "bin", "kafka-mirror-maker", ECHO)
    words = ['--whitelist=topic1, topic "2"', "--x", "", "*", "a'b", "$HOME"]
    for script, first in (("kafka-run-class.sh", ["kafka.tools.MirrorMaker"]), ("kafka-mirror-maker.sh", [])):
        done = run(repository / "bin" / script, *first, *words)
        assert (done.returncode, done.stderr) == (0, "")
        started, *given = done.stdout.splitlines()
        assert Path(started).samefile(command)
        assert given == words


def test_a_link_to_the_script_finds_the_repository(repository: Path, tmp_path: Path) -> None:
    install(repository / ".venv" / "bin", "kafka-consumer-offset-checker", ECHO)
    link = tmp_path / "kafka-consumer-offset-checker.sh"
    link.symlink_to(repository / "bin" / "kafka-consumer-offset-checker.sh")
    assert run(link, "--group", "g").stdout.splitlines()[1:] == ["--group", "g"]


def test_without_the_repository_the_installed_command_is_run(repository: Path, tmp_path: Path) -> None:
    command = install(tmp_path / "elsewhere", "kafka-mirror-maker", ECHO)
    done = run(repository / "bin" / "kafka-run-class.sh", "kafka.tools.MirrorMaker", "x", path=str(command.parent))
    assert done.stdout.splitlines() == [str(command), "x"]


@pytest.mark.parametrize("argv", [[], ["kafka.tools.ConsoleConsumer", "--x"]])
def test_another_class_is_refused_with_the_two_that_are_here(argv: list[str]) -> None:
    done = run(BIN / "kafka-run-class.sh", *argv)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "kafka.tools.MirrorMaker and kafka.tools.ConsumerOffsetChecker" in done.stderr


def test_a_mistake_has_the_name_of_the_command_in_it(repository: Path) -> None:
    text = COMMAND.format(sources=SOURCES, python=sys.executable, function="mirror_maker")
    install(repository / ".venv" / "bin", "kafka-mirror-maker", text)
    done = run(repository / "bin" / "kafka-run-class.sh", "kafka.tools.MirrorMaker")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kafka-mirror-maker: --consumer.config FILE is missing: the property file of the source cluster"
        " (see kafka-mirror-maker --help)\n"
    )


def test_help_has_the_name_of_the_command_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        call(["run", "--help"], "kafka-mirror-maker")
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: kafka-mirror-maker ")
    assert "    kafka-mirror-maker --consumer.config source.properties" in out
    assert "mirrormaker run" not in out
