"""`mirrormaker run` as a process of its own, the way users run it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mirrormaker.embedded import Cluster, child_processes
from mirrormaker.embedded.process_tree import command, parents


def still_running(processes: Mapping[int, str]) -> list[int]:
    """Return the ids whose command lines are still the same: the system uses ids again for other processes."""
    return [pid for pid, text in processes.items() if text and command(pid) == text]


def wait_until_gone(processes: Mapping[int, str], within: float = 5) -> None:
    """Wait until all these processes have ended: process id -> command line."""
    deadline = time.monotonic() + within
    while left := still_running(processes):
        assert time.monotonic() < deadline, f"processes are left: {[processes[pid] for pid in left]}"
        time.sleep(0.1)


def send_signal(processes: Mapping[int, str], number: signal.Signals) -> None:
    """Send a signal to those of these processes that still run."""
    for pid in still_running(processes):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class MirrorProcess:
    """A mirror. It is started on entry, and killed on exit if it still runs."""

    def __init__(
        self, directory: Path, source: str, target: str, *options: str, group: str = "mirror", consumer: str = "",
        producer: str = "",
    ) -> None:  # fmt: skip
        """`consumer` and `producer` are further lines of the two property files."""
        self.directory = directory
        self.source_file, self.target_file = directory / "source.properties", directory / "target.properties"
        self.source_file.write_text(f"bootstrap.servers={source}\ngroup.id={group}\n{consumer}")
        self.target_file.write_text(f"bootstrap.servers={target}\n{producer}")
        self.options = options
        self.output = directory / "mirror.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> MirrorProcess:
        """Start the process, without waiting for anything."""
        command = [sys.executable, "-m", "mirrormaker.cli", "run"]
        command += ["--consumer.config", str(self.source_file), "--producer.config", str(self.target_file)]
        command += ["--log.file", str(self.directory / "spark.log"), *self.options]
        environment = {**os.environ, "COLUMNS": "200"}
        with self.output.open("ab") as log:
            self.process = child_processes.spawn(command, stdout=log, stderr=log, env=environment)
        return self

    @property
    def text(self) -> str:
        """Everything that the mirror has printed."""
        return self.output.read_text()

    @property
    def has_ended(self) -> bool:
        """True if the process was started and has ended."""
        return self.process is not None and self.process.poll() is not None

    def wait_for(self, words: str, timeout: float = 60) -> None:
        """Wait until the mirror has printed these words."""
        deadline = time.monotonic() + timeout
        while words not in self.text:
            if time.monotonic() > deadline or self.has_ended:
                raise AssertionError(f"the mirror has not printed {words!r}:\n{self.text}")
            time.sleep(0.05)

    def wait_until(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        """Wait until the condition holds. A condition that raises does not hold yet."""
        deadline = time.monotonic() + timeout
        while True:
            with contextlib.suppress(Exception):
                if condition():
                    return
            if time.monotonic() > deadline or self.has_ended:
                end = f", and the mirror has ended with {self.wait()}" if self.has_ended else ""
                raise AssertionError(f"the condition does not hold{end}:\n{self.text}")
            time.sleep(0.1)

    def wait(self, timeout: float = 120) -> int:
        """Wait for the end and return the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the mirror still runs after {timeout} s:\n{self.text}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout: float = 20) -> int:
        """Ask the mirror to stop and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait(timeout)

    def kill(self) -> None:
        """Kill the mirror, but not the processes that it has started."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def freeze(self, seconds: float) -> None:
        """Freeze the mirror and all its descendants, and return when they run again."""
        assert self.process is not None
        pids = " ".join(map(str, [self.process.pid, *self.descendants()]))
        # A shell in a session of its own continues them even if this process is killed meanwhile.
        script = f"kill -STOP {pids}; sleep {seconds}; kill -CONT {pids}"
        subprocess.run(["/bin/sh", "-c", script], check=False, start_new_session=True)

    def descendants(self) -> dict[int, str]:
        """Return every process that the mirror has started, directly or not: process id -> command line."""
        assert self.process is not None
        parent_of, family = parents(), {self.process.pid}
        while new := {pid for pid, parent in parent_of.items() if parent in family} - family:
            family |= new
        return {pid: command(pid) for pid in family - {self.process.pid}}

    def python_workers(self) -> list[int]:
        """Return the streams' Python workers: forks of the daemon that Spark's JVM starts."""
        family, parent_of = self.descendants(), parents()
        daemons = {pid for pid, text in family.items() if "mirrormaker.worker.daemon" in text}
        return sorted(pid for pid in daemons if parent_of.get(pid) in daemons)

    def jvm(self) -> int:
        """Return Spark's JVM."""
        return self._jvms()[0]

    def has_jvm(self) -> bool:
        """Return True while Spark's JVM runs."""
        return bool(self._jvms())

    def _jvms(self) -> list[int]:
        return [pid for pid, text in self.descendants().items() if re.match(r"\S*java\s", text)]

    def __enter__(self) -> MirrorProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and not self.has_ended:
            self.kill()


def run_once(
    directory: Path, source: Cluster, target: Cluster, *options: str, group: str, consumer: str = "", producer: str = ""
) -> MirrorProcess:
    """Run a mirror until it has caught up, and return the ended process."""
    options = (*options, "--exit.when.caught.up")
    mirror = MirrorProcess(
        directory, source.bootstrap, target.bootstrap, *options, group=group, consumer=consumer, producer=producer
    )
    with mirror:
        mirror.wait()
    return mirror
