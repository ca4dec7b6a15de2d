"""`mirrormaker verify` and `verify()` when nothing can be compared: no broker, wrong options, wrong arguments."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from mirrormaker.cli import call
from mirrormaker.errors import CannotTell, SettingError
from mirrormaker.verification.command import _progress_line, verify

# -- the command line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--consumer.config FILE is missing"),
        (["--nonsense"], "--nonsense: there is no such option"),
        (["--from", "yesterday"], "--from yesterday: this must be a time"),
        (["--from", "2000", "--to", "1000"], "--from must be before --to"),
        (["--blacklist", "a"], "contradict each other"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t"), "--whitelist", ".*"]
    assert call(["verify", *(files if options else []), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_cluster_that_cannot_be_reached_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    command = [sys.executable, "-m", "mirrormaker.cli", "verify", "--whitelist", ".*"]
    done = subprocess.run(
        [*command, "--consumer.config", "s", "--producer.config", "t"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("mirrormaker: the source cluster cannot be reached:")
    assert "s)" in line


@pytest.mark.parametrize(
    ("line", "words"), [("", "--whitelist REGEX is missing"), ("mirror.topics.whitelist=orders\n", "cannot be reached")]
)
def test_the_source_file_may_say_which_topics(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s").write_text(f"bootstrap.servers=127.0.0.1:1\ngroup.id=g\n{line}")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t")]
    assert call(["verify", *files]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--jaas.config=nowhere", "-Djava.security.auth.login.config=nowhere"])
def test_logins_are_found_as_by_the_mirror(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    login = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    (tmp_path / "s").write_text(f"bootstrap.servers=127.0.0.1:1\ngroup.id=g\n{login}")
    (tmp_path / "t").write_text("bootstrap.servers=127.0.0.1:1\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "t"), "--whitelist", ".*"]
    assert call(["verify", *files, option]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_what_nobody_has_foreseen_is_one_line_without_content_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the value of a record")

    monkeypatch.setattr("mirrormaker.cli.verify.source_settings", fail)
    (tmp_path / "s").write_text("group.id=g\n")
    files = ["--consumer.config", str(tmp_path / "s"), "--producer.config", str(tmp_path / "s"), "--whitelist", ".*"]
    assert call(["verify", *files]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "unexpected ValueError in test_command.py" in line and "record" not in line


# -- from Python

_SOURCE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
_TARGET = {"bootstrap.servers": "127.0.0.1:1"}


def test_settings_are_mappings_or_files(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("".join(f"{key}={value}\n" for key, value in _SOURCE.items()))
    for sources, name in (
        (_SOURCE, "source settings"),
        ([_SOURCE], "source settings"),
        (tmp_path / "s", tmp_path / "s"),
        ([str(tmp_path / "s")], tmp_path / "s"),
    ):
        with pytest.raises(CannotTell, match=f"the source cluster cannot be reached: .* in {name}"):
            verify(sources, _TARGET, whitelist="t")


def test_both_sides_can_be_compared_where_an_event_loop_runs() -> None:
    async def notebook() -> None:
        verify(_SOURCE, _TARGET, whitelist="t")

    with pytest.raises(CannotTell, match="cannot be reached"):
        asyncio.run(notebook())


@pytest.mark.parametrize(
    ("arguments", "source", "words"),
    [
        ({}, {}, "which topics to compare"),
        ({"whitelist": "a", "blacklist": "b"}, {}, "contradict each other"),
        ({"whitelist": "a", "since": 2, "until": 1}, {}, "no time between them"),
        ({"whitelist": "a"}, {"isolation.level": "some"}, "source settings, line 3"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], source: dict[str, str], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        verify({**_SOURCE, **source}, _TARGET, **arguments)


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        ({"topics": ["t"]}, {}),
        ({"topics": "t"}, {}),
        ({}, {"mirror.topics.whitelist": "t"}),
        ({}, {"mirror.topics.blacklist": "t"}),
    ],
)
def test_topics_or_the_filter_of_the_sources_say_what_to_compare(
    arguments: dict[str, Any], source: dict[str, str]
) -> None:
    with pytest.raises(CannotTell, match="cannot be reached"):
        verify({**_SOURCE, **source}, _TARGET, **arguments)


def test_a_session_that_exists_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    with pytest.raises(SettingError, match="pass it as spark="):
        verify(_SOURCE, _TARGET, whitelist="t")


# -- progress


class Tracker:
    """Spark's status tracker: jobs as (status, completed tasks, tasks)."""

    def __init__(self, *jobs: tuple[str, int, int]) -> None:
        self.jobs = jobs

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return list(range(len(self.jobs)))

    def getJobInfo(self, number: int) -> Any:
        return SimpleNamespace(status=self.jobs[number][0], stageIds=[number])

    def getStageInfo(self, number: int) -> Any:
        _, completed, tasks = self.jobs[number]
        return SimpleNamespace(numTasks=tasks, numCompletedTasks=completed)


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ([], ""),
        ([("SUCCEEDED", 8, 8)], ""),
        ([("RUNNING", 0, 8)], "reading both sides: 0 of 8 parts"),
        ([("RUNNING", 2, 8)], "reading both sides: 2 of 8 parts, 30 s left"),
        ([("SUCCEEDED", 8, 8), ("RUNNING", 1, 4)], "comparing record by record: 1 of 4 parts"),
    ],
)
def test_progress_is_that_of_the_running_job(jobs: list[tuple[str, int, int]], line: str) -> None:
    assert _progress_line(Tracker(*jobs), 10.0) == line
