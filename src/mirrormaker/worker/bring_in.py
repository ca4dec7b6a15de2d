"""Brings in what was begun: batches leave, and answers come in, before a cursor does anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from mirrormaker.control.lease import PRODUCE_TIMEOUT_MS
from mirrormaker.model.progress import Unit
from mirrormaker.worker.interrupts import Flag, ReleaseSignal
from mirrormaker.worker.outlet import Outlet

# Seconds after a release for which answers are awaited: a broker holds a request for 5 s, and the driver waits for 8 s.
ANSWERS_WITHIN = PRODUCE_TIMEOUT_MS / 1000 + 1


async def bring_in(outlets: Sequence[Outlet], keep: Collection[Unit], release: ReleaseSignal, drained: Flag) -> None:
    """Send the batches of the units to keep, and wait for all answers; other batches that are ready are dropped.

    After a release that has an end: what is still in flight then is left to the next sender, as if this stream had died. A
    leader recognises the next sender's copies by their numbers, unless the records are so old that it may have forgotten
    their producer: answers to those are awaited until the connection is given up (`Sender.tick`).
    """
    for outlet in outlets:
        outlet.clear(keep)
    while any(outlet.ready and not outlet.channel.must_read_log for outlet in outlets) and not _is_over(release):
        await asyncio.sleep(0.01)
    for outlet in outlets:
        outlet.clear()
    while any(outlet.sent for outlet in outlets):
        drained.clear()
        if any(entry.old for outlet in outlets for entry in outlet.sent):
            await drained.wait()
        elif _is_over(release):
            return
        else:
            await release.wait_for(drained, ANSWERS_WITHIN)


def _is_over(release: ReleaseSignal) -> bool:
    return release.was_set_before(ANSWERS_WITHIN)
