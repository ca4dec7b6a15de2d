"""kafka-python's request and response classes: the only module that imports them.

kafka-python generates these classes from Kafka's own schemas. Fetch and Produce carry the payload and are framed by
hand instead (`fetch`, `produce`). Requests are encoded by kafka-python; answers are decoded by `schema_decoder`, because
kafka-python's decoder trusts the bytes that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import schema_decoder
from mirrormaker.wire.protocol.group_messages import ALTER_SHARE_OFFSETS, DESCRIBE_SHARE_OFFSETS

__all__ = [
    "ApiMessage",
    "ApiVersionsRequest",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "FindCoordinatorRequest",
    "HeartbeatRequest",
    "InitProducerIdRequest",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "ProduceRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "SyncGroupRequest",
    "decode_assignment",
    "decode_response",
    "decode_subscription",
    "longest_answer",
    "shares_of_members",
]


def _responses_by_api_key() -> dict[int, Any]:
    modules = (admin, consumer, metadata, producer, sasl)
    classes = [getattr(module, name) for module in modules for name in module.__all__]
    messages: list[Any] = [c for c in classes if isinstance(c, type) and issubclass(c, ApiMessage)]
    return {message.API_KEY: message for message in messages if not message.is_request()}


_RESPONSES = _responses_by_api_key()


# Bytes; a longer answer ends the connection. An answer that lists topics, partitions or members of a group can be long:
# 32 MB describe 200,000 partitions of 64,000 topics, or the offsets of a million partitions.
_LONGEST_ANSWER, _LONGEST_LIST = 1 << 20, 32 << 20
_SHORT_ANSWERS = frozenset(
    request.API_KEY
    for request in (
        ApiVersionsRequest,
        FindCoordinatorRequest,
        HeartbeatRequest,
        InitProducerIdRequest,
        LeaveGroupRequest,
        # A commit has a thousand partitions at most, and its answer less about each of them.
        OffsetCommitRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
    )
)
_PRODUCE, _FETCH, _CONSUMER_GROUP_DESCRIBE = 0, 1, 69
_LONGEST = {
    **dict.fromkeys(_SHORT_ANSWERS, _LONGEST_ANSWER),
    # 30 bytes for each partition of a request, and a hundred for each record that a compacted topic refuses.
    _PRODUCE: 64 << 20,
    # Records, whose size the request limits.
    _FETCH: 256 << 20,
    # One group, with the topics of each member and its partitions twice, or a hundred share groups.
    **dict.fromkeys((_CONSUMER_GROUP_DESCRIBE, DESCRIBE_SHARE_OFFSETS, ALTER_SHARE_OFFSETS), 8 << 20),
}


def longest_answer(api_key: int) -> int:
    """Return how many bytes an answer to this request may have."""
    return _LONGEST.get(api_key, _LONGEST_LIST)


def decode_response(request: type[ApiMessage], data: memoryview | bytes, version: int) -> Any:
    """Decode the answer to a request of this type; raise BadFrame if the bytes are malformed."""
    try:
        return schema_decoder.decode(_RESPONSES[request.API_KEY], memoryview(data), version)
    except BadFrame as error:
        raise BadFrame(f"the answer to {request.name} (version {version}) cannot be decoded: {error}") from error


# Work that decoding what all members of a group say may be. A coordinator keeps a group in one record, of 1 MB by default.
MOST_WORK_OF_GROUP = 4 << 20


def shares_of_members(sizes: Sequence[int]) -> list[int]:
    """Return how much work the bytes of each member may be, from how many they are.

    A byte is one unit of work at most. Members with few bytes leave the rest to those with many; none takes it from others.
    """
    left, shares = MOST_WORK_OF_GROUP, [0] * len(sizes)
    for done, member in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[member] = left // (len(sizes) - done)
        left -= min(shares[member], sizes[member])
    return shares


def decode_subscription(data: bytes, most_work: int = schema_decoder.MOST_WORK) -> ConsumerProtocolSubscription:
    """Decode what a consumer tells its group's leader when it joins; raise BadFrame if the bytes are malformed."""
    try:
        subscription = schema_decoder.decode_versioned(ConsumerProtocolSubscription, data, most_work)
        _check_numbers(subscription.owned_partitions)
        return subscription
    except BadFrame as error:
        raise BadFrame(f"a group member's subscription cannot be decoded: {error}") from error


def decode_assignment(data: bytes, most_work: int = schema_decoder.MOST_WORK) -> ConsumerProtocolAssignment:
    """Decode the partitions that a group's leader assigns to a member; raise BadFrame if the bytes are malformed."""
    try:
        assignment = schema_decoder.decode_versioned(ConsumerProtocolAssignment, data, most_work)
        _check_numbers(assignment.assigned_partitions)
        return assignment
    except BadFrame as error:
        raise BadFrame(f"a group member's assignment cannot be decoded: {error}") from error


def _check_numbers(topics: list[Any]) -> None:
    """Raise BadFrame for a negative partition number."""
    if any(number < 0 for topic in topics for number in topic.partitions):
        raise BadFrame("a partition has a negative number")
