"""What happened, in the words in which it was said."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass

_KEPT = 500  # the latest; the log has all of them

# The first that is found in a text says what kind of event it is.
_KINDS = (
    ("lost", r"^LOST |^lost: "),
    ("undelivered", r"cannot be delivered|could not be delivered"),
    ("recovered", r"flows? again|is there again|is back"),
    ("takeover", r"is gone|stays away|has died|job ended|has not been at work"),
    ("waiting", r"^waiting: |waiting for Spark"),
    ("topic", r"^created |^grew |partitions? (were )?added|deleted and created again"),
    ("rebalance", r"^rebalance: |is moved from stream|rebalance listener"),
    ("stopped", r" stops\b|^stopped: |cannot be|refuses|could not|SIGTERM|SIGINT"),
    ("again", r"going on at|second time|sent again|there twice"),
)


@dataclass(frozen=True)
class Event:
    number: int
    time: float
    kind: str
    text: str


def kind_of(text: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text)), "note")


def _same(one: str, other: str) -> bool:
    return re.sub(r"\(\d+ s\)", "", one) == re.sub(r"\(\d+ s\)", "", other)


class Events:
    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=_KEPT)
        self._count = 0

    def add(self, text: str) -> Event:
        """What is said again with only another number in it is no news."""
        event = Event(self._count + 1, time.time(), kind_of(text), text)
        if not (self._events and _same(self._events[-1].text, text)):
            self._count += 1
            self._events.append(event)
        return event

    def after(self, number: int) -> list[Event]:
        """Those that came after the one of that number, the oldest first."""
        return [event for event in self._events if event.number > number]
