"""Give damaged inputs to the code that uses them, in turn, and see that each one keeps the limits."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

from mirrormaker.errors import MirrorError
from mirrormaker.worker.interrupts import AwaitZombies, LookAgain, Released, Renumber, SplitBatch

CPU_SECONDS = 1.0
MEMORY_BYTES = 64 << 20  # beyond the size of the answer
# Everything that the program raises on purpose; the last ones make a partition leave the hot path. Of the errors of the operating
# system, only those of a connection: an answer that makes the program open a file, or run out of descriptors, is a finding.
ALLOWED = (MirrorError, ConnectionError, TimeoutError, AwaitZombies, LookAgain, Released, Renumber, SplitBatch)

_GIVEN_UP_AFTER = 10.0  # seconds of CPU time
_ATTEMPTS_AT_A_TIME = 20  # of one case, at most
_SECONDS_AT_A_TIME = 0.5  # for one case: slow cases get as much time as quick ones, and not more
_PEAK, _RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Attempt(NamedTuple):
    """One damaged input, and a call that gives it to the code that uses it."""

    data: bytes
    run: Callable[[], None]
    cpu_seconds: float = CPU_SECONDS


class Case(NamedTuple):
    """A source of damaged inputs."""

    name: str
    attempt: Callable[[Random], Attempt]


class Trouble(NamedTuple):
    """One limit that was not kept. `detail` is the traceback, if there is one."""

    summary: str
    detail: str


class Finding(NamedTuple):
    """A limit that a case did not keep, the first time that it happened, and the file with the damaged input."""

    case: str
    number: int
    trouble: Trouble
    file: Path


def run(
    cases: Sequence[Case], *, seed: int, seconds: float, first: int = 0, show: Callable[[Finding], None]
) -> tuple[Counter[str], list[Finding]]:
    """Return how often each case was tried, and what was found. Each case begins with the attempt of number `first`.

    The seconds count once every case has had an attempt: so a busy machine leaves none out.
    """
    tried: Counter[str] = Counter()
    findings: dict[tuple[str, str], Finding] = {}

    def attempt(case: Case, number: int) -> None:
        # The same seed and number always make the same input.
        made = case.attempt(Random(f"{seed} {case.name} {number}"))
        tried[case.name] += 1
        trouble = judge(made)
        if trouble is not None and (case.name, trouble.summary) not in findings:
            finding = Finding(case.name, number, trouble, _keep(case.name, number, made.data))
            findings[case.name, trouble.summary] = finding
            show(finding)

    for case in cases:
        attempt(case, first)
    deadline = time.monotonic() + seconds
    for turn in count(first + 1, _ATTEMPTS_AT_A_TIME):
        for case in cases:
            began = time.monotonic()
            for number in range(turn, turn + _ATTEMPTS_AT_A_TIME):
                if time.monotonic() > min(deadline, began + _SECONDS_AT_A_TIME):
                    break
                attempt(case, number)
        if time.monotonic() > deadline:
            return tried, list(findings.values())
    raise AssertionError("count() never ends")


def _keep(name: str, number: int, data: bytes) -> Path:
    file = Path(tempfile.gettempdir()) / f"fuzz-{name}-{number}"
    file.write_bytes(data)
    return file


# -- limits


class _TooSlow(BaseException):
    pass


def judge(attempt: Attempt) -> Trouble | None:
    """Run the code that uses a damaged input; return the limit that it did not keep, if any."""
    memory_before, cpu_before = _reset_peak(), time.process_time()
    try:
        with _stopped_after(_GIVEN_UP_AFTER):
            attempt.run()
    except ALLOWED:
        pass
    except _TooSlow:
        return Trouble(f"takes more than {_GIVEN_UP_AFTER:g} s of CPU time", traceback.format_exc())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return Trouble(f"raises {_summary(error)}", traceback.format_exc())
    if (seconds := time.process_time() - cpu_before) > attempt.cpu_seconds:
        return Trouble("takes too much CPU time", f"{seconds:.1f} s")
    if (grown := _peak() - memory_before) > MEMORY_BYTES + len(attempt.data):
        return Trouble("takes too much memory", f"{grown >> 20} MB")
    return None


def _summary(error: BaseException) -> str:
    """Return the class of an error and the last function of the program that raised it: each counts as one finding."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/mirrormaker/" in frame.filename]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""
    return f"{type(error).__name__}{place}"


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _reset_peak() -> int:
    """Forget the largest amount of memory so far, and return the present amount, in bytes."""
    with contextlib.suppress(OSError):
        _RESET_PEAK.write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    """Return the largest amount of memory since the last reset, in bytes."""
    line = next(line for line in _PEAK.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
