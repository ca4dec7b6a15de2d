"""Group instance ids: the same after a restart, different for two processes side by side."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

from mirrormaker.errors import MirrorError

_SLOTS = 1000  # processes of one group on one machine


class InstanceIds:
    """Hands out `hostname-slot`, where a lock file holds the slot for as long as the process lives."""

    def __init__(self) -> None:
        self._locks: list[IO[str]] = []

    def allocate(self, group: str) -> str:
        """Lock the first free slot of a group."""
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"mirrormaker-{os.getuid()}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in group)[:100]
        for slot in range(_SLOTS):
            lock = (runtime / f"{safe}.{slot}.lock").open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._locks.append(lock)
            return f"{socket.gethostname()}-{slot}"
        raise MirrorError(f"{_SLOTS} processes of group {group} run on this machine already")

    def release(self) -> None:
        """Free all slots."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()
