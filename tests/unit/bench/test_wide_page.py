"""The rows of the wide benchmark on the page, and the verdicts on them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import wide_page
from bench.store import Version
from bench.wide_page import Row, goals

TEXT = "# Wide\n\n<!-- wide: written by `python -m bench wide` -->old<!-- wide: end -->\n\nbehind\n"
JAVA = Row("mm1", 5000, 1, {"all_s": 6.0, "idle_cpu": 3.5})


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the rows and the page in a directory of the test's own."""
    monkeypatch.setattr(wide_page, "STORE", tmp_path / "wide.json")
    monkeypatch.setattr(wide_page, "DOCS", tmp_path)
    (tmp_path / "benchmarks.md").write_text(TEXT)
    return tmp_path / "benchmarks.md"


def test_a_newer_row_replaces_the_one_with_as_many_partitions_and_processes(page: Path) -> None:
    old = [Row("ours", 5000, 3, {"all_s": 17.0}), Row("ours", 5000, 1, {"all_s": 9.0}), JAVA]
    wide_page.keep(old, Version("a" * 40, False))
    wide_page.keep([Row("ours", 5000, 3, {"all_s": 16.0}, ("unusual",))], Version("b" * 40, True))
    found = wide_page.stored()
    assert [row.key for row in found] == [("ours", 5000, 1), ("mm1", 5000, 1), ("ours", 5000, 3)]
    assert [row.figures["all_s"] for row in found] == [9.0, 6.0, 16.0]
    wide_page.write()
    text = page.read_text()
    assert text.endswith("<!-- wide: end -->\n\nbehind\n") and "old" not in text
    assert ", aaaaaaaaaa | " in text
    assert "| ours, 5,000 partitions, 3 processes | 2" in text
    assert ", bbbbbbbbbb with changes |  | 16.0 |" in text
    assert "- ours, 5,000 partitions, 3 processes: unusual" in text


def test_goals_of_several_processes_are_held_against_the_java_mirror_of_one() -> None:
    few = Row("ours", 8, 3, {"all_s": 9.0})
    wide = Row("ours", 5000, 3, {"all_s": 14.9, "idle_cpu": 7.5, "again_s": 1.9, "killed_s": 12.5, "blocked_s": 0.105})
    assert list(goals([few, JAVA, wide], wide)) == [
        "met: all partitions s, 14.9 (goal: at most 15.0)",
        "missed: idle CPU %, 7.50 (goal: at most 7.00)",
        "met: a record each s, 1.90 (goal: at most 2.00)",
        "missed: after a kill s, 12.5 (goal: at most 12.0)",
        "unknown: KB a partition, not measured",
        "missed: loop blocked s, 0.105 (goal: at most 0.1)",
    ]
    assert not list(goals([few, JAVA, wide], few))
    assert not list(goals([few, JAVA, wide], JAVA))


def test_without_the_java_mirror_no_goal_is_held_against_it() -> None:
    wide = Row("ours", 5000, 1, {"all_s": 14.0, "idle_cpu": 5.0, "again_s": float("nan")})
    verdicts = list(goals([wide], wide))
    assert verdicts[0] == "unknown: all partitions s, 14.0, and what it is held against is not measured"
    assert verdicts[2] == "missed: a record each s, nan (goal: at most 2.00)"
