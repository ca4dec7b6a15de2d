"""What a command answers to a mistake."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrormaker.cli import call


def error_of(line: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that cannot do its work; return its error, which is one line."""
    assert call(list(line)) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return error
