"""The rows of the error table that concern no mirrored topic: the offset map, checkpoints, and the offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mirrormaker.kafka_errors import NOT_LEADER_OR_FOLLOWER
from mirrormaker.mapping.map_topic import TOPIC as MAP
from tests.support.error_row import Row
from tests.support.table_stage import Stage, admin

CHECKPOINTS = "{alias}.checkpoints.internal"
_MAP_SAYS = "the offset map cannot be kept"
_GROUPS_SAY = "offsets of groups are not kept in step for now"


def _delete_map(stage: Stage, topics: Sequence[str]) -> None:
    """Delete the offset map, so that the mirror creates it again."""
    with admin(stage.target) as client:
        client.delete_topics([MAP])


def _lose_leader(stage: Stage, topics: Sequence[str]) -> None:
    """Refuse one write as a broker does that no longer leads the offset map: the mirror looks for the leader."""
    stage.target_proxy.refuse("Produce", {MAP: NOT_LEADER_OR_FOLLOWER}, times=1)


def _move(stage: Stage, topics: Sequence[str]) -> None:
    """Let groups of the source go on, those that the target has and those that it lacks."""
    assert stage.groups is not None, "the mirror keeps no groups in step"
    stage.groups.move(topics)


def _start_again(stage: Stage, topics: Sequence[str]) -> None:
    """Start the mirror under the alias for which there are no checkpoints yet; a new group has to wait for them."""
    stage.start_again()
    _move(stage, topics)


_map = partial(Row, side="target", why="offset map", own=MAP, sampled=True)
_checkpoints = partial(Row, side="target", trigger=_move, why="checkpoints", own=CHECKPOINTS, groups=True, sampled=True)
_groups = partial(Row, trigger=_move, why="groups", groups=True, whole=True, sampled=True)

MAP_ROWS = (
    _map("Produce", says=_MAP_SAYS),
    # A running mirror only looks for a fence, and says so after 12 s; a failover waits until the mirror itself has ended.
    _map("Fetch"),
    _map("ListOffsets", trigger=_delete_map, says=_MAP_SAYS),
    _map("CreateTopics", trigger=_delete_map, says=_MAP_SAYS),
    # Without them the mirror uses the leader that it knows, and Kafka's defaults.
    _map("Metadata", trigger=_lose_leader),
    _map("DescribeConfigs", trigger=_delete_map),
)
GROUP_ROWS = (
    _checkpoints("Produce", says=_GROUPS_SAY),
    _checkpoints("Fetch", says=_GROUPS_SAY),
    _checkpoints("ListOffsets", says=_GROUPS_SAY),
    _checkpoints("Metadata", trigger=_start_again, restarts=True, says=_GROUPS_SAY),
    _checkpoints("CreateTopics", trigger=_start_again, restarts=True, says=_GROUPS_SAY),
    _checkpoints("DescribeConfigs", trigger=_start_again, restarts=True),
    _groups("ListGroups", "source", says=_GROUPS_SAY),
    _groups("ListGroups", "target", says=_GROUPS_SAY),
    _groups("OffsetFetch", "source"),
    _groups("OffsetFetch", "target"),
    _groups("FindCoordinator", "target"),
    _groups("OffsetCommit", "target", whole=False),
    _groups("DescribeShareGroupOffsets", "source"),
    _groups("DescribeShareGroupOffsets", "target"),
    _groups("AlterShareGroupOffsets", "target"),
)
