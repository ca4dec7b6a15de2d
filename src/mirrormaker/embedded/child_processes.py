"""Child processes and temporary directories that end with this process, even if it is killed.

A small process of its own, the reaper, learns of each of them through a pipe and clears up when the pipe closes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mirrormaker.embedded import reaper

_lock = threading.Lock()
_reaper: subprocess.Popen[bytes] | None = None

# The command waits until the reaper knows its process id. If this process dies in between, the pipe closes, `read`
# fails and the command is not started. The pipe is named by /dev/fd because dash accepts only one digit after <&.
_WAIT_FOR_GO = ["/bin/sh", "-c", 'read go <"/dev/fd/$0" && exec "$@"']

Stream = int | IO[Any] | None


def spawn(
    command: Sequence[str],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own. It is killed when this process ends."""
    gate, go = os.pipe()  # the command reads from `gate` before it starts
    try:
        process = subprocess.Popen(
            [*_WAIT_FOR_GO, str(gate), *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=(gate,),
        )
        _notify({"process": [process.pid, reaper.start_time(process.pid)]})
        os.write(go, b"go\n")
    finally:
        os.close(gate)
        os.close(go)
    return process


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and its children, if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes], number: signal.Signals, patience: float = 10) -> None:
    """Send a signal to a process, kill it if it has not ended after `patience` seconds, and reap it."""
    send(process, number)
    send(process, signal.SIGCONT)  # a stopped process handles no other signal but SIGKILL
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        send(process, signal.SIGKILL)
        process.wait()
    _notify({"process": [process.pid, ""], "forget": True})


def new_directory(name: str) -> Path:
    """Make a temporary directory. It is removed when this process ends."""
    directory = tempfile.mkdtemp(prefix=f"mirrormaker-{name}-")
    _notify({"directory": directory})
    return Path(directory)


def remove_directory(directory: Path) -> None:
    """Remove a directory made by `new_directory`."""
    shutil.rmtree(directory, ignore_errors=True)
    _notify({"directory": str(directory), "forget": True})


def _notify(note: dict[str, object]) -> None:
    """Send one line to the reaper; start it first if it does not run yet."""
    global _reaper
    with _lock:
        if _reaper is None:
            _reaper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,  # each line is one write, and a fork inherits no half-written line
                start_new_session=True,
            )
        assert _reaper.stdin is not None
        _reaper.stdin.write(json.dumps(note).encode() + b"\n")


def _close_reaper() -> None:
    """Close the pipe, so that the reaper clears up the rest, and wait for its end."""
    if _reaper is not None:
        assert _reaper.stdin is not None
        _reaper.stdin.close()
        _reaper.wait()


def _forget_reaper() -> None:
    """Close a fork's end of the pipe: the reaper would otherwise wait for the fork too."""
    global _reaper, _lock
    _lock = threading.Lock()  # another thread may hold the old one
    if _reaper is not None:
        assert _reaper.stdin is not None
        _reaper.stdin.close()
        _reaper.returncode = 0  # the reaper is not a child of the fork, which cannot wait for it
    _reaper = None


# Exit handlers run in reverse order: this one runs after the handlers of the clusters, which register theirs later.
atexit.register(_close_reaper)
os.register_at_fork(after_in_child=_forget_reaper)
