"""Command lines of the commands that read both clusters."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The beginning of a command line with two files that are all right: the module's COMMAND, and the options that it needs."""
    consumer, producer = tmp_path / "source.properties", tmp_path / "target.properties"
    consumer.write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=mirror\n")
    producer.write_text("bootstrap.servers=127.0.0.1:1\n")
    command, *options = request.module.COMMAND
    return [command, "--consumer.config", str(consumer), "--producer.config", str(producer), *options]
