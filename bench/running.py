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

from bench import BUILD, ROOT, tools
from bench.measure import Tree

_SETTLE = 1.0
"""Seconds between two mirrors, for brokers to close connections and delete files."""


@dataclass
class Running:
    """A mirror's process, and what was noticed about it."""

    tool: str
    process: subprocess.Popen[bytes]
    tree: Tree
    started: float
    log: Path
    notes: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def failed(self, how: str) -> None:
        """Note a failure, and keep what the mirror said about it."""
        BUILD.mkdir(exist_ok=True)
        kept = BUILD / f"bench-{self.tool}.log"
        shutil.copy(self.log, kept)
        self.notes.append(f"{how}; its output: {kept.relative_to(ROOT)}")


@contextlib.contextmanager
def running(tool: tools.Tool, job: tools.Job) -> Iterator[Running]:
    """Start a mirror and stop it again, with all that it started."""
    log = job.directory / f"{job.name}.log"
    with open(log, "wb") as output:
        started = time.monotonic()
        process = tool.start(job, output)
    mirror = Running(tool.name, process, Tree(process.pid), started, log)
    try:
        yield mirror
    finally:
        mirror.tree.find()
        if not mirror.alive:
            mirror.notes.append(f"ended by itself with exit code {process.returncode}")
        tools.stop(process)
        time.sleep(_SETTLE)
        left = mirror.tree.survivors()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if left:
            mirror.notes.append(f"left {len(left)} processes behind, {_SETTLE:g} s after its end")
