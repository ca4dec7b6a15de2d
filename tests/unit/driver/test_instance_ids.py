"""Group instance ids: one slot for each process, held by lock files that nobody else can touch."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mirrormaker.driver.instance_ids import InstanceIds
from mirrormaker.errors import MirrorError
from mirrormaker.events.event import Event
from mirrormaker.events.process_events import LockDirectoryRefused

HOST = socket.gethostname()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the lock files, which does not exist yet."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / f"mirrormaker-{os.getuid()}"


@pytest.mark.usefixtures("runtime")
def test_processes_side_by_side_have_different_ids_and_a_restart_gets_the_old_one() -> None:
    one, two = InstanceIds(), InstanceIds()
    assert [one.allocate("g"), two.allocate("g"), two.allocate("other")] == [f"{HOST}-0", f"{HOST}-1", f"{HOST}-0"]
    one.release()
    assert one.allocate("g") == f"{HOST}-0"
    one.release()
    two.release()


@pytest.mark.parametrize("was_open", [False, True])
def test_only_this_user_may_enter_the_directory(runtime: Path, was_open: bool) -> None:
    if was_open:
        runtime.mkdir()
        runtime.chmod(0o777)
    ids = InstanceIds()
    ids.allocate("g")
    assert runtime.stat().st_mode & 0o777 == 0o700
    ids.release()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_directory_that_somebody_else_made_is_not_used_and_a_line_says_so(
    runtime: Path, tmp_path: Path, kind: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "link":
        runtime.symlink_to(elsewhere)
    else:
        runtime.write_text("")
    reported: list[Event] = []
    one, two = InstanceIds(reported.append), InstanceIds(reported.append)
    assert [one.allocate("g"), two.allocate("g")] == [f"{HOST}-0", f"{HOST}-1"]
    locks = tmp_path / "cache" / "mirrormaker" / "locks"
    assert reported == [LockDirectoryRefused(str(runtime), str(locks))] * 2
    assert not list(elsewhere.iterdir())
    assert locks.stat().st_mode & 0o777 == 0o700
    one.release()
    two.release()


@pytest.mark.usefixtures("runtime")
def test_without_a_directory_of_our_own_there_is_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(MirrorError, match=r"must be directories of this user; .* or set group\.instance\.id"):
        InstanceIds().allocate("g")
