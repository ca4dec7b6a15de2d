"""Brokers' answers that refuse a whole request."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kafka.protocol.admin import ListGroupsResponse
from kafka.protocol.consumer import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.producer import InitProducerIdResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from mirrormaker.wire.protocol.codec import Reader, varint
from tests.support.answers import FetchAnswer, encode_fetch_answer

_MANY_KEYS, _MANY_GROUPS = 4, 8  # since these versions, FindCoordinator and OffsetFetch ask for several groups

# The version, the error code, and the body of the request -> the body of the answer.
Refuse = Callable[[int, int, bytes], bytes]


def encoded(message: Any, version: int) -> bytes:
    """Return a message of kafka-python as bytes."""
    message._header = None  # kafka-python's decoder does not set it, and its encoder asks for it
    body: bytes = message.encode(version=version)
    return body


def _whole(kind: Any, **fields: Any) -> Refuse:
    def answer(version: int, code: int, _: bytes) -> bytes:
        return encoded(kind(throttle_time_ms=0, error_code=code, **fields), version)

    return answer


def _coordinator(version: int, code: int, body: bytes) -> bytes:
    blank = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": None}
    rows = []
    if version >= _MANY_KEYS:
        asked: Any = FindCoordinatorRequest.decode(body, version=version)
        rows = [FindCoordinatorResponse.Coordinator(key=key, **blank) for key in asked.coordinator_keys]
    return encoded(FindCoordinatorResponse(throttle_time_ms=0, coordinators=rows, **blank), version)


def _offsets(version: int, code: int, body: bytes) -> bytes:
    rows = []
    if version >= _MANY_GROUPS:
        asked: Any = OffsetFetchRequest.decode(body, version=version)
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        rows = [group(group_id=row.group_id, error_code=code, topics=[]) for row in asked.groups]
    return encoded(OffsetFetchResponse(throttle_time_ms=0, error_code=code, topics=[], groups=rows), version)


def _share_offsets(_: int, code: int, body: bytes) -> bytes:
    """Refuse each of the share groups, about all of whose topics the mirror asks."""
    reader = Reader(memoryview(body), True)
    groups = []
    for _group in range(reader.length()):
        groups.append((reader.string() or "").encode())
        assert reader.length() == -1, "the mirror names topics of a share group"
        reader.skip_tags()
    rows = b"".join(varint(len(name) + 1) + name + b"\1" + struct.pack(">h", code) + b"\0\0" for name in groups)
    return bytes(4) + varint(len(groups) + 1) + rows + b"\0"


def _share_offsets_kept(_: int, code: int, body: bytes) -> bytes:
    return bytes(4) + struct.pack(">h", code) + b"\0" + b"\1" + b"\0"


def _handshake(version: int, code: int, _: bytes) -> bytes:
    return encoded(SaslHandshakeResponse(error_code=code, mechanisms=[]), version)


def _login(version: int, code: int, _: bytes) -> bytes:
    answer = SaslAuthenticateResponse(error_code=code, error_message="refused", auth_bytes=b"", session_lifetime_ms=0)
    return encoded(answer, version)


def _fetch(version: int, code: int, _: bytes) -> bytes:
    return encode_fetch_answer(version, FetchAnswer(code, [], None, []))


def _api_versions(version: int, code: int, _: bytes) -> bytes:
    """A broker answers an error in version 0, whatever the request's version is."""
    return struct.pack(">hi", code, 0)


WHOLE_ANSWERS: dict[str, Refuse] = {
    "FindCoordinator": _coordinator,
    "JoinGroup": _whole(
        JoinGroupResponse, generation_id=-1, protocol_type=None, protocol_name="", leader="", skip_assignment=False,
        member_id="", members=[],
    ),
    "SyncGroup": _whole(SyncGroupResponse, protocol_type=None, protocol_name=None, assignment=b""),
    "Heartbeat": _whole(HeartbeatResponse),
    "LeaveGroup": _whole(LeaveGroupResponse, members=[]),
    "ListGroups": _whole(ListGroupsResponse, groups=[]),
    "InitProducerId": _whole(InitProducerIdResponse, producer_id=-1, producer_epoch=-1),
    "OffsetFetch": _offsets,
    "DescribeShareGroupOffsets": _share_offsets,
    "AlterShareGroupOffsets": _share_offsets_kept,
    "Fetch": _fetch,
    "ApiVersions": _api_versions,
    "SaslHandshake": _handshake,
    "SaslAuthenticate": _login,
}  # fmt: skip
