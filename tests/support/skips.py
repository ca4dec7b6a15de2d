"""A pytest plugin: write down the skipped tests, so that `make test` can list them in its last lines.

`scripts/test.sh` runs pytest several times and names one file in SKIPPED_TESTS for all runs. Without it nothing is written.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Append one line for each file and reason: how many tests were skipped, on which Python, and why."""
    path = os.environ.get("SKIPPED_TESTS")
    if not path or hasattr(
        terminalreporter.config, "workerinput"
    ):  # the processes of pytest-xdist report to the first one
        return
    reports = terminalreporter.stats.get("skipped", [])
    counts = Counter((report.nodeid.split("::")[0], _reason(report)) for report in reports)
    python = ".".join(platform.python_version_tuple()[:2])
    with Path(path).open("a") as file:
        for (test_file, reason), count in counts.items():
            file.write(f"  {count} of {test_file} on Python {python}: {reason}\n")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    assert isinstance(report.longrepr, tuple)  # file, line, reason: so are all skipped tests reported
    return report.longrepr[2].removeprefix("Skipped: ")
