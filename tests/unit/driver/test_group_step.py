"""The part of a flow for groups and heartbeats: which of both it does, and heartbeats that may not be written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mirrormaker.driver.group_step import group_sync_of
from mirrormaker.errors import SettingError
from mirrormaker.events.event import Event
from mirrormaker.events.group_events import HeartbeatsFailed
from mirrormaker.groups.checkpoints import HEARTBEATS
from mirrormaker.groups.sync import GroupSync, SyncSettings
from mirrormaker.settings.clients import source_settings
from mirrormaker.settings.options import parse
from mirrormaker.settings.properties import Properties
from mirrormaker.settings.properties import parse as parse_lines
from tests.support.keyed_log import KeyedLog

LINE = ("--consumer.config", "a", "--producer.config", "b", "--whitelist", "orders")
BEATS = "emit.heartbeats.enabled=true\nsource.cluster.alias=east\ntarget.cluster.alias=west\n"


def group_sync(lines: str, *options: str, has_map: bool) -> GroupSync | None:
    """Return the part of a flow with these lines in its consumer file."""
    text = f"bootstrap.servers=old:9092\ngroup.id=mirror\n{lines}"
    settings = source_settings(Properties("source.properties", parse_lines(text, "source.properties")))
    anything: Any = object()
    offset_map = anything if has_map else None
    return group_sync_of(
        anything, anything, settings, parse([*LINE, *options]), offset_map, anything, anything, anything
    )


@pytest.mark.parametrize(
    ("lines", "options", "has_groups"),
    [
        ("", (), None),
        (BEATS, (), False),
        (BEATS, ("--groups", ".*"), True),
        ("groups=billing\n", (), True),
    ],
)
def test_groups_and_heartbeats_are_chosen_independently(
    lines: str, options: tuple[str, ...], has_groups: bool | None
) -> None:
    found = group_sync(lines, *options, has_map=True)
    assert (None if found is None else found.has_groups) is has_groups


def test_groups_need_the_offset_map_and_heartbeats_do_not() -> None:
    assert group_sync(BEATS, has_map=False) is not None
    with pytest.raises(SettingError, match="groups are kept in step by the offset map"):
        group_sync(BEATS, "--groups", ".*", has_map=False)


async def beat(log: KeyedLog, events: list[Event]) -> str:
    """Write heartbeats without groups until two are there; return the address of the target."""
    nothing: Any = None
    settings = SyncSettings(lambda _: False, "east", "west", has_groups=False, heartbeat_interval=0.01)
    async with log.running() as cluster:
        await cluster.refresh()
        sync = GroupSync(nothing, cluster, settings, None, nothing, events.append)
        running = asyncio.ensure_future(sync.run())
        while len(log.batches) < 2:
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel()
        return str(cluster.endpoint)


@pytest.mark.parametrize("code", [29, 31])
def test_heartbeats_without_groups_name_a_missing_right_once(code: int) -> None:
    log, events = KeyedLog(HEARTBEATS), list[Event]()
    log.errors = [code, code, code]
    address = asyncio.run(asyncio.wait_for(beat(log, events), 20))
    (said,) = events
    assert isinstance(said, HeartbeatsFailed)
    assert f"kafka-acls --bootstrap-server {address} --add" in said.reason
    assert said.reason.endswith("--operation Create --operation Write --topic heartbeats")


def test_other_errors_of_heartbeats_are_tried_again_in_silence() -> None:
    log, events = KeyedLog(HEARTBEATS), list[Event]()
    log.errors = [10, 10]  # a batch that is too large: an error that does not end by itself
    asyncio.run(asyncio.wait_for(beat(log, events), 20))
    assert not events
