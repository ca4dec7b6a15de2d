"""Freed memory is used again, and given back when a stream is quiet. In a process of its own: the settings are a process's."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource
import sys

import numpy as np

from mirrormaker.worker.counters import memory_bytes
from mirrormaker.worker.memory import FreedMemory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        blocks = [np.full(1 << 20, 1, np.uint8) for _ in range(16)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    memory = FreedMemory(32 << 20)
    faults()
    print(faults())
    full = memory_bytes()
    given = [memory.tick(16 << 20, 0.0), memory.tick(0, 5.0), memory.tick(0, 10.1), memory.tick(0, 60.0)]
    print(given, full - memory_bytes() > 8 << 20)
else:
    faults()
    print(faults())
"""


def _run(what: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, what], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_the_kernel_need_not_fill_the_same_memory_with_zeros_again() -> None:
    assert int(_run("keep")[0]) * 10 < int(_run("leave")[0])


def test_a_quiet_stream_gives_its_memory_back_once() -> None:
    assert _run("keep")[1] == "[False, False, True, False] True"
