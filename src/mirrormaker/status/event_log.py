"""The latest events of the mirror, for the status page."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from mirrormaker.events.event import Event

_KEPT = 500  # the latest; the log has all of them


@dataclass(frozen=True)
class LoggedEvent:
    """An event as `/api/events` shows it."""

    number: int
    time: float
    kind: str
    text: str


class EventLog:
    """Numbers events, so that a page can ask for those that it has not seen."""

    def __init__(self) -> None:
        self._logged: deque[LoggedEvent] = deque(maxlen=_KEPT)
        self._last: Event | None = None
        self._count = 0

    def add(self, event: Event) -> None:
        """Log an event, unless it says the same as the one before it."""
        if event == self._last:
            return
        self._last = event
        self._count += 1
        self._logged.append(LoggedEvent(self._count, time.time(), event.kind.value, event.text))

    def after(self, number: int) -> list[LoggedEvent]:
        """Return the events after the one of that number, the oldest first."""
        return [event for event in self._logged if event.number > number]
