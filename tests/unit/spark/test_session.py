"""Mirroring in a Spark session that someone else has started, without a JVM."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from mirrormaker.errors import SparkError, SparkGone
from mirrormaker.spark import jvm, shipping
from mirrormaker.spark.existing_session import ExistingSession
from mirrormaker.spark.masters import await_slots
from mirrormaker.spark.session import Engine


class JavaContext:
    """The SparkContext in the JVM."""

    def __init__(self) -> None:
        self.stopped = self.dead = False

    def sc(self) -> JavaContext:
        if self.dead:
            raise Py4JNetworkError("nobody answers")
        return self

    def isStopped(self) -> bool:
        return self.stopped


class Context:
    """As much of a SparkContext as is used."""

    def __init__(self, master: str) -> None:
        self.master = master
        self._jsc: JavaContext | None = JavaContext()
        self._jvm = object()
        self._python_includes = ["the-owners.zip"]
        self.archives: list[str] = []
        self.cancelled: list[str] = []

    def getConf(self) -> Context:
        return self

    def getAll(self) -> list[tuple[str, str]]:
        return [("spark.driver.host", "10.0.0.1")]

    def addArchive(self, path: str) -> None:
        self.archives.append(path)

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)


class Session:
    """As much of a SparkSession as is used."""

    def __init__(self, context: Context) -> None:
        self.sparkContext = context
        self._jsparkSession = object()
        self.was_stopped = False

    def stop(self) -> None:
        self.was_stopped = True


def session(master: str = "local[4]") -> Any:
    return Session(Context(master))


def test_jobs_run_in_the_owners_context_under_a_tag_of_their_own() -> None:
    owner = session()
    first, second = ExistingSession(owner), ExistingSession(owner)
    assert first.start_context() is second.start_context() is owner.sparkContext
    assert first.tag != second.tag, "one mirror must not cancel the jobs of another"


def test_the_end_cancels_our_jobs_and_stops_nothing() -> None:
    owner = session()
    spark: Any = ExistingSession(owner)
    spark.start_context()
    spark.end()
    assert owner.sparkContext.cancelled == [spark.tag]
    assert not owner.was_stopped
    assert spark.is_alive


def test_a_session_that_was_stopped_or_has_died_is_not_used() -> None:
    owner = session()
    spark = ExistingSession(owner)
    assert spark.start_jvm() is owner.sparkContext._jvm
    owner.sparkContext._jsc.dead = True
    assert not spark.is_alive
    owner.sparkContext._jsc.dead, owner.sparkContext._jsc.stopped = False, True
    assert not spark.is_alive
    owner.sparkContext._jsc = None
    with pytest.raises(SparkGone, match="was stopped"):
        spark.start_context()
    spark.end()


def test_no_jvm_starts_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that cannot be reached ends the mirror while another thread is about to start the JVM."""
    launched: list[object] = []
    monkeypatch.setattr(jvm, "launch", lambda *_: launched.append(1))
    engine = Engine(None, [], 1, tmp_path, tmp_path / "spark.log", [])
    engine.end()
    with pytest.raises(SparkGone, match="before Spark has started"):
        engine.start_jvm()
    assert not launched


def test_a_jvm_that_is_on_its_way_up_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[SimpleNamespace] = []

    def launch(*_: object) -> SimpleNamespace:
        launched.append(SimpleNamespace(poll=lambda: None))
        return launched[-1]

    monkeypatch.setattr(jvm, "launch", launch)
    monkeypatch.setattr(jvm, "connect", lambda *_: SimpleNamespace(jvm="the JVM"))
    engine = Engine(None, [], 1, tmp_path, tmp_path / "spark.log", [])
    engine.launch_jvm()
    assert engine.start_jvm() == "the JVM"
    assert len(launched) == 1
    launched[0].poll = lambda: 1
    engine.start_jvm()
    assert len(launched) == 2, "one that has died is replaced"


def test_a_spark_connect_session_is_refused() -> None:
    class Remote:
        @property
        def sparkContext(self) -> Any:
            raise AttributeError

    remote: Any = Remote()
    with pytest.raises(SparkError, match="Spark Connect"):
        ExistingSession(remote)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mirrormaker"


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        return opened.getnames()


def test_a_cluster_gets_our_code_once_and_keeps_its_own_arrow(cache: Path) -> None:
    owner = session("spark://10.0.0.1:7077")
    spark = ExistingSession(owner)
    assert not spark.is_local
    assert spark.given["spark.driver.host"] == "10.0.0.1"
    spark.start_context()
    spark.start_context()
    assert [path.partition("#")[2] for path in owner.sparkContext.archives] == [shipping.CODE, shipping.LIBRARIES]
    assert owner.sparkContext._python_includes == ["the-owners.zip", shipping.CODE, shipping.LIBRARIES]
    code, libraries = (Path(path.partition("#")[0]) for path in owner.sparkContext.archives)
    assert (code.parent, libraries.parent) == (cache, cache), "executors that start later must find them too"
    assert {"mirrormaker/worker/stream.py", "mirrormaker/status/page.html"} <= set(names_in(code))
    packages = {name.partition("/")[0] for name in names_in(libraries)}
    assert {"kafka", "crc32c"} <= packages
    assert packages.isdisjoint({"pyarrow", "numpy"})


def test_a_local_session_needs_no_code() -> None:
    owner = session()
    ExistingSession(owner).start_context()
    assert not owner.sparkContext.archives


class Backend:
    """A SparkContext whose executors offer their slots one after the other, the later the higher their number."""

    def __init__(self, executors: int) -> None:
        self._jsc, self.executors = self, executors
        self.asked: Counter[int] = Counter()

    def sc(self) -> Backend:
        return self

    def schedulerBackend(self) -> Backend:
        return self

    def getExecutorIds(self) -> Backend:
        return self

    def size(self) -> int:
        return self.executors

    def apply(self, number: int) -> int:
        return number

    def getExecutorAvailableCpus(self, number: int) -> Any:
        self.asked[number] += 1
        cores = "2.000000000" if self.asked[number] > number else "0E-9"
        return SimpleNamespace(toString=lambda: f"Some({cores})")


def test_streams_start_when_every_executor_offers_its_slots() -> None:
    backend = Backend(executors=3)
    await_slots(backend)
    assert backend.asked == {0: 1, 1: 2, 2: 3}
