"""The loop that keeps groups in step: a round or a heartbeat that fails in any way is reported once, and the next one comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mirrormaker.errors import BrokerError, ClusterError, DataError
from mirrormaker.events.event import Event
from mirrormaker.events.group_events import GroupSyncFailed, HeartbeatsFailed
from mirrormaker.groups.checkpoints import Heartbeats
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


def test_heartbeats_that_fail_in_any_way_are_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    failures: list[Exception] = [
        ConnectionResetError("gone"),
        DataError("not a batch"),
        DataError("not a batch"),
        ValueError("a bug"),
    ]
    over = asyncio.Event()

    async def beat(_: Heartbeats) -> None:
        if failures:
            raise failures.pop(0)
        over.set()

    async def start(_: Heartbeats) -> None: ...

    async def nothing_to_do(_: GroupSync) -> None: ...

    monkeypatch.setattr(Heartbeats, "start", start)
    monkeypatch.setattr(Heartbeats, "beat", beat)
    monkeypatch.setattr(GroupSync, "round", nothing_to_do)

    async def play() -> None:
        nothing: Any = None
        cluster: Any = SimpleNamespace(id="there")
        settings = SyncSettings(lambda _: True, heartbeat_interval=0.001)
        running = asyncio.ensure_future(GroupSync(cluster, cluster, settings, nothing, nothing, events.append).run())
        await asyncio.wait_for(over.wait(), 10)
        running.cancel()

    asyncio.run(play())
    assert events == [HeartbeatsFailed("not a batch"), HeartbeatsFailed("unexpected ValueError: a bug")]
