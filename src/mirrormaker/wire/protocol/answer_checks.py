"""Refuse answers that can be decoded and yet are no answers to their requests.

The rest of the program relies on these checks: an answer names each thing that was asked for once, a broker has an address,
and offsets, ids and partition numbers are what Kafka makes them. An answer with an error code is not checked any further.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from typing import Any

from mirrormaker.errors import BadFrame
from mirrormaker.kafka_errors import MEMBER_ID_REQUIRED
from mirrormaker.wire.protocol.messages import (
    ApiMessage,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    decode_response,
)

# Kafka's limit for names of topics is 249 characters; before 0.10 it was 255.
_LONGEST_NAME = 255
_LONGEST_HOST = 255  # by DNS
_LONGEST_STRING = (1 << 15) - 1  # bytes of a string in a request that is not flexible
_MAX_PORT = 65535
# Settings that the program uses as numbers.
_NUMBERS = frozenset({"max.message.bytes", "producer.id.expiration.ms"})


def check_answer(request: ApiMessage, answer: Any) -> None:
    """Raise BadFrame if a decoded answer does not fit its request."""
    check = _CHECKS.get(type(request))
    if check is None:
        return
    try:
        check(request, answer)
    except BadFrame as error:
        raise BadFrame(f"the answer to {request.name} makes no sense: {error}") from error


def read_offsets(request: ApiMessage, data: memoryview, version: int) -> Any:
    """Decode and check what any group has committed: an application can commit a negative number, which is no offset."""
    answer = decode_response(type(request), data, version)
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.committed_offset = max(-1, partition.committed_offset)
    check_answer(request, answer)
    return answer


def check_topic_name(topic: str) -> None:
    """Raise BadFrame for a name that no topic can have."""
    _require(0 < len(topic) <= _LONGEST_NAME and topic.isprintable(), "a topic has a name that no topic can have")


def _coordinator(request: Any, answer: Any) -> None:
    if request.coordinator_keys:
        _check_same(request.coordinator_keys, (row.key for row in answer.coordinators))
        for row in answer.coordinators:
            if row.error_code == 0:
                _check_broker(row)
    elif answer.error_code == 0:
        _check_broker(answer)


def _check_broker(broker: Any) -> None:
    check_address(broker.node_id, broker.host, broker.port)


def check_address(node: int, host: str, port: int) -> None:
    """Raise BadFrame for an address that no broker can have."""
    is_host = 0 < len(host) <= _LONGEST_HOST and host.isprintable() and " " not in host
    if node < 0 or not is_host or not 0 < port <= _MAX_PORT:
        raise BadFrame("a broker has an impossible address")


def _join_group(_request: Any, answer: Any) -> None:
    if answer.error_code in (0, MEMBER_ID_REQUIRED):
        _check_member(answer.member_id)
    if answer.error_code == 0:
        _check_member(answer.leader)
        _require(answer.generation_id >= 0, "a generation has a negative number")
        for member in answer.members:
            _check_member(member.member_id)
        _check_unique("members", [member.member_id for member in answer.members])


def _check_member(name: str) -> None:
    _require(0 < len(name.encode()) <= _LONGEST_STRING, "a member of the group has no id, or one that is too long")


def _offset_commit(request: Any, answer: Any) -> None:
    asked = ((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    _check_same(asked, ((t.name, p.partition_index) for t in answer.topics for p in t.partitions))


def _offset_fetch(request: Any, answer: Any) -> None:
    if answer.error_code:
        return
    rows = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
    found = [(name, partition.partition_index) for name, partition in rows]
    if request.topics is not None:
        _check_same(((t.name, number) for t in request.topics for number in t.partition_indexes), found)
    _check_unique("partitions", found)
    for name, partition in rows:
        check_topic_name(name)
        _require(partition.partition_index >= 0, "a partition has a negative number")
        _require(partition.error_code != 0 or partition.committed_offset >= -1, "a committed offset is negative")


def _list_offsets(request: Any, answer: Any) -> None:
    asked = {(t.name, p.partition_index): p.timestamp for t in request.topics for p in t.partitions}
    _check_same(asked, [(t.name, p.partition_index) for t in answer.topics for p in t.partitions])
    for topic in answer.topics:
        for p in topic.partitions:
            # Before 0.10.1 the offset is the first of a list. There may be none at or after a time.
            offset = p.old_style_offsets[0] if p.old_style_offsets else p.offset
            least = 0 if asked[topic.name, p.partition_index] < 0 else -1
            _require(p.error_code != 0 or offset >= least, "an offset is negative")


def _offset_for_leader_epoch(request: Any, answer: Any) -> None:
    asked = ((t.topic, p.partition) for t in request.topics for p in t.partitions)
    _check_same(asked, ((t.topic, p.partition) for t in answer.topics for p in t.partitions))


def _describe_producers(request: Any, answer: Any) -> None:
    asked = ((t.name, number) for t in request.topics for number in t.partition_indexes)
    _check_same(asked, ((t.name, p.partition_index) for t in answer.topics for p in t.partitions))


def _init_producer_id(_request: Any, answer: Any) -> None:
    # A broker takes the id -1 with any numbers and checks none of them.
    is_id = answer.producer_id >= 0 and answer.producer_epoch >= 0
    _require(answer.error_code != 0 or is_id, "a producer id is negative")


def _create_topics(request: Any, answer: Any) -> None:
    _check_same((topic.name for topic in request.topics), (topic.name for topic in answer.topics))


def _create_partitions(request: Any, answer: Any) -> None:
    _check_same((topic.name for topic in request.topics), (result.name for result in answer.results))


def _describe_configs(request: Any, answer: Any) -> None:
    asked = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    _check_same(asked, [(result.resource_type, result.resource_name) for result in answer.results])
    for result in answer.results:
        keys = asked[result.resource_type, result.resource_name].configuration_keys
        for setting in result.configs:
            _require(keys is None or setting.name in keys, "a setting was not asked for")
            if setting.name in _NUMBERS:
                is_number = setting.value is not None and len(setting.value) < 20 and setting.value.isdecimal()
                _require(is_number, f"the setting {setting.name} is not a number")


def _describe_groups(request: Any, answer: Any) -> None:
    _check_same(request.groups, (group.group_id for group in answer.groups))


def _require(is_possible: bool, otherwise: str) -> None:
    if not is_possible:
        raise BadFrame(otherwise)


def _check_unique(kind: str, names: Collection[Hashable]) -> None:
    _require(len(set(names)) == len(names), f"some {kind} occur twice")


def _check_same(asked: Iterable[Hashable], answered: Iterable[Hashable]) -> None:
    """Raise BadFrame unless the answer is about everything that was asked for, and about nothing else."""
    wanted = set(asked)
    found = list(islice(answered, len(wanted) + 1))
    missing, foreign = wanted.difference(found), set(found) - wanted
    if len(found) > len(wanted):
        raise BadFrame(f"it is about more than the {len(wanted)} things that were asked for")
    if missing or foreign:
        raise BadFrame(f"{len(foreign)} things in it were not asked for, and {len(missing)} are missing")


_CHECKS: dict[type[ApiMessage], Callable[[Any, Any], None]] = {
    CreatePartitionsRequest: _create_partitions,
    CreateTopicsRequest: _create_topics,
    DescribeConfigsRequest: _describe_configs,
    DescribeGroupsRequest: _describe_groups,
    DescribeProducersRequest: _describe_producers,
    FindCoordinatorRequest: _coordinator,
    InitProducerIdRequest: _init_producer_id,
    JoinGroupRequest: _join_group,
    ListOffsetsRequest: _list_offsets,
    OffsetCommitRequest: _offset_commit,
    OffsetFetchRequest: _offset_fetch,
    OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
}
