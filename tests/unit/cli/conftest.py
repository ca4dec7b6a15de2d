"""Command lines of commands that work with both clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrormaker.cli import call
from tests.support.command_line import Refused


@pytest.fixture
def both_files(tmp_path: Path) -> list[str]:
    """The options that name two property files, which are all right."""
    consumer, producer = tmp_path / "source.properties", tmp_path / "target.properties"
    consumer.write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=mirror\n")
    producer.write_text("bootstrap.servers=127.0.0.1:1\n")
    return ["--consumer.config", str(consumer), "--producer.config", str(producer)]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs a command that is refused, and returns the one line that it says."""

    def run(command: list[str]) -> str:
        assert call(command) == 1
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        return error

    return run
