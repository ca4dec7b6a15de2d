"""Answers that can be decoded and are no answers to their requests: BadFrame, and nothing that the program would believe."""

from __future__ import annotations

from typing import Any

import pytest

from mirrormaker.errors import BadFrame
from mirrormaker.wire.protocol import messages
from mirrormaker.wire.protocol.answer_checks import check_answer
from tests.support.memory import peak


def answer_to(request: Any, **fields: Any) -> Any:
    """Return a response to a request; the fields that are not named are 0 or empty."""
    return messages._RESPONSES[request.API_KEY](**fields)


def rows(kind: Any, *values: dict[str, Any]) -> list[Any]:
    return [kind(**value) for value in values]


def assert_refused(request: Any, answer: Any) -> None:
    with pytest.raises(BadFrame, match=f"the answer to {request.name} makes no sense"):
        check_answer(request, answer)


# -- brokers


@pytest.mark.parametrize("host", ["", "a host", "a\nhost", "a\0host", "x" * 256])
def test_a_coordinator_needs_a_host(host: str) -> None:
    request = messages.FindCoordinatorRequest(key="group", key_type=0)
    assert_refused(request, answer_to(request, error_code=0, node_id=1, host=host, port=9092))
    check_answer(request, answer_to(request, error_code=15, node_id=-1, host=host, port=-1))


# -- groups

JOIN = messages.JoinGroupRequest(group_id="group")
MEMBER = messages.JoinGroupResponse.JoinGroupResponseMember


def joined(**changes: Any) -> Any:
    members = rows(MEMBER, {"member_id": "us", "metadata": b""}, {"member_id": "you", "metadata": b""})
    fields = {"error_code": 0, "generation_id": 1, "leader": "us", "member_id": "us", "members": members, **changes}
    return answer_to(JOIN, **fields)


def test_a_member_has_joined() -> None:
    check_answer(JOIN, joined())
    check_answer(JOIN, joined(error_code=25, member_id="", leader="", generation_id=-1, members=[]))
    check_answer(JOIN, joined(error_code=79, leader="", generation_id=-1, members=[]))


@pytest.mark.parametrize(
    "changes",
    [
        {"member_id": ""},
        {"member_id": "x" * 32768},
        {"leader": ""},
        {"generation_id": -1},
        {"members": rows(MEMBER, {"member_id": "us", "metadata": b""}, {"member_id": "us", "metadata": b""})},
        {"error_code": 79, "member_id": ""},
    ],
)
def test_a_member_needs_an_id_a_leader_and_a_generation(changes: dict[str, Any]) -> None:
    assert_refused(JOIN, joined(**changes))


def partitions(kind: Any, wanted: dict[str, list[int]], **fields: Any) -> list[Any]:
    """Return topics of a request or a response, with partitions of which all have the same fields."""
    (inner,) = (field for field in kind._struct.fields.values() if field.is_struct_array())
    number = "partition_index" if "partition_index" in inner.fields else "partition"
    name = "name" if "name" in kind._struct.fields else "topic"
    return [
        kind(**{name: topic, inner.name: [inner.data_class(**{number: p}, **fields) for p in numbers]})
        for topic, numbers in wanted.items()
    ]


WANTED = {"orders": [0, 1], "payments": [0]}
NOT_AS_ASKED: list[dict[str, list[int]]] = [
    {},
    {"orders": [0, 1]},
    {"orders": [0], "payments": [0]},
    {**WANTED, "foreign": [0]},
    {"orders": [0, 1, 2], "payments": [0]},
    {"orders": [0, 0, 1], "payments": [0]},
]


def commit(wanted: dict[str, list[int]]) -> tuple[Any, Any]:
    request = messages.OffsetCommitRequest(
        topics=partitions(messages.OffsetCommitRequest.OffsetCommitRequestTopic, WANTED)
    )
    kind = messages._RESPONSES[request.API_KEY].OffsetCommitResponseTopic
    return request, answer_to(request, topics=partitions(kind, wanted, error_code=0))


def committed(wanted: dict[str, list[int]], offset: int = 7, error: int = 0) -> tuple[Any, Any]:
    topic = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    request = messages.OffsetFetchRequest(topics=[topic(name=n, partition_indexes=p) for n, p in WANTED.items()])
    kind = messages._RESPONSES[request.API_KEY].OffsetFetchResponseTopic
    found = partitions(kind, wanted, committed_offset=offset, metadata="", error_code=error)
    return request, answer_to(request, error_code=0, topics=found)


def offsets(
    wanted: dict[str, list[int]], offset: int = 7, error: int = 0, when: int = -1, old: tuple[int, ...] = ()
) -> tuple[Any, Any]:
    request = messages.ListOffsetsRequest(
        topics=partitions(messages.ListOffsetsRequest.ListOffsetsTopic, WANTED, timestamp=when)
    )
    kind = messages._RESPONSES[request.API_KEY].ListOffsetsTopicResponse
    found = partitions(kind, wanted, offset=offset, error_code=error, old_style_offsets=list(old))
    return request, answer_to(request, topics=found)


def leader_epochs(wanted: dict[str, list[int]]) -> tuple[Any, Any]:
    kind = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    request = messages.OffsetForLeaderEpochRequest(topics=partitions(kind, WANTED))
    kind = messages._RESPONSES[request.API_KEY].OffsetForLeaderTopicResult
    return request, answer_to(request, topics=partitions(kind, wanted, error_code=0, end_offset=7))


