"""Backlogs that fault cases compare record by record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from faults.case import Result
from faults.network import compare_logs

from mirrormaker.embedded import Cluster
from tests.support.counting import Count
from tests.support.raw_requests import record_batch


def cluster_with(directory: Path, *values: bytes) -> Cluster:
    """Return a cluster that was never started and holds these records."""
    log = directory / "broker-1" / "wide-3"
    log.mkdir(parents=True)
    (log / "00000000000000000000.log").write_bytes(record_batch(values))
    return cast(Cluster, SimpleNamespace(directory=directory))


def compare(tmp_path: Path, *target: bytes, width: int = 90) -> Count:
    source = cluster_with(tmp_path / "source", b"a" * 100, b"b" * 100, b"c" * 100)
    return compare_logs(source, cluster_with(tmp_path / "target", *target), "wide", 3, width)


def test_the_same_records_are_exact(tmp_path: Path) -> None:
    assert compare(tmp_path, b"a" * 100, b"b" * 100, b"c" * 100) == Count(3)


def test_a_missing_record_is_lost(tmp_path: Path) -> None:
    assert compare(tmp_path, b"a" * 100, b"b" * 100) == Count(3, lost=1)


def test_a_record_with_another_content_is_seen(tmp_path: Path) -> None:
    assert compare(tmp_path, b"a" * 100, b"b" * 60 + b"x" * 40, b"c" * 100) == Count(3, out_of_order=1)


def test_a_count_that_is_not_exact_is_a_problem() -> None:
    result = Result("thin-line", 1, records=10)
    result.add(Count(5), "calm")
    assert (result.records, result.problems) == (15, [])
    result.add(Count(5, lost=2), "wide")
    assert (result.records, result.lost) == (20, 2)
    assert result.problems == ["wide: 2 lost, 0 duplicated, 0 out of order"]
