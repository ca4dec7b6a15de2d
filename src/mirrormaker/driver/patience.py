"""Asking a cluster until it answers, and reporting an outage that lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mirrormaker.errors import OUTAGE, NotMember, Unanswered, describe
from mirrormaker.events import event
from mirrormaker.events.partition_events import Waiting

_REPORT_AFTER = 5.0  # seconds of failures until an event is reported
_PAUSE = 0.1  # seconds between two attempts

T = TypeVar("T")


class OutageReport:
    """Reports why something waits: after five seconds of failures, and each new reason once."""

    def __init__(self, report: event.Report, subject: str = "") -> None:
        """`subject` begins the reported sentence."""
        self._report, self._subject = report, subject
        self._since: float | None = time.monotonic()  # an attempt may take long to fail for the first time
        self._reported = ""

    def failed(self, error: BaseException, *, at_once: bool = False) -> None:
        """Note a failed attempt; `at_once` does not wait for five seconds."""
        now, reason = time.monotonic(), describe(error)
        self._since = now if self._since is None else self._since
        if (at_once or now - self._since > _REPORT_AFTER) and reason != self._reported:
            self._reported = reason
            self._report(Waiting(f"{self._subject}{reason}"))

    def succeeded(self) -> None:
        """Note a successful attempt: the five seconds begin anew with the next failure."""
        self._since = None


async def ask_until_answered(ask: Callable[[], Awaitable[T]], report: event.Report) -> T:
    """Repeat a call until it succeeds: a rebalance or a moving coordinator is no reason to give up.

    Report an outage that lasts, or at once if a broker keeps not answering. A rebalance is not reported.
    """
    outage = OutageReport(report)
    while True:
        try:
            return await ask()
        except NotMember:
            pass
        except OUTAGE as error:
            outage.failed(error, at_once=isinstance(error, Unanswered))
        await asyncio.sleep(_PAUSE)