def producers(wanted: dict[str, list[int]]) -> tuple[Any, Any]:
    topic = messages.DescribeProducersRequest.TopicRequest
    request = messages.DescribeProducersRequest(topics=[topic(name=n, partition_indexes=p) for n, p in WANTED.items()])
    kind = messages._RESPONSES[request.API_KEY].TopicResponse
    return request, answer_to(request, topics=partitions(kind, wanted, error_code=0, active_producers=[]))


@pytest.mark.parametrize("make", [commit, committed, offsets, leader_epochs, producers])
def test_an_answer_is_about_the_partitions_that_were_asked_for(make: Any) -> None:
    check_answer(*make(WANTED))
    for found in NOT_AS_ASKED:
        assert_refused(*make(found))


def test_an_answer_about_countless_partitions_is_not_compared_with_the_request() -> None:
    """A set of a hundred thousand partitions takes twice the memory of the answer."""
    (request, _), (_, answer) = commit({"orders": [0, 1]}), commit({"orders": list(range(100_000))})

    def run() -> None:
        with pytest.raises(BadFrame, match="it is about more than the"):
            check_answer(request, answer)

    assert peak(run) < 1 << 20


def test_an_answer_with_all_offsets_of_a_group_names_each_partition_once() -> None:
    request, answer = committed({"others": [3, 9]})
    request.topics = None
    check_answer(request, answer)
    for found in ({"others": [3, 3]}, {"others": [-1]}, {"a\nline": [0]}):
        assert_refused(request, committed(found)[1])
    _, failed = committed({})
    failed.error_code = 16
    check_answer(committed(WANTED)[0], failed)


def test_a_committed_offset_is_not_negative_unless_there_is_none() -> None:
    check_answer(*committed(WANTED, -1))
    check_answer(*committed(WANTED, -2, error=3))
    assert_refused(*committed(WANTED, -2))


def test_the_start_and_the_end_of_a_log_are_not_negative() -> None:
    check_answer(*offsets(WANTED, -1, error=6))
    check_answer(*offsets(WANTED, -1, when=1_700_000_000_000))
    check_answer(*offsets(WANTED, -1, old=(7,)))
    assert_refused(*offsets(WANTED, -1))
    assert_refused(*offsets(WANTED, -1, when=-2))
    assert_refused(*offsets(WANTED, -2, when=1_700_000_000_000))
    assert_refused(*offsets(WANTED, old=(-7,)))


# -- producer ids, topics and settings


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_a_producer_id_is_not_negative(producer_id: int, epoch: int) -> None:
    request = messages.InitProducerIdRequest()
    check_answer(request, answer_to(request, error_code=0, producer_id=0, producer_epoch=0))
    check_answer(request, answer_to(request, error_code=14, producer_id=producer_id, producer_epoch=epoch))
    assert_refused(request, answer_to(request, error_code=0, producer_id=producer_id, producer_epoch=epoch))


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "c"], ["a", "a"], ["a", "a", "b"]])
def test_an_answer_is_about_the_topics_that_were_asked_for(names: list[str]) -> None:
    create = messages.CreateTopicsRequest(
        topics=[messages.CreateTopicsRequest.CreatableTopic(name=name) for name in "ab"]
    )
    result = messages._RESPONSES[create.API_KEY].CreatableTopicResult
    check_answer(create, answer_to(create, topics=[result(name=name) for name in "ba"]))
    assert_refused(create, answer_to(create, topics=[result(name=name) for name in names]))
    kind = messages.CreatePartitionsRequest.CreatePartitionsTopic
    grow = messages.CreatePartitionsRequest(topics=[kind(name=name) for name in "ab"])
    result = messages._RESPONSES[grow.API_KEY].CreatePartitionsTopicResult
    check_answer(grow, answer_to(grow, results=[result(name=name) for name in "ba"]))
    assert_refused(grow, answer_to(grow, results=[result(name=name) for name in names]))
    describe = messages.DescribeGroupsRequest(groups=["a", "b"])
    group = messages._RESPONSES[describe.API_KEY].DescribedGroup
    check_answer(describe, answer_to(describe, groups=[group(group_id=name) for name in "ab"]))
    assert_refused(describe, answer_to(describe, groups=[group(group_id=name) for name in names]))


def settings(value: str | None, name: str = "max.message.bytes", resource: str = "orders") -> tuple[Any, Any]:
    keys = ["max.message.bytes", "cleanup.policy"]
    kind = messages.DescribeConfigsRequest.DescribeConfigsResource
    asked = kind(resource_type=2, resource_name="orders", configuration_keys=keys)
    request = messages.DescribeConfigsRequest(resources=[asked])
    result = messages._RESPONSES[request.API_KEY].DescribeConfigsResult
    setting = result.DescribeConfigsResourceResult(name=name, value=value)
    row = result(error_code=0, resource_type=2, resource_name=resource, configs=[setting])
    return request, answer_to(request, results=[row])


@pytest.mark.parametrize("value", [None, "", "-1", "many", "1e6", "9" * 20])
def test_a_limit_is_a_number(value: str | None) -> None:
    check_answer(*settings("1048588"))
    check_answer(*settings(value, "cleanup.policy"))
    assert_refused(*settings(value))


def test_settings_are_those_of_the_resource_that_was_asked_for() -> None:
    assert_refused(*settings("1048588", "retention.ms"))
    assert_refused(*settings("1048588", resource="payments"))
    request, answer = settings("1048588")
    answer.results = []
    assert_refused(request, answer)


def test_a_request_without_a_check_takes_every_answer() -> None:
    request = messages.HeartbeatRequest()
    check_answer(request, answer_to(request, error_code=-5))
