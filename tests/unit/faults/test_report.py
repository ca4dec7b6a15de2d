"""The page about faults, written from stored results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from bench.store import Version
from faults.case import Case, Result

from faults import report
from tests.support.attempt import Cell

CASES = (
    Case("kill", "a process is killed", lambda scenario: None, limit=15),
    Case("marathon", "many kills", lambda scenario: None, on_request=True),
)
OLD = {"kind": "case", "cores": 2, "memory_gb": 25, "date": "2026-11-18", "rate": 1600}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have the results and the page in a directory of the test's own."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(report, "DOCUMENT", tmp_path / "reliability.md")
    monkeypatch.setattr(report, "version", lambda: Version("0123456789abcdef", True))
    monkeypatch.setattr(report, "commits_since", lambda commit: {commit})
    return tmp_path / "reliability.md"


def keep_old(page: Path, *results: Mapping[str, object]) -> None:
    """Store results as they were stored before their commit was noted."""
    lines = [vars(Result("kill", 2, records=100, holds=True)) | OLD | dict(result) for result in results]
    page.with_name("results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_case_that_runs_on_request_is_not_one_of_the_cases(page: Path) -> None:
    keep_old(page, {}, {"case": "marathon", "rounds": 200, "records": 5000})
    report.write_documentation(CASES)
    text = page.read_text()
    assert "\n1 of 1 cases hold, 100 records in all.\n" in text
    assert "\n`marathon` runs only on request: 200 rounds, 5,000 records, holds.\n" in text
    assert "All 2 stored results were measured before their commit was noted." in text


def test_a_stored_result_is_judged_by_the_limit_of_today(page: Path) -> None:
    keep_old(page, {"longest_pause": 68.0})
    report.write_documentation(CASES)
    assert "0 of 1 cases hold" in page.read_text()
    assert "68.0 s (promised: 15) |  | does not hold |" in page.read_text()


def test_the_page_names_the_oldest_commit(page: Path) -> None:
    keep_old(page, {}, {"case": "marathon"})
    report.store("case", Result("kill", 2, records=70, holds=True), 1600)
    report.write_documentation(CASES)
    text = page.read_text()
    assert "The oldest commit of the stored results is 0123456789; 1 of 2 were measured with changed sources" in text
    assert "; 1 of 2 were measured before that was noted." in text


def test_a_row_is_stored_with_its_commit_and_only_under_the_limits_of_the_page(page: Path) -> None:
    cells = [Cell("Fetch@source", 6, calm_pause=0.3, recovered=1.2)]
    assert not report.store_row("Fetch@source", cells, False, 3.0)
    assert not page.with_name("results.jsonl").exists()
    assert report.store_row("Fetch@source", cells, False, 1.0)
    (line,) = map(json.loads, page.with_name("results.jsonl").read_text().splitlines())
    assert (line["case"], line["recovered"], line["commit"]) == ("Fetch@source", 1.2, "0123456789abcdef")
