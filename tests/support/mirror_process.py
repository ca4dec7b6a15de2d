"""`mirrormaker run` as a process of its own, the way users run it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from mirrormaker.embedded import child_processes
from mirrormaker.embedded.process_tree import command, parents


def wait_until_gone(processes: dict[int, str], within: float = 5) -> None:
    """A process id may come back as another process: only the same command line counts."""
    deadline = time.monotonic() + within
    while left := [text for pid, text in processes.items() if text and command(pid) == text]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)


class MirrorProcess:
    """Started on entry; whatever is left of it is killed on exit."""

    def __init__(
        self, directory: Path, source: str, target: str, *options: str, group: str = "mirror", consumer: str = "",
        producer: str = "",
    ) -> None:  # fmt: skip
        self.directory = directory
        self.source_file, self.target_file = directory / "source.properties", directory / "target.properties"
        self.source_file.write_text(f"bootstrap.servers={source}\ngroup.id={group}\n{consumer}")
        self.target_file.write_text(f"bootstrap.servers={target}\n{producer}")
        self.options = options
        self.output = directory / "mirror.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> MirrorProcess:
        command = [sys.executable, "-m", "mirrormaker.cli", "run"]
        command += ["--consumer.config", str(self.source_file), "--producer.config", str(self.target_file)]
        command += ["--log.file", str(self.directory / "spark.log"), *self.options]
        environment = {**os.environ, "COLUMNS": "200"}
        with self.output.open("ab") as log:
            self.process = child_processes.spawn(command, stdout=log, stderr=log, env=environment)
        return self

    @property
    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, words: str, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while words not in self.text:
            if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                raise AssertionError(f"{words!r} did not come:\n{self.text}")
            time.sleep(0.05)

    def wait_until(self, holds: Callable[[], bool], timeout: float = 60) -> None:
        """Until something is so; what cannot be asked for now is asked again."""
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(Exception):
                if holds():
                    return
            if time.monotonic() > deadline or (self.process is not None and self.process.poll() is not None):
                raise AssertionError(f"it did not come to that:\n{self.text}")
            time.sleep(0.1)

    def wait(self, timeout: float = 120) -> int:
        """Its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.text}") from None

    def stop(self, which: signal.Signals = signal.SIGTERM, timeout: float = 20) -> int:
        assert self.process is not None
        self.process.send_signal(which)
        return self.wait(timeout)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def descendants(self) -> dict[int, str]:
        """Every process that it has started, directly or not: pid and command line."""
        assert self.process is not None
        family, found = parents(), {self.process.pid}
        while new := {pid for pid, parent in family.items() if parent in found} - found:
            found |= new
        return {pid: command(pid) for pid in found - {self.process.pid}}

    def __enter__(self) -> MirrorProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
