"""Asking a cluster until it answers."""

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


async def ask_until_answered(ask: Callable[[], Awaitable[T]], report: event.Report) -> T:
    """Repeat a call until it succeeds: a rebalance or a moving coordinator is no reason to give up.

    Report each new reason after five seconds, or at once if a broker keeps not answering.
    """
    since, reported = time.monotonic(), ""
    while True:
        try:
            return await ask()
        except OUTAGE as error:
            is_late = time.monotonic() - since > _REPORT_AFTER and not isinstance(error, NotMember)
            if (is_late or isinstance(error, Unanswered)) and describe(error) != reported:
                reported = describe(error)
                report(Waiting(reported))
            await asyncio.sleep(_PAUSE)
