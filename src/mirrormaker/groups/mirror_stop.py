"""Waits in a failover until the mirror of a closed flow has stopped, so that nobody else writes records or offsets of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from mirrormaker.errors import OUTAGE, UnsupportedRequest
from mirrormaker.groups.flow_ends import mirror_members
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.log_offsets import LATEST, find_offsets
from mirrormaker.wire.protocol.codec import TopicPartition

Show = Callable[[str], None]

LOOK_EVERY = 1.0  # seconds between two looks at the lag, at the mirror's group, or at the target
SHOW_EVERY = 2.0  # seconds between two lines of progress
# Seconds for a mirror to notice the fence (5), to bring in its answers (8), to commit and to leave the group.
_STOPS_WITHIN = 30.0
# Seconds to wait where nobody tells who is in the group: a mirror notices the fence (5), and the last requests of one that could
# not bring in its answers are dropped (9).
_STOPS_UNSEEN = 15.0
_STILL_FOR = (
    6.0  # seconds without a new record on the target, if the source is gone: longer than a mirror takes to notice
)


async def members(source: Cluster, group: str) -> int | None:
    """Return how many mirrors run; None if the source does not answer now."""
    try:
        return await mirror_members(source, group)
    except OUTAGE:
        return None


async def wait_until_stopped(source: Cluster, group: str, show: Show) -> bool:
    """Wait until the mirror has left its group; return False if it stays."""
    try:
        return await _wait_until_left(source, group, show)
    except UnsupportedRequest:  # Kafka 0.8
        show(f"the source cannot tell whether a mirror runs; waiting {_STOPS_UNSEEN:g} s for it to stop")
        await asyncio.sleep(_STOPS_UNSEEN)
        return True


async def _wait_until_left(source: Cluster, group: str, show: Show) -> bool:
    deadline, shown = time.monotonic() + _STOPS_WITHIN, float("-inf")
    while await members(source, group) != 0:
        now = time.monotonic()
        if now > deadline:
            return False
        if now - shown >= SHOW_EVERY:
            shown = now
            show(f"waiting for the mirror to stop; {deadline - now:.0f} s left")
        await asyncio.sleep(LOOK_EVERY)
    show("no mirror runs any more")
    return True


async def wait_until_still(target: Cluster, keys: Collection[TopicPartition], show: Show) -> None:
    """Wait until nothing comes to these partitions of the target any more, for 15 s at most.

    The source is gone and cannot tell whether a mirror runs: one may still send what it has read, or its last requests may be
    under way.
    """
    await target.refresh({topic for topic, _ in keys})
    began = since = time.monotonic()
    shown, ends = float("-inf"), dict[TopicPartition, int]()
    while True:
        before, (ends, failed) = ends, await find_offsets(target, keys, LATEST)
        now = time.monotonic()
        # A log that cannot be asked may have grown.
        since = since if ends == before and not failed else now
        if now - since >= _STILL_FOR:
            show(f"nothing has come to the target for {_STILL_FOR:g} s")
            return
        if now - began >= _STOPS_UNSEEN:
            show(
                f"after {_STOPS_UNSEEN:g} s it is not certain that no mirror writes to the target any more: records still come,"
                " or not all of its logs can be asked"
            )
            return
        if now - shown >= SHOW_EVERY:
            shown = now
            show(f"waiting until nothing comes to the target; {began + _STOPS_UNSEEN - now:.0f} s left at most")
        await asyncio.sleep(LOOK_EVERY)
