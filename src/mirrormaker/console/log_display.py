"""A mirror that runs inside another Python program reports through `logging`, under the name `mirrormaker`."""

from __future__ import annotations

import logging
import time

from mirrormaker.events.event import Event, Kind
from mirrormaker.status.event_log import EventLog

_WARNINGS = {Kind.LOST, Kind.UNDELIVERED, Kind.STOPPED, Kind.TAKEOVER, Kind.WAITING}


class LogDisplay:
    """Has the methods of `Display`; progress is asked for instead of shown."""

    def __init__(self) -> None:
        self.events = EventLog()
        self.complaints: list[str] = []
        self._logger = logging.getLogger("mirrormaker")
        self._started = time.monotonic()

    def report(self, event: Event) -> None:
        """Log an event."""
        self.events.add(event)
        self._logger.log(logging.WARNING if event.kind in _WARNINGS else logging.INFO, "%s", event.text)

    def show(self, text: str) -> None:
        """Log a line of the summary."""
        self._logger.info("%s", text)

    def complain(self, text: str) -> None:
        """Keep the reason of a failure for the caller."""
        self.complaints.append(text)

    def start(self) -> None:
        """Show nothing."""

    def tick(self) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started
