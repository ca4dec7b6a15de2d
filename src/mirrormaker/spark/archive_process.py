"""The class data archive for those who have none: built beside a mirror that has started without it.

A mirror from a wheel has no `make` that builds the archive. So the first one that runs for a minute has it built in a process of
its own, with the lowest priority, and only where there is plenty of memory. The next mirror starts seconds earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from mirrormaker.events import event
from mirrormaker.events.process_events import PreparingArchive
from mirrormaker.spark import class_archive
from mirrormaker.spark.existing_session import ExistingSession
from mirrormaker.spark.session import Engine

_AFTER = 60.0  # seconds of mirroring: a mirror that only copies a few records does not need it
_NEEDED = 2 << 30  # bytes of memory that must be free: building takes about 400 MB for half a minute
_NICEST = 19
_ENDS_WITHIN = 5.0  # seconds for the builder to end its JVM and itself
# Where Linux says how much memory a container may use, and uses: control groups of version 2.
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


async def build_archive_later(engine: Engine | ExistingSession, report: event.Report) -> None:
    """Build the archive once the mirror has run for a minute, if there is none; end the building if this is cancelled."""
    if not isinstance(engine, Engine) or not engine.is_local or engine.is_submitted:
        return
    await asyncio.sleep(_AFTER)
    archive = class_archive.path()
    if archive.exists() or free_memory() < _NEEDED or not _can_write(archive.parent):
        return
    report(PreparingArchive(str(archive)))
    builder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mirrormaker.spark.archive_builder", str(archive)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl+C must end the mirror in good order first
    )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, builder.pid, _NICEST)
    try:
        await builder.wait()
    finally:
        if builder.returncode is None:
            builder.terminate()  # it ends its JVM
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_WITHIN):
                    await builder.wait()


def free_memory() -> int:
    """Return the bytes of memory that may be used, by this machine and by this container; 0 if they are not known."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        with contextlib.suppress(FileNotFoundError):
            limit = _LIMIT.read_text().strip()
            if limit != "max":
                free = min(free, int(limit) - int(_USED.read_text()))
        return free
    except (OSError, ValueError, StopIteration):
        return 0


def _can_write(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    return os.access(directory, os.W_OK)
