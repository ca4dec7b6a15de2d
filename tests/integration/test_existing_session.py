"""A Spark session that someone else has started: our jobs run in it, and it stays as it was."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrormaker.spark import job
from mirrormaker.spark.existing_session import ExistingSession
from tests.support.spark_session import end_session

STREAMS = 3


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.master("local[4,100]").config("spark.ui.enabled", "false")
    session = (
        builder.config("spark.sql.warehouse.dir", str(tmp_path)).config("spark.local.dir", str(tmp_path)).getOrCreate()
    )
    yield session
    end_session(session)


def test_a_job_runs_in_it_and_nothing_of_it_changes(
    owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stream_of(task: object):  # type: ignore[no-untyped-def]
        """Return, in place of a stream, a function that ends at once, or never."""
        seconds = 600 if task == "endless" else 0

        def stream(numbers: Iterator[int]) -> Iterator[None]:
            (number,) = numbers
            Path(started, str(number)).touch()
            time.sleep(seconds)
            return iter(())

        return stream

    started = tmp_path / "started"
    started.mkdir()
    monkeypatch.setattr(job, "stream_of", stream_of)
    task: Any = "short"
    endless: Any = "endless"
    spark = ExistingSession(owner)
    assert spark.is_local and spark.is_alive
    assert spark.start_jvm().java.util.regex.Pattern.matches("a+", "aaa")
    ours = job.Spark(spark.start_context(), spark.tag)
    job.run(ours, task, STREAMS)
    assert sorted(path.name for path in started.iterdir()) == [str(number) for number in range(STREAMS)]
    assert not list(owner.sparkContext.getJobTags())
    assert SparkSession.getActiveSession() is owner

    failed: list[BaseException] = []

    def run_endless_job() -> None:
        try:
            job.run(ours, endless, 1)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run_endless_job, daemon=True)
    thread.start()
    tracker = owner.sparkContext.statusTracker()
    deadline = time.monotonic() + 30
    while not tracker.getActiveStageIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    spark.end()
    thread.join(30)
    assert failed, "a job of ours is left behind"
    assert spark.is_alive
    assert owner.range(10).count() == 10
