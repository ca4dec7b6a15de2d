"""Jobs of streams: what happens when Spark cannot be started."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from mirrormaker.driver import stream_jobs
from mirrormaker.driver.scheduler import Scheduler
from mirrormaker.driver.stream_jobs import StreamJobs
from mirrormaker.errors import SparkError, SparkGone
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import JobEnded


class Spark:
    """Does not start for the first times that it is asked to."""

    def __init__(self, failures: int, error: type[SparkError] = SparkError) -> None:
        self.failures, self.asked, self.error = failures, 0, error

    async def session(self) -> Any:
        self.asked += 1
        if self.asked <= self.failures:
            raise self.error("Spark did not start: Connection refused")
        return object()


def run(spark: Spark, *, has_seen_streams: bool) -> list[Event]:
    events: list[Event] = []
    jobs: list[object] = []
    scheduler = cast(Scheduler, SimpleNamespace(has_seen_streams=has_seen_streams, streams=1))
    streams = StreamJobs(spark.session, cast(Any, object), scheduler, events.append)
    with (
        mock.patch.object(stream_jobs, "_PAUSE", 0.0),
        mock.patch("mirrormaker.spark.job.run", jobs.append),
        mock.patch.object(stream_jobs, "replace", side_effect=lambda *_, **__: jobs.append(1)),
    ):
        asyncio.run(streams.run(lambda: bool(jobs)))
    return events


def test_a_jvm_that_is_killed_while_it_replaces_another_is_started_again() -> None:
    spark = Spark(failures=2)
    events = run(spark, has_seen_streams=True)
    assert spark.asked == 3
    assert events[:2] == [JobEnded("Spark did not start: Connection refused")] * 2


def test_a_first_start_that_fails_ends_the_mirror() -> None:
    with pytest.raises(SparkError):
        run(Spark(failures=1), has_seen_streams=False)


def test_spark_that_is_gone_for_good_ends_a_mirror_that_has_worked() -> None:
    spark = Spark(failures=2, error=SparkGone)
    with pytest.raises(SparkGone):
        run(spark, has_seen_streams=True)
    assert spark.asked == 1
