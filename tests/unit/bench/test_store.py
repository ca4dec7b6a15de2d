"""The log of measurements: which lines count for the program as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import store
from bench.results import Measurement
from bench.store import Version
from bench.workloads import W1, W2


def line(commit: str = "a", **changes: object) -> str:
    row = {"workload": "W1", "tool": "ours", "run": 1, "figures": {"peak_mb": 5.0}, "notes": ["one"]}
    content = {
        "date": "2026-11-18T20:00:00+00:00",
        "quick": False,
        "commit": commit,
        "changed": False,
        "work": [{"name": "W1", "title": W1.title}],
        "measurements": [row],
    }
    return json.dumps(content | changes)


def test_what_is_appended_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOG", tmp_path / "results.jsonl")
    measurement = Measurement("W1", "ours", 3, {"peak_mb": 512.25}, ("a note",))
    store.append(W1, [measurement], Version("abc", False))
    assert store.load({"abc"}).measurements == [measurement]
    assert store.load({"other"}).measurements == []


def test_lines_count_whose_commit_is_in_the_range() -> None:
    found = store.load({"a", "b"}, [line("a"), line("b"), line("c")])
    assert len(found.measurements) == 2
    assert found.days == ["2026-11-18"]


def test_lines_of_changed_sources_and_of_quick_runs_do_not_count() -> None:
    assert store.load({"a"}, [line(changed=True), line(quick=True)]).measurements == []


def test_lines_from_before_commits_were_stored_do_not_count() -> None:
    old = json.loads(line())
    del old["commit"], old["changed"]
    assert store.load({"a"}, [json.dumps(old)]).measurements == []


def test_figures_of_a_workload_that_has_changed_do_not_count() -> None:
    works = [{"name": "W1", "title": "half as many records"}, {"name": "W2", "title": W2.title}]
    assert store.load({"a"}, [line(work=works)]).measurements == []


@pytest.mark.skipif(not store.version().commit, reason="this is no git repository")
def test_the_commits_since_one_begin_with_it() -> None:
    head = store.version().commit
    assert store.commits_since("HEAD") == {head}
    assert head in store.commits_since(None)
