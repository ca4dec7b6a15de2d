"""kafka-python's request and response classes: the only module that imports them.

kafka-python generates these classes from Kafka's own schemas. Fetch and Produce carry the payload and are framed by
hand instead (`fetch`, `produce`). kafka-python's decoder trusts the bytes that it is given; `decode_response` and the
two functions for the consumer protocol turn whatever it raises on malformed bytes into `BadFrame`.
"""

from __future__ import annotations

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

from mirrormaker.errors import BadFrame, describe

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
]


def _responses_by_api_key() -> dict[int, Any]:
    modules = (admin, consumer, metadata, producer, sasl)
    classes = [getattr(module, name) for module in modules for name in module.__all__]
    messages: list[Any] = [c for c in classes if isinstance(c, type) and issubclass(c, ApiMessage)]
    return {message.API_KEY: message for message in messages if not message.is_request()}


_RESPONSES = _responses_by_api_key()


def decode_response(request: type[ApiMessage], data: memoryview | bytes, version: int) -> Any:
    """Decode the answer to a request of this type; raise BadFrame if the bytes are malformed."""
    try:
        return _RESPONSES[request.API_KEY].decode(data, version=version)
    except Exception as error:
        raise _malformed(f"the answer to {request.name} (version {version})", error) from error


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode what a consumer tells its group's leader when it joins; raise BadFrame if the bytes are malformed."""
    try:
        return ConsumerProtocolSubscription.decode(data)
    except Exception as error:
        raise _malformed("a group member's subscription", error) from error


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode the partitions that a group's leader assigns to a member; raise BadFrame if the bytes are malformed."""
    try:
        return ConsumerProtocolAssignment.decode(data)
    except Exception as error:
        raise _malformed("a group member's assignment", error) from error


def _malformed(what: str, error: Exception) -> BadFrame:
    return BadFrame(f"{what} cannot be decoded: {describe(error)}")
