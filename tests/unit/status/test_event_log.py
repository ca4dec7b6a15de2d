"""The events that the status page shows."""

from __future__ import annotations

from mirrormaker.events.partition_events import PartitionsWaiting
from mirrormaker.events.process_events import StreamBack, WaitingForSpark
from mirrormaker.status.event_log import EventLog


def test_events_are_bounded_and_asked_for_by_number() -> None:
    events = EventLog()
    for number in range(1, 1001):
        events.add(PartitionsWaiting((f"orders-{number}",), "away"))
    assert [event.number for event in events.after(998)] == [999, 1000]
    assert len(events.after(0)) == 500
    assert events.after(1000) == []


def test_an_event_that_differs_only_in_its_seconds_is_no_news() -> None:
    events = EventLog()
    for seconds in (5, 10, 15):
        events.add(WaitingForSpark(seconds))
    events.add(StreamBack(1))
    assert [event.text for event in events.after(0)] == [
        "waiting for Spark to start the streams (5 s)",
        "stream 1 is back",
    ]
