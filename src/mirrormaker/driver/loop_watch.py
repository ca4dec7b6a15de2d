"""How long the driver's event loop stood still: heartbeats, leases and orders wait for that long."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

_EVERY = 0.05  # seconds between two looks
_PERIOD = 30.0  # seconds: the longest pause is that of the last 30 to 60
_SCHEDSTAT = "/proc/thread-self/schedstat"  # nanoseconds on a core, nanoseconds of waiting for one, time slices


class CoreWait:
    """How long the kernel let this thread wait for a CPU core, because others had them all. Linux counts that."""

    def __init__(self) -> None:
        """Count for the thread that makes this object."""
        self._file: int | None = None
        with contextlib.suppress(OSError):
            self._file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)

    def seconds(self) -> float:
        """Return the seconds since the thread began; 0 where the kernel does not tell."""
        if self._file is None:
            return 0.0
        try:
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class LoopWatch:
    """Wakes up many times a second, and notes how much too late that was."""

    def __init__(self) -> None:
        # In the last period, and in the present one.
        self._longest, self._busiest = [0.0, 0.0], [0.0, 0.0]
        self._since = time.monotonic()

    @property
    def longest(self) -> float:
        """The longest time in seconds for which the loop stood still, in the last minute or so."""
        return max(self._longest)

    @property
    def busiest(self) -> float:
        """The same without the time in which the loop could have gone on, and had no core: what our own work took."""
        return max(self._busiest)

    async def run(self) -> None:
        """Watch for as long as this runs."""
        wait = CoreWait()
        try:
            while True:
                before, waited = time.monotonic(), wait.seconds()
                await asyncio.sleep(_EVERY)
                self.note(time.monotonic() - before - _EVERY, wait.seconds() - waited)
        finally:
            wait.close()

    def note(self, pause: float, without_core: float) -> None:
        """Note for how long the loop stood still, and how long it had no core meanwhile."""
        self._longest[1] = max(self._longest[1], pause)
        self._busiest[1] = max(self._busiest[1], pause - without_core)
        now = time.monotonic()
        if now - self._since > _PERIOD:
            self._longest, self._busiest = [self._longest[1], 0.0], [self._busiest[1], 0.0]
            self._since = now
