"""The missing rights that keep groups from being read or written, each with the command that grants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mirrormaker.errors import BrokerError, describe
from mirrormaker.groups.readiness import GroupReadiness, PartitionReadiness
from mirrormaker.kafka_errors import GROUP_AUTHORIZATION_FAILED
from mirrormaker.mapping.map_topic import NEEDED_RIGHTS, TOPIC
from mirrormaker.model.group_sync import Cost, State
from mirrormaker.wire.client.acls import denied, granting, missing
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import ListedGroup, find_coordinators
from mirrormaker.wire.client.group_rights import may_not_read_groups
from mirrormaker.wire.protocol.group_messages import GroupOffsets


async def name_missing_rights(
    target: Cluster, listed: Mapping[str, ListedGroup], checkpoints: str, rows: list[GroupReadiness]
) -> list[GroupReadiness]:
    """Ask for the rights on groups and topics that are not written: a missing one may be the reason.

    `listed` are groups that the target has, with their coordinators; `checkpoints` is the mirror's own topic.
    """
    return await name_rights_of_mirror(target, checkpoints, await _name_rights_on_groups(target, listed, rows))


async def _name_rights_on_groups(
    target: Cluster, listed: Mapping[str, ListedGroup], rows: list[GroupReadiness]
) -> list[GroupReadiness]:
    late = {row.group for row in rows if row.state is State.PENDING}
    if not late:
        return rows
    topics = await missing(target, {row.topic for row in rows if row.group in late}, ["Read"])
    nodes: dict[str, int | None] = dict.fromkeys(late)
    nodes |= await find_coordinators(target, late - listed.keys())
    nodes |= {name: group.node for name, group in listed.items() if name in late}
    groups = await may_not_read_groups(target, nodes)
    return [_without_right(target, row, topics, groups) if row.group in late else row for row in rows]


def _without_right(
    target: Cluster, row: GroupReadiness, topics: Mapping[str, list[str]], groups: set[str]
) -> GroupReadiness:
    if row.state is not State.PENDING or (row.topic not in topics and row.group not in groups):
        return row
    kind, name = ("group", row.group) if row.group in groups else ("topic", row.topic)
    parts = tuple(
        replace(part, cost=part.cost._replace(state=State.NO_RIGHTS)) if part.cost.state is State.PENDING else part
        for part in row.partitions
    )
    return replace(row, partitions=parts, advice=denied(target.endpoint, "Read", kind, name))


async def name_rights_of_mirror(target: Cluster, checkpoints: str, rows: list[GroupReadiness]) -> list[GroupReadiness]:
    """Add to the advice for groups that are not written, or not mapped, what a mirror may lack that logs in as this client."""
    topics = {State.UNMAPPED: TOPIC, State.PENDING: checkpoints}
    asked = {topics[row.state] for row in rows if row.state in topics}
    lacking = await missing(target, asked, ["Write"])
    hints = {
        name: f"if the mirror has the same login: {denied(target.endpoint, names, 'topic', name)}"
        for name, names in lacking.items()
    }
    if checkpoints in asked and checkpoints not in target.topics:
        command = granting(target.endpoint, ("Create", "Read", "Write"), "topic", checkpoints)
        hints[checkpoints] = (
            f"no mirror has created {checkpoints}: {NEEDED_RIGHTS}; this grants them to this login: {command}"
        )
    found = [(row, hints.get(topics.get(row.state, ""))) for row in rows]
    return [replace(row, advice=f"{row.advice}; {hint}") if hint else row for row, hint in found]


def unreadable(cluster: Cluster, group: str, error: GroupOffsets | Exception) -> GroupReadiness:
    """Return the row of a group whose offsets a cluster does not tell."""
    state, way_out = why_unreadable(cluster, group, error)
    return GroupReadiness(group, "", (PartitionReadiness(-1, None, None, Cost(state)),), None, way_out)


def why_unreadable(cluster: Cluster, group: str, error: GroupOffsets | Exception) -> tuple[State, str]:
    """Return the state of such a group, and the reason with the way out."""
    if isinstance(error, Exception):
        return State.UNMOVABLE, f"{cluster.endpoint} does not tell its offsets: {describe(error)}"
    if error.error == GROUP_AUTHORIZATION_FAILED:
        return State.NO_RIGHTS, denied(cluster.endpoint, "Describe", "group", group)
    return State.REFUSED, f"{cluster.endpoint} does not tell its offsets: {BrokerError(error.error)}"
