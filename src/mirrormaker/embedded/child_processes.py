"""Processes and directories that never outlive this one, not even if it is killed."""

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
_keeper: subprocess.Popen[bytes] | None = None

# Holds the process back until the keeper knows its id: an owner that dies in between closes the pipe, `read` fails
# and nothing is started. (By /dev/fd, since dash takes no more than one digit behind <&.)
_HELD_BACK = ["/bin/sh", "-c", 'read go <"/dev/fd/$0" && exec "$@"']

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
    """Start a process in a session of its own that is killed when this process is gone."""
    gate, go = os.pipe()
    try:
        process = subprocess.Popen(
            [*_HELD_BACK, str(gate), *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
            pass_fds=(gate,),
        )
        _tell({"process": [process.pid, reaper.start_time(process.pid)]})
        os.write(go, b"go\n")
    finally:
        os.close(gate)
        os.close(go)
    return process


def send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a process and its children, if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def end(process: subprocess.Popen[bytes], number: signal.Signals, patience: float = 10) -> None:
    """Signal a process, kill it if it is not gone in `patience` seconds, and reap it."""
    send(process, number)
    send(process, signal.SIGCONT)  # a paused process takes nothing but a kill
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        send(process, signal.SIGKILL)
        process.wait()
    _tell({"process": [process.pid, ""], "forget": True})


def new_directory(name: str) -> Path:
    """A temporary directory that goes when this process does."""
    directory = tempfile.mkdtemp(prefix=f"mirrormaker-{name}-")
    _tell({"directory": directory})
    return Path(directory)


def remove_directory(directory: Path) -> None:
    """Remove a directory made by `new_directory`."""
    shutil.rmtree(directory, ignore_errors=True)
    _tell({"directory": str(directory), "forget": True})


def _tell(note: dict[str, object]) -> None:
    global _keeper
    with _lock:
        if _keeper is None:
            _keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,  # a line is one write, and a fork has nothing half written to repeat
                start_new_session=True,
            )
        assert _keeper.stdin is not None
        _keeper.stdin.write(json.dumps(note).encode() + b"\n")


def _release() -> None:
    """Let the keeper clear up what is left, and see it off."""
    if _keeper is not None:
        assert _keeper.stdin is not None
        _keeper.stdin.close()
        _keeper.wait()


def _disown() -> None:
    """Let go of the keeper in a fork, or it would wait for the fork to end too."""
    global _keeper, _lock
    _lock = threading.Lock()  # another thread may have held it
    if _keeper is not None:
        assert _keeper.stdin is not None
        _keeper.stdin.close()
        _keeper.returncode = 0  # not this process's child: nothing to reap, nothing to warn about
    _keeper = None


# Before any cluster registers its own stop, and so called after it.
atexit.register(_release)
os.register_at_fork(after_in_child=_disown)
