"""What the log says about single groups, and that it says it once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest import mock

from mirrormaker.errors import BadFrame
from mirrormaker.events.event import Event
from mirrormaker.events.group_events import GroupFollowed, GroupGone, GroupNotFollowed
from mirrormaker.groups.group_news import GroupNews
from mirrormaker.groups.planning import Entry
from mirrormaker.model.group_sync import Decision, State

KEY = ("billing", "orders")
SYNCED = Decision(State.SYNCED, offset=9)


def short(end: int, missing: int) -> Decision:
    return Decision(State.TARGET_SHORT, None, 0, missing, end)


def told(*rounds: tuple[Decision | None, Sequence[str]]) -> list[Event]:
    """Return the events of rounds: what was decided, None if the group has no entry, and the groups on the source."""
    events: list[Event] = []
    target: Any = mock.Mock(endpoint="new:9092")
    writer: Any = mock.Mock()
    news = GroupNews(target, writer, events.append)

    async def play() -> None:
        for decision, groups in rounds:
            entries = {} if decision is None else {KEY: Entry(decisions={0: decision})}
            await news.tell(entries, groups, {})

    asyncio.run(play())
    return events


def test_a_target_that_lost_records_is_told_once_and_its_end_too() -> None:
    here = ["billing"]
    events = told((short(70, 30), here), (short(70, 30), here), (short(80, 20), here), (SYNCED, here))
    assert [type(event) for event in events] == [GroupNotFollowed, GroupFollowed]
    assert "orders: the target lost records; another line of this log names the offset" in events[0].text


def test_a_map_that_is_a_moment_ahead_of_the_end_of_the_log_is_no_loss() -> None:
    here = ["billing"]
    assert told(*[(short(end, 3), here) for end in range(0, 50, 5)], (SYNCED, here)) == []


def test_a_group_that_is_gone_from_the_source_is_told_once_with_the_command() -> None:
    (event,) = told((SYNCED, ["billing"]), (None, []), (None, []), (None, []), (None, []))
    assert isinstance(event, GroupGone)
    assert "kafka-consumer-groups --bootstrap-server new:9092 --delete --group billing" in event.text


def test_a_group_that_the_source_misses_for_a_moment_is_not_gone() -> None:
    assert told((SYNCED, ["billing"]), (None, []), (SYNCED, ["billing"]), (SYNCED, ["billing"])) == []


def test_a_group_whose_partitions_another_process_mirrors_now_is_not_gone() -> None:
    assert told((SYNCED, ["billing"]), *[(None, ["billing"])] * 3) == []


def test_a_group_that_comes_back_and_goes_again_is_told_again() -> None:
    gone = [(None, ()), (None, ())]
    assert len(told((SYNCED, ["billing"]), *gone, (SYNCED, ["billing"]), *gone)) == 2


def test_nobody_is_told_to_delete_a_group_that_others_use_on_the_target() -> None:
    events = told((Decision(State.OWNED, offset=9), ["billing"]), (None, []), (None, []), (None, []))
    assert [type(event) for event in events] == [GroupNotFollowed]


def test_a_group_whose_offsets_cannot_be_understood_is_told_once_with_the_reason() -> None:
    events: list[Event] = []
    target: Any = mock.Mock(endpoint="new:9092")
    news = GroupNews(target, mock.Mock(), events.append)

    async def play() -> None:
        for trouble in (BadFrame("twice"), BadFrame("twice"), None):
            entries = {KEY: Entry(decisions={0: SYNCED})}
            await news.tell(entries, ["billing"], {} if trouble is None else {"billing": trouble})

    asyncio.run(play())
    assert [type(event) for event in events] == [GroupNotFollowed, GroupFollowed]
    assert events[0].text.endswith("; twice")
