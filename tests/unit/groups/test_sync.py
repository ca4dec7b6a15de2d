"""The loop that keeps groups in step: whatever goes wrong in a round, it is reported once, and the next round comes."""

from __future__ import annotations

import asyncio
from typing import Any

from mirrormaker.errors import BrokerError, ClusterError
from mirrormaker.events.event import Event
from mirrormaker.events.group_events import GroupSyncFailed
from mirrormaker.groups.sync import GroupSync, SyncSettings


def test_a_round_that_fails_in_any_way_leaves_the_mirror_alone_and_is_tried_again() -> None:
    nothing: Any = None
    events: list[Event] = []
    failures: list[Exception] = [
        ClusterError("no alias"),
        ClusterError("no alias"),
        ValueError("a bug"),
        BrokerError(15, "listing groups"),
        ConnectionResetError("gone"),
    ]

    async def play() -> None:
        sync = GroupSync(nothing, nothing, SyncSettings(lambda _: True, interval=0.0), nothing, nothing, events.append)
        over = asyncio.Event()

        async def round_() -> None:
            if failures:
                raise failures.pop(0)
            over.set()

        sync.round = round_  # type: ignore[method-assign]
        running = asyncio.ensure_future(sync.run())
        await asyncio.wait_for(over.wait(), 10)
        assert not running.done()
        running.cancel()

    asyncio.run(play())
    reasons = [event.reason for event in events if isinstance(event, GroupSyncFailed)]
    assert len(events) == len(reasons) == 4, "the same reason is reported once"
    assert reasons[1] == "unexpected ValueError: a bug"
