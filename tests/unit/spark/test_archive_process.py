"""The archive of Spark's classes that a mirror without one has built in the background."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from mirrormaker.events.event import Event
from mirrormaker.spark import archive_process, class_archive
from mirrormaker.spark.session import Engine
from tests.support.waiting import wait_until


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive belongs; there is none yet, and it is wanted at once."""
    path = tmp_path / "cache" / "spark.jsa"
    monkeypatch.setattr(class_archive, "path", lambda: path)
    monkeypatch.setattr(archive_process, "_AFTER", 0.0)
    return path


def engine(tmp_path: Path, master: str | None = None) -> Engine:
    return Engine(master, [], 1, tmp_path, tmp_path / "log")


def commands(part: str) -> list[bytes]:
    """Return the command lines of all processes that have these words."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes())
    return [line for line in found if part.encode() in line]


def reported(engine: Engine) -> list[Event]:
    """Return what is reported until the building is over."""
    events: list[Event] = []
    asyncio.run(archive_process.build_archive_later(engine, events.append))
    return events


def test_an_archive_is_not_built_twice(archive: Path, tmp_path: Path) -> None:
    archive.parent.mkdir()
    archive.touch()
    assert not reported(engine(tmp_path))


def test_an_archive_is_not_built_where_memory_is_scarce(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "max").write_text(str(1 << 30))
    (tmp_path / "current").write_text(str(900 << 20))
    monkeypatch.setattr(archive_process, "_LIMIT", tmp_path / "max")
    monkeypatch.setattr(archive_process, "_USED", tmp_path / "current")
    assert archive_process.free_memory() <= 124 << 20
    assert not reported(engine(tmp_path))


def test_an_archive_is_not_built_for_a_cluster(archive: Path, tmp_path: Path) -> None:
    assert not reported(engine(tmp_path, "spark://127.0.0.1:1"))


def test_a_mirror_that_ends_ends_the_building_too(archive: Path, tmp_path: Path) -> None:
    events: list[Event] = []

    async def scene() -> None:
        building = asyncio.create_task(archive_process.build_archive_later(engine(tmp_path), events.append))
        await asyncio.to_thread(
            wait_until, "the JVM runs", lambda: commands(f"ArchiveClassesAtExit={archive.parent}"), 30
        )
        building.cancel()
        await asyncio.wait([building])

    asyncio.run(scene())
    assert [str(archive) in str(event) for event in events] == [True]
    wait_until("nothing of it is left", lambda: not commands(str(archive)), 10)
    assert [path.name for path in archive.parent.iterdir()] == ["spark.lock"]
