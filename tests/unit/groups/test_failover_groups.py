"""Where a group starts in a failover, from its last checkpoint and the map."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.groups.checkpoints import Checkpoint
from mirrormaker.groups.failover_groups import LastSync
from mirrormaker.groups.sync import SyncSettings
from mirrormaker.model.group_sync import Log, State
from mirrormaker.model.offset_map import PartitionMap
from mirrormaker.model.offset_runs import NotedRun
from mirrormaker.model.position import Cut, Identity, Position

KEY = ("orders", 0)


def begun_at(source: int, target: int) -> PartitionMap:
    """A map of a thousand records that begins at these offsets."""
    found = PartitionMap()
    at = Position(*KEY, source, 0, "", Identity(7, 0), "", "", 1, (Cut(0, 70, target),))
    found.begin(at)
    after = at.advanced(source + 1000, 0, [Cut(0, 1070, target + 1000)])
    found.note(after, [(("", 0), [NotedRun(source, target, 1000, 70)])])
    return found


@pytest.mark.parametrize(
    ("upstream", "downstream", "starts_at", "state"),
    [
        pytest.param(100, 107, 107, State.SYNCED, id="written before the map was lost"),
        pytest.param(100, 5010, 0, State.BEFORE_MAP, id="after the map's first place: it was for other records"),
        pytest.param(5100, 5050, 5107, State.SYNCED, id="the map is further now"),
        pytest.param(6100, 6107, 6007, State.TARGET_SHORT, id="the target's log ends before it"),
    ],
)
def test_a_checkpoint_from_before_the_map_counts_if_the_map_does_not_contradict_it(
    upstream: int, downstream: int, starts_at: int, state: State
) -> None:
    nobody: Any = None
    work = LastSync(None, nobody, SyncSettings(lambda _: True, alias="a"), {KEY: begun_at(5000, 5007)})
    found = work._aim(Checkpoint("readers", *KEY, upstream, downstream), Log(0, 6007))
    assert (found.offset, found.state) == (starts_at, state)
