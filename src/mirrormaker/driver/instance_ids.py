"""Group instance ids: the same after a restart, different for two processes side by side."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

from mirrormaker.cache import cache_directory
from mirrormaker.errors import MirrorError
from mirrormaker.events import event
from mirrormaker.events.process_events import LockDirectoryRefused

_SLOTS = 1000  # processes of one group on one machine


class InstanceIds:
    """Hands out `hostname-slot`, where a lock file holds the slot for as long as the process lives."""

    def __init__(self, report: event.Report = lambda _: None) -> None:
        self._report = report
        self._locks: list[IO[str]] = []

    def allocate(self, group: str) -> str:
        """Lock the first free slot of a group."""
        directory = self._directory()
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in group)[:100]
        for slot in range(_SLOTS):
            lock = (directory / f"{safe}.{slot}.lock").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._locks.append(lock)
            return f"{socket.gethostname()}-{slot}"
        raise MirrorError(f"{_SLOTS} processes of group {group} run on this machine already")

    def _directory(self) -> Path:
        """Return the directory of the lock files: in the temporary directory, else in the user's cache directory.

        Everybody may write to the temporary directory. Whoever owns the lock files decides about our ids.
        """
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"mirrormaker-{os.getuid()}"
        if _make_private(runtime):
            return runtime
        other = cache_directory() / "locks"
        if _make_private(other):
            self._report(LockDirectoryRefused(str(runtime), str(other)))
            return other
        raise MirrorError(
            f"neither {runtime} nor {other} can hold lock files: both must be directories of this user;"
            " remove one of them, or set group.instance.id"
        )

    def release(self) -> None:
        """Free all slots."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()


def _make_private(directory: Path) -> bool:
    """Return True if this is a directory of our own, which nobody else may enter; make it so if that is possible."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A link may lead to a directory of our own that others know of.
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(handle)
        if found.st_uid != os.getuid():
            return False
        if found.st_mode & 0o077:
            os.fchmod(handle, 0o700)
        return True
    finally:
        os.close(handle)
