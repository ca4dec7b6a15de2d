"""Events: every one has a kind and a sentence that names all of its figures."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from mirrormaker.events import partition_events, process_events, topic_events
from mirrormaker.events.event import Event, Kind
from mirrormaker.events.partition_events import (
    LostRange,
    PartitionRecovered,
    PartitionStopped,
    PartitionsWaiting,
    RangeLost,
    RecordGivenUp,
    Renumbered,
)
from mirrormaker.events.process_events import (
    JvmDied,
    PackingLibraries,
    PartitionMoved,
    Rebalanced,
    Stopping,
    StreamBack,
    StreamGone,
    StreamMissing,
    StreamsCovered,
)
from mirrormaker.events.topic_events import TopicCreated


def events_of(module: ModuleType) -> list[type[Event]]:
    found = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, Event) and kind.__module__ == module.__name__]


EVERY_EVENT = [event for module in (partition_events, process_events, topic_events) for event in events_of(module)]


def made_up(kind: type[Event]) -> Event:
    """An event with some value in each field."""
    values: dict[str, Any] = {
        "int": 7, "float": 7.0, "str": "some text", "bool": True, "tuple[str, ...]": ("orders-1", "orders-2"),
        "tuple[int, ...]": (1, 2), "LostRange": LostRange("orders", 3, 100, 299, 200, is_exact=True),
    }  # fmt: skip
    return kind(**{field.name: values[str(field.type)] for field in fields(kind)})


@pytest.mark.parametrize("kind", EVERY_EVENT, ids=lambda kind: kind.__name__)
def test_every_event_is_one_line_that_names_its_figures(kind: type[Event]) -> None:
    event = made_up(kind)
    assert event.text and "\n" not in event.text and "{" not in event.text
    assert isinstance(event.kind, Kind)
    if "text" not in vars(kind):
        named = set(re.findall(r"{(\w+)", kind.words))
        assert named == {field.name for field in fields(kind)}


def test_there_are_as_many_events_as_sentences() -> None:
    assert len(EVERY_EVENT) > 40
    sentences = [made_up(kind).text for kind in EVERY_EVENT if kind.words and kind.words != "{reason}"]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            StreamGone(1, 12),
            "takeover",
            "stream 1 is gone; its 12 partitions are taken over from what it last reported",
        ),
        (
            StreamsCovered("1", 12, 4.0),
            "takeover",
            "stream 1 has not returned after 4 s; its 12 partitions move to the other streams",
        ),
        (
            StreamMissing(1, "x", 30.2),
            "takeover",
            "stream 1 has not run for 30 s: check that Spark has a free slot for it and that its tasks start"
            " (Spark's log: x)",
        ),
        (JvmDied(), "takeover", "Spark's JVM has died; starting another"),
        (StreamBack(1), "recovered", "stream 1 is back"),
        (
            PartitionsWaiting(tuple(f"orders-{n}" for n in range(5)), "away"),
            "waiting",
            "waiting: orders-0, orders-1, orders-2 and 2 more: away",
        ),
        (PartitionRecovered("orders", 3), "recovered", "orders-3 flows again"),
        (
            RangeLost(LostRange("orders", 3, 100, 299, 200, is_exact=True)),
            "lost",
            "LOST orders-3: source offsets 100 to 299 were gone before they were mirrored: 200 records",
        ),
        (
            RangeLost(LostRange("orders", 3, 100, 100, 1, is_exact=False)),
            "lost",
            "LOST orders-3: source offsets 100 to 100 were gone before they were mirrored: at most 1 record",
        ),
        (
            RangeLost(LostRange("orders", 3, 100, 299, 200, is_exact=False, is_truncated=True)),
            "lost",
            "LOST orders-3: source offsets 100 to 299 were mirrored and are no longer what the source has there (truncated by an"
            " unclean election?): at most 200 records are on the target only",
        ),
        (RecordGivenUp("orders-3: too large", "x"), "undelivered", "orders-3: too large (written to x)"),
        (PartitionStopped("orders-3 stops at 5"), "stopped", "orders-3 stops at 5"),
        (TopicCreated("orders", 8), "topic", "created orders on the target with 8 partitions"),
        (Rebalanced(4, 0, 12), "rebalance", "rebalance: 4 partitions come, 0 go, 12 are mirrored here"),
        (
            PartitionMoved("orders", 1, 0, 1),
            "rebalance",
            "orders-1 moves from stream 0 to stream 1, which has less to do",
        ),
        (Renumbered("orders", 1, "gone", 100), "again", "orders-1: gone; going on at source offset 100"),
        (Stopping("SIGTERM"), "stopped", "SIGTERM: stopping; waiting for the target's last answers"),
        (
            PackingLibraries(),
            "note",
            "packing the libraries that executors need; they are kept for the next start",
        ),
    ],
)
def test_events_have_the_kind_and_the_words_that_users_know(event: Event, kind: str, text: str) -> None:
    assert (event.kind.value, event.text) == (kind, text)
