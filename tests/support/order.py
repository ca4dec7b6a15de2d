"""A pytest plugin: run the longest test files first, and list the longest ones at the end.

Two processes take one file after the other. A long file that starts last keeps one of them busy while the other has nothing to do,
so the long files come first and the unit tests, which are short, come last. Order inside a file stays as it is written.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

# Longest first. A file that is not named here comes after these and before the unit tests.
LONGEST = (
    "tests/integration/test_verify.py",
    "tests/integration/test_mirror.py",
    "tests/compat/test_old_brokers.py",
    "tests/integration/test_offset_map.py",
    "tests/integration/test_lost_map.py",
    "tests/integration/test_group_states.py",
    "tests/integration/test_expired_offsets.py",
    "tests/integration/test_group_expiry.py",
    "tests/integration/test_records_lane.py",
    "tests/integration/test_tls.py",
    "tests/integration/test_acls.py",
    "tests/integration/test_sasl.py",
    "tests/integration/test_kerberos.py",
    "tests/integration/test_status_page.py",
    "tests/packaging/test_wheel.py",
    "tests/integration/test_several.py",
    "tests/integration/test_spark_cluster.py",
    "tests/fuzz/test_short.py",
    "tests/faults/test_kill.py",
)
_LONG = 20.0  # seconds


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort by file; Python's sort keeps the order of tests with the same rank."""
    items.sort(key=lambda item: _rank(item.path, config.rootpath))


def _rank(path: Path, root: Path) -> int:
    name = path.relative_to(root).as_posix()
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + name.startswith("tests/unit/")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the files that took longest, for whoever keeps LONGEST up to date."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("::")[0]] += report.duration
    long = {name: duration for name, duration in seconds.items() if duration >= _LONG}
    if len(seconds) == 1 or not long:
        return
    terminalreporter.section(f"files that took {_LONG:.0f} s or more")
    for name, duration in sorted(long.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{duration:7.1f}  {name}")
