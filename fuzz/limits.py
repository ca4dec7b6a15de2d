"""What a damaged answer may cost, and which errors it may raise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from mirrormaker.errors import MirrorError
from mirrormaker.worker.interrupts import AwaitZombies, Released, Renumber, SplitBatch

CPU_SECONDS = 1.0
MEMORY_BYTES = 64 << 20  # beyond the size of the answer
# Everything that the program raises on purpose; the last ones make a partition leave the hot path.
ALLOWED = (MirrorError, OSError, asyncio.TimeoutError, AwaitZombies, Released, Renumber, SplitBatch)

_GIVEN_UP_AFTER = 10.0  # seconds of CPU time
_PEAK, _RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Trouble(NamedTuple):
    """One limit that was not kept."""

    summary: str
    detail: str  # the traceback, if there is one


class Enough(BaseException):
    """The code under test waits and asks again: it would do so for ever. No `except Exception` catches this."""


class _TooSlow(BaseException):
    pass


def judge(attempt: Callable[[], None], size: int) -> Trouble | None:
    """Run the code that uses a damaged answer of `size` bytes; return the limit that it did not keep, if any."""
    memory_before, cpu_before = _reset_peak(), time.process_time()
    trouble: Trouble | None = None
    try:
        with _stopped_after(_GIVEN_UP_AFTER):
            attempt()
    except (Enough, *ALLOWED):
        pass
    except _TooSlow:
        trouble = Trouble(f"takes more than {_GIVEN_UP_AFTER:g} s of CPU time", traceback.format_exc())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        trouble = Trouble(f"raises {_summary(error)}", traceback.format_exc())
    if trouble is not None:
        return trouble
    if (seconds := time.process_time() - cpu_before) > CPU_SECONDS:
        return Trouble(f"takes {seconds:.1f} s of CPU time", "")
    if (grown := _peak() - memory_before) > MEMORY_BYTES + size:
        return Trouble(f"takes {grown >> 20} MB of memory", "")
    return None


def _summary(error: BaseException) -> str:
    """Return the class of an error and the last line of the program that raised it: each counts as one finding."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "mirrormaker" in frame.filename]
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
