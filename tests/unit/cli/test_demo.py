"""`mirrormaker demo`: mistakes on its command line are told before anything starts."""

from __future__ import annotations

import pytest

from mirrormaker.cli import call


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--streams", "0"], "--streams 0: this must be at least 1"),
        (["--seconds", "0"], "--seconds 0: this must be at least 1"),
        (["--seconds", "soon"], "--seconds soon: this must be a whole number"),
        (["--on", "mars"], "--on mars: this must be one of local, standalone, yarn"),
    ],
)
def test_a_mistake_is_one_line_before_a_cluster_starts(
    given: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_cluster(**_: object) -> None:
        raise AssertionError("a cluster starts")

    monkeypatch.setattr("mirrormaker.embedded.Cluster", no_cluster)
    assert call(["demo", *given]) == 1
    assert capsys.readouterr().err == f"mirrormaker: {words} (see mirrormaker demo --help)\n"
