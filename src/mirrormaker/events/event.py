"""The base of all events. Everything that a mirror reports while it runs is an event.

An event has a kind, a subject and figures; `words` is the one sentence that people read. Log lines, `--log.format json`, the
status page are made from these values. To change a sentence, change it in `process_events`, `topic_events` or
`partition_events`; to add an event, add a class there.
Code never looks into a sentence to decide something: it looks at the class, the kind or a field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar


class Kind(str, Enum):
    """The subject of an event. The status page and JSON logs show it, and users filter by it: values never change."""

    LOST = "lost"
    UNDELIVERED = "undelivered"
    RECOVERED = "recovered"
    TAKEOVER = "takeover"
    WAITING = "waiting"
    TOPIC = "topic"
    REBALANCE = "rebalance"
    STOPPED = "stopped"
    AGAIN = "again"
    NOTE = "note"


@dataclass(frozen=True)
class Event:
    """Base of all events. Two events that differ only in fields with `compare=False` count as the same news."""

    kind: ClassVar[Kind]
    words: ClassVar[str]

    def __init_subclass__(cls, kind: Kind = Kind.NOTE, words: str = "") -> None:
        cls.kind, cls.words = kind, words

    @property
    def text(self) -> str:
        """The event as one line for people."""
        return self.words.format(**{f.name: getattr(self, f.name) for f in fields(self)})


Report = Callable[[Event], None]
