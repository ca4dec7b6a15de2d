"""`mirrormaker groups` and its neighbours for one topic, in the process of a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirrormaker.cli import call
from tests.support.mirror_process import MirrorProcess


class AskedGroups:
    """The groups whose names begin like the topic's, as a mirror with these files keeps them."""

    def __init__(self, mirror: MirrorProcess, capsys: pytest.CaptureFixture[str], topic: str) -> None:
        self._files = ["--consumer.config", str(mirror.source_file), "--producer.config", str(mirror.target_file)]
        self._capsys, self._topic = capsys, topic

    def text(self, *options: str, groups: str = "") -> tuple[int, str]:
        """Return the exit code and the output."""
        self._capsys.readouterr()
        code = call(["groups", *self._files, "--groups", groups or f"{self._topic}.*", *options])
        shown = self._capsys.readouterr()
        assert not shown.err, shown.err
        return code, shown.out

    def translated(self, *options: str) -> list[tuple[int, int, int]]:
        """Return partitions, offsets and translated offsets of `mirrormaker translate`."""
        self._capsys.readouterr()
        assert call(["translate", *self._files, "--topic", self._topic, "--json", *options]) == 0
        found = json.loads(self._capsys.readouterr().out)
        return [(row["partition"], row["offset"], row["to_offset"]) for row in found]

    def rows(self, *options: str, groups: str = "") -> dict[str, dict[str, Any]]:
        """Return the rows of the JSON document by the end of the group's name."""
        code, out = self.text("--json", *options, groups=groups)
        document = json.loads(out)
        assert code == (0 if document["ready"] else 3)
        rows = document["sources"][0]["groups"]
        return {row["group"].removeprefix(f"{self._topic}-"): row for row in rows}

    def states(self) -> dict[str, str]:
        """Return the state of each group."""
        return {name: row["state"] for name, row in self.rows().items()}
