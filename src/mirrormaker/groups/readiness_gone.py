"""Groups and topics that the source no longer has, or no longer shows, while the target still has what the mirror wrote."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from mirrormaker.groups.group_survey import Survey
from mirrormaker.kafka_errors import GROUP_AUTHORIZATION_FAILED
from mirrormaker.model.group_sync import Memory, State, decide
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.group_offsets import fetch_offsets, find_coordinators
from mirrormaker.wire.protocol.group_messages import GroupOffsets

_NOTHING = GroupOffsets({})

GroupTopic = tuple[str, str]


async def gone_groups(
    source: Cluster,
    survey: Survey,
    memory: Mapping[GroupTopic, Mapping[int, Memory]],
    known: Container[GroupTopic],
) -> tuple[list[tuple[GroupTopic, int, int, State]], dict[str, GroupOffsets]]:
    """Return what the target has of groups and topics in which the source has no offset, and the groups that it only hides.

    The first are group and topic, partition, offset and state. `known` are groups and topics about which more can be said.
    """
    found = {key: offsets for key, offsets in _on_target(survey, memory).items() if key not in known}
    hidden = await _hidden(source, {group for group, _ in found} - survey.source.keys())
    rows = [
        (key, partition, offset, decide(State.DELETED, offset, memory[key][partition], survey.presence(key[0])).state)
        for key, offsets in found.items()
        if key[0] not in hidden
        for partition, offset in offsets.items()
    ]
    return rows, hidden


def _on_target(survey: Survey, memory: Mapping[GroupTopic, Mapping[int, Memory]]) -> dict[GroupTopic, dict[int, int]]:
    """Return the offsets on the target, by partition, that have no counterpart on the source, where we wrote one of them."""
    found: dict[GroupTopic, dict[int, int]] = {}
    for key, remembered in memory.items():
        here, there = (side.get(key[0], _NOTHING) for side in (survey.source_offsets, survey.target_offsets))
        if isinstance(here, Exception) or here.error or key[1] in here.topics:
            continue
        if isinstance(there, Exception) or key[1] not in there.topics:
            continue
        rows = {number: row for number, row in there.topics[key[1]].rows().items() if number in remembered}
        if any(remembered[number].is_ours(row.offset) for number, row in rows.items()):
            found[key] = {number: row.offset for number, row in rows.items()}
    return found


async def _hidden(source: Cluster, names: Collection[str]) -> dict[str, GroupOffsets]:
    """Return those of the groups that the source does not list, because this client may not describe them.

    A group that is deleted has a coordinator, and has committed nothing.
    """
    if not names:
        return {}
    nodes = await find_coordinators(source, names)
    found = await fetch_offsets(source, nodes, stable=False)
    refused = GroupOffsets({}, GROUP_AUTHORIZATION_FAILED)
    answers = {name: found.get(name, refused) for name in names}
    return {
        name: answer
        for name, answer in answers.items()
        if isinstance(answer, GroupOffsets) and answer.error == GROUP_AUTHORIZATION_FAILED
    }
