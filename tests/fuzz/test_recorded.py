"""Whether the recorded answers are complete: each conversation asks each side for what it is there for."""

from __future__ import annotations

from collections import defaultdict

import pytest
from fuzz.conversations import CONVERSATIONS, OLD
from fuzz.recording import ZNODE, ZOOKEEPER, load
from fuzz.replay import talk

from mirrormaker.offsets import consumer_protocol_groups
from mirrormaker.wire.protocol import fetch, group_messages, messages

_RECORD_AGAIN = "add them to a conversation (fuzz/conversations.py), then: python -m fuzz.recording"
_CLASSES = {name.removesuffix("Request"): name for name in messages.__all__ if name.endswith("Request")}
_KEYS = {name: getattr(messages, full_name).API_KEY for name, full_name in _CLASSES.items()} | {
    "Fetch": fetch.API_KEY,
    "ConsumerGroupDescribe": consumer_protocol_groups.API_KEY,
    "DescribeShareGroupOffsets": group_messages.DESCRIBE_SHARE_OFFSETS,
    "AlterShareGroupOffsets": group_messages.ALTER_SHARE_OFFSETS,
}
_MEMBER = "FindCoordinator JoinGroup SyncGroup Heartbeat LeaveGroup OffsetFetch"
# What each conversation asks the source and the target for, besides ApiVersions and Metadata, which all of them ask both for.
ASKED = {
    "mirror": (
        f"{_MEMBER} OffsetCommit DescribeConfigs ListOffsets Fetch",
        "CreateTopics DescribeConfigs InitProducerId ListOffsets Produce",
    ),
    "mirror-again": (f"{_MEMBER} ListOffsets Fetch", "DescribeConfigs ListOffsets"),
    "adopt": (f"{_MEMBER} OffsetCommit ListOffsets Fetch", "DescribeConfigs InitProducerId ListOffsets Fetch"),
    "map-rebuild": ("FindCoordinator OffsetFetch ListOffsets Fetch", "CreateTopics ListOffsets Fetch"),
    "offset-map": ("", "DescribeConfigs InitProducerId ListOffsets Fetch Produce"),
    "readiness": (
        "FindCoordinator ListGroups ListOffsets OffsetFetch DescribeShareGroupOffsets",
        "FindCoordinator ListGroups ListOffsets DescribeGroups Fetch",
    ),
    "groups": (
        "ListGroups ListOffsets OffsetFetch DescribeShareGroupOffsets",
        "FindCoordinator ListGroups ListOffsets OffsetFetch OffsetCommit DescribeShareGroupOffsets AlterShareGroupOffsets"
        " CreateTopics DescribeConfigs InitProducerId Fetch Produce",
    ),
    "failover": (
        "FindCoordinator ListGroups ListOffsets OffsetFetch DescribeGroups DescribeShareGroupOffsets",
        "ListGroups ListOffsets OffsetFetch DescribeShareGroupOffsets DescribeConfigs InitProducerId Fetch Produce",
    ),
    "offsets": ("FindCoordinator OffsetFetch ListOffsets DescribeGroups ConsumerGroupDescribe", ""),
    "new-protocol-offsets": ("FindCoordinator OffsetFetch ListOffsets DescribeGroups ConsumerGroupDescribe", ""),
    "survey": ("FindCoordinator OffsetFetch ListOffsets DescribeConfigs", "DescribeConfigs ListOffsets"),
    "read-log": ("Fetch", ""),
    "topics": ("CreatePartitions DescribeConfigs DescribeProducers ListGroups OffsetForLeaderEpoch", ""),
    "topics-" + OLD: ("CreateTopics ListGroups", ""),
    "login-plain": ("SaslHandshake SaslAuthenticate ListOffsets", ""),
    "login-scram-sha-256": ("SaslHandshake SaslAuthenticate ListOffsets", ""),
}
# Requests that the old source does not know, or is not asked for; it has no share groups, so nor has its target.
_NOT_OLD = {"ConsumerGroupDescribe", "DescribeConfigs", "DescribeShareGroupOffsets"}
_NOT_BESIDE_OLD = {"AlterShareGroupOffsets", "DescribeShareGroupOffsets"}


def asked(conversation: str) -> tuple[set[str], set[str]]:
    """Return the requests to the source and to the target that a conversation must have."""
    source, target = ASKED.get(conversation) or ASKED[conversation.removesuffix(f"-{OLD}")]
    if not conversation.endswith(OLD):
        return set(source.split()), set(target.split())
    return set(source.split()) - _NOT_OLD, set(target.split()) - _NOT_BESIDE_OLD


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_recorded_answers_are_answers_while_they_are_whole(name: str) -> None:
    """Otherwise damaged ones would never reach the code behind the first check.

    Peers repeat answers in their order. If the program asks for more than before, record again: python -m fuzz.recording.
    """
    rows = [row for row in load() if row.conversation == name]
    assert rows, f"record the answers again: python -m fuzz.recording ({name} has none)"
    talk(CONVERSATIONS[name], rows, may_fail=False)


def test_each_conversation_asks_each_side_for_all_that_it_is_there_for() -> None:
    ports: dict[str, list[int]] = defaultdict(list)
    found: set[tuple[str, int, int]] = set()
    for row in load():
        if row.port not in ports[row.conversation]:
            ports[row.conversation].append(row.port)
        found.add((row.conversation, ports[row.conversation].index(row.port), row.api_key))
    missing = [
        f"{conversation}: {request} of the {('source', 'target')[side]}"
        for conversation in CONVERSATIONS
        for side, requests in enumerate(asked(conversation))
        for request in sorted(requests)
        if (conversation, side, _KEYS[request]) not in found
    ]
    assert not missing, _RECORD_AGAIN
    assert ZNODE in {key for conversation, _, key in found if conversation == ZOOKEEPER}


def test_each_request_of_the_program_belongs_to_a_conversation() -> None:
    used = {request for conversation in CONVERSATIONS for side in asked(conversation) for request in side}
    assert _KEYS.keys() - used == {"ApiVersions", "Metadata"}, _RECORD_AGAIN


@pytest.mark.parametrize("name", ["groups", f"groups-{OLD}"])
def test_the_recorded_group_sync_commits_offsets(name: str) -> None:
    request = messages.OffsetCommitRequest
    rows = [row for row in load() if row.conversation == name and row.api_key == request.API_KEY]
    answers = [messages.decode_response(request, row.answer, row.version) for row in rows]
    assert {part.error_code for answer in answers for topic in answer.topics for part in topic.partitions} == {0}
