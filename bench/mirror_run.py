"""One mirror from its start to its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import java_mirrors
from tests.support.process_measurements import ProcessTree

from bench import BUILD, ROOT
from bench.tools import Tool

_SETTLE = 1.0  # seconds between two mirrors, for brokers to close connections and delete files


@dataclass
class MirrorRun:
    """The process of a mirror, and notes on everything unusual."""

    tool: str
    process: subprocess.Popen[bytes]
    tree: ProcessTree
    started: float
    log: Path
    notes: list[str] = field(default_factory=list)

    def is_alive(self) -> bool:
        """Return True if the mirror has not ended."""
        return self.process.poll() is None

    def failed(self, problem: str) -> None:
        """Note a failure, and keep the mirror's output."""
        BUILD.mkdir(exist_ok=True)
        copy = BUILD / f"bench-{self.tool}.log"
        shutil.copy(self.log, copy)
        self.notes.append(f"{problem}; its output is in {copy.relative_to(ROOT)}")


@contextlib.contextmanager
def running(tool: Tool, job: java_mirrors.Job) -> Iterator[MirrorRun]:
    """Start a mirror, and stop it with all its processes in the end."""
    log = job.directory / f"{job.name}.log"
    with open(log, "wb") as output:
        started = time.monotonic()
        process = tool.start(job, output)
    mirror = MirrorRun(tool.name, process, ProcessTree(process.pid), started, log)
    try:
        yield mirror
    finally:
        mirror.tree.update()
        if not mirror.is_alive():
            mirror.notes.append(f"the mirror ended by itself with exit code {process.returncode}")
        java_mirrors.stop(process)
        time.sleep(_SETTLE)
        survivors = mirror.tree.survivors()
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if survivors:
            mirror.notes.append(f"{len(survivors)} processes of the mirror still ran {_SETTLE:g} s after its end")
