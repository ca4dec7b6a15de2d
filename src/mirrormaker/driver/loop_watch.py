"""How long the driver's event loop stood still: heartbeats, leases and orders wait for that long."""

from __future__ import annotations

import asyncio
import time

_EVERY = 0.05  # seconds between two looks
_PERIOD = 30.0  # seconds: the longest pause is that of the last 30 to 60


class LoopWatch:
    """Wakes up many times a second, and notes how much too late that was."""

    def __init__(self) -> None:
        self._longest = [0.0, 0.0]  # in the last period, and in the present one
        self._since = time.monotonic()

    @property
    def longest(self) -> float:
        """The longest time in seconds for which the loop stood still, in the last minute or so."""
        return max(self._longest)

    async def run(self) -> None:
        """Watch for as long as this runs."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_EVERY)
            now = time.monotonic()
            self._longest[1] = max(self._longest[1], now - before - _EVERY)
            if now - self._since > _PERIOD:
                self._longest, self._since = [self._longest[1], 0.0], now
