"""Wait for a condition, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class NotInTime(AssertionError):
    """A condition did not hold within its limit."""


def wait_until(
    what: str, condition: Callable[[], Any], within: float = 20.0, details: Callable[[], str] | None = None
) -> float:
    """Wait until the condition holds. Return the seconds that it took. `what` and `details` are for the error."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > within:
            more = f":\n{details()}" if details is not None else ""
            raise NotInTime(f"{what}: not within {within:g} s{more}")
        time.sleep(0.05)
    return time.monotonic() - began
