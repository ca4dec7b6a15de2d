"""Figures of a mirror whose streams do not run: nothing is caught up, and lag is what the source says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrormaker.embedded import Cluster
from tests.support.comparing import wait_until_equal
from tests.support.mirror_process import MirrorProcess
from tests.support.writing import many, write

PARTITIONS = 4


def get(mirror: MirrorProcess, path: str) -> tuple[int, str]:
    """Return the status and the body of a page."""
    found = re.search(r"http://127\.0\.0\.1:\d+/", mirror.text)
    assert found, mirror.text
    try:
        with urllib.request.urlopen(found[0] + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def overview(mirror: MirrorProcess) -> Any:
    return json.loads(get(mirror, "api/status")[1])


def lag_is(mirror: MirrorProcess, records: int, streams: int) -> Callable[[], bool]:
    """Return a condition: the API shows this lag, of all partitions, and so many streams at work."""

    def shown() -> bool:
        found = overview(mirror)
        figures = found["lag"], found["lag_unknown"], found["streams_at_work"], sum(found["partitions"].values())
        return bool(figures == (records, 0, streams, PARTITIONS))

    return shown


@contextlib.contextmanager
def without_streams(mirror: MirrorProcess) -> Iterator[None]:
    """Freeze Spark and kill the streams: nobody starts them again until the block ends."""
    jvm = mirror.jvm()
    os.kill(jvm, signal.SIGSTOP)
    try:
        for worker in mirror.python_workers():
            os.kill(worker, signal.SIGKILL)
        yield
    finally:
        os.kill(jvm, signal.SIGCONT)


def new_records(source: Cluster, topic: str, first: int, count: int) -> None:
    """Write so many records to each partition."""
    write(source, topic, {partition: [many(count, first)] for partition in range(PARTITIONS)})


def test_a_mirror_that_has_lost_its_streams_is_not_caught_up(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path
) -> None:
    source.create_topic(topic_name, partitions=PARTITIONS)
    new_records(source, topic_name, 0, 50)
    options = (
        "--whitelist", topic_name, "--num.streams", "2", "--progress.interval.ms", "500",
        "--status.address", "127.0.0.1:0",
    )  # fmt: skip
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_for("200 records in total, lag 0, caught up")
        assert get(mirror, "readyz") == (200, "ok\n")
        with without_streams(mirror):
            mirror.wait_until(lag_is(mirror, 0, 0), 30)
            new_records(source, topic_name, 50, 100)
            mirror.wait_until(lag_is(mirror, 400, 0), 30)
            before = len(mirror.text)
            mirror.wait_until(lambda: "lag 400, no stream is at work, 4 of 4 partitions wait" in mirror.text, 20)
            assert "caught up" not in mirror.text[before:], mirror.text
            found = overview(mirror)
            assert (found["standing"], found["ready"]) == ("no stream is at work", False)
            assert get(mirror, "readyz") == (503, "not ready: no stream is at work\n")
            lags = re.findall(r"^mirrormaker_lag_records\{.*\} (.*)$", get(mirror, "metrics")[1], re.MULTILINE)
            assert list(map(float, lags)) == [100.0] * PARTITIONS
        wait_until_equal(source, target, topic_name, PARTITIONS, mirror)
        mirror.wait_until(lambda: overview(mirror)["standing"] == "caught up", 30)
        assert mirror.stop() == 0, mirror.text
    assert "mirrored 600 records" in mirror.text.splitlines()[-1]
    assert mirror.text.rstrip().endswith("; lag 0")


@pytest.mark.parametrize("option", [(), ("--exit.when.caught.up",)])
def test_a_mirror_whose_streams_never_start_says_what_is_missing(
    source: Cluster, target: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    option: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/false")
    source.create_topic(topic_name, partitions=PARTITIONS)
    new_records(source, topic_name, 0, 100)
    options = ("--whitelist", topic_name, "--status.address", "127.0.0.1:0", *option)
    with MirrorProcess(tmp_path, source.bootstrap, target.bootstrap, *options, group=topic_name) as mirror:
        mirror.wait_until(lag_is(mirror, 400, 0), 60)
        assert overview(mirror)["standing"] == "no stream is at work"
        mirror.wait_for("waiting for Spark to start the streams (5 s)")
        code = mirror.stop(timeout=40)
    assert "mirrored 0 records, 0.0 MB in " in mirror.text
    assert "; lag 400, missing in 4 partitions\n" in mirror.text
    assert code == (1 if option else 0), mirror.text
    if option:
        last = mirror.text.splitlines()[-1]
        assert last == f"mirrormaker: stopped before the mirror had caught up with {source.bootstrap}"
