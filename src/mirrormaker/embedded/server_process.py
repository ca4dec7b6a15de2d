"""A server process that logs to a file and can be stopped, killed, paused and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mirrormaker.embedded import child_processes
from mirrormaker.errors import EmbeddedError

_TAIL = 30  # lines of the log in an error message: enough for a Java stack trace with its cause

# Seconds for an orderly stop. One or two are usual; a broker that cannot hand over its partitions tries for 15.
_STOP = 20.0


class Server:
    """One server of a cluster: its command line, its log, and its process while it runs."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = directory / f"{name.replace(' ', '-')}.log"
        # Used by the next start.
        self.command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.paused = False

    @property
    def pid(self) -> int | None:
        """The process id, or None if the server does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self) -> None:
        """Start the process, without waiting for the server to answer."""
        if self.pid is not None:
            return
        self.paused = False
        with open(self.log, "ab") as log:
            self._log_start = log.tell()
            self._process = child_processes.spawn(
                self.command, stdout=log, stderr=log, cwd=self.log.parent, env=self._environment
            )

    def wait_until(self, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until the server is ready. If it ends or takes too long, the error shows the end of its log."""
        deadline = time.monotonic() + timeout
        while not ready():
            if self.pid is None:
                self._ended_at_start()
            elif time.monotonic() > deadline:
                raise EmbeddedError(
                    f"{self.name} was not ready within {timeout:g} s; its log ends with:\n{self.tail()}"
                )
            time.sleep(0.05)

    def ask_to_stop(self) -> None:
        """Send SIGTERM without waiting for the end."""
        if self._process is not None:
            child_processes.send(self._process, signal.SIGTERM)

    def stop(self) -> None:
        """Stop the server in an orderly way and wait for its end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server at once."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the process: its connections stay open, but it answers nothing."""
        self._signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Continue a paused process."""
        self._signal(signal.SIGCONT)
        self.paused = False

    def tail(self) -> str:
        """Return the last lines that the server has logged since its last start."""
        return "\n".join(self.logged().splitlines()[-_TAIL:])

    def logged(self) -> str:
        """Return everything that the server has logged since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _ended_at_start(self) -> None:
        code = self._process.returncode if self._process is not None else None
        raise EmbeddedError(f"{self.name} ended while it started (exit code {code}); its log ends with:\n{self.tail()}")

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            raise EmbeddedError(f"{self.name} does not run")
        os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            child_processes.end(self._process, number, _STOP)
            self._process = None
        self.paused = False
