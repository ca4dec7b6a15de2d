"""The processes that a mirror is made of: the driver, Spark's JVM, the daemon, and its forks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess

from tests.support.mirror_process import MirrorProcess

from mirrormaker.embedded.process_tree import command, parents


def workers(mirror: MirrorProcess) -> list[int]:
    """The streams' Python workers: forks of the daemon that Spark's JVM starts."""
    family = mirror.descendants()
    parent = parents()
    return [pid for pid, text in family.items() if "daemon" in text and "daemon" in family.get(parent.get(pid, 0), "")]


def jvm(mirror: MirrorProcess) -> int:
    """Spark's JVM."""
    return next(pid for pid, text in mirror.descendants().items() if re.match(r"\S*java\s", text))


def freeze(mirror: MirrorProcess, seconds: float) -> None:
    """Stop the process and all that it has started; somebody else wakes them, even if we are killed meanwhile."""
    assert mirror.process is not None
    pids = " ".join(map(str, [mirror.process.pid, *mirror.descendants()]))
    script = f"kill -STOP {pids}; sleep {seconds}; kill -CONT {pids}"
    subprocess.run(["/bin/sh", "-c", script], check=False, start_new_session=True)


def send(family: dict[int, str], number: signal.Signals) -> None:
    """Signal those that are still the same processes."""
    for pid, text in family.items():
        if text and command(pid) == text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
