"""Descriptions of clusters: as kafka-python decodes them, in every version, and nothing that no cluster can be."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from mirrormaker.errors import BadFrame
from mirrormaker.wire.client import cluster_description
from mirrormaker.wire.client.cluster_description import Description, Partition, decode_description
from mirrormaker.wire.protocol.codec import Reader
from tests.support.scripted_broker import metadata

VERSIONS = range(MetadataResponse.max_version + 1)
NEWEST = MetadataResponse.max_version
TOPIC = MetadataResponse.MetadataResponseTopic
PARTITION = TOPIC.MetadataResponsePartition


def decode(answer: Any, version: int = NEWEST) -> Description:
    return decode_description(bytes(answer.encode(version=version)), version)


def changed(change: Callable[[Any], None]) -> MetadataResponse:
    answer = metadata({1: 9092, 2: 9093}, {"orders": 2})
    change(answer)
    return answer


def partition(number: int, dice: random.Random) -> Any:
    replicas = list(range(dice.choice([1, 3, 200])))
    epoch, leader = dice.choice([0, 7, 1 << 20]), dice.choice([-1, 1, 2])
    return PARTITION(
        error_code=0, partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=replicas,
        isr_nodes=replicas[:1], offline_replicas=replicas[1:],
    )  # fmt: skip


def made_up(dice: random.Random) -> MetadataResponse:
    answer = metadata({1: 9092, 2: 9093}, {})
    answer.controller_id = dice.choice([-1, 2])
    for name, partitions in (("orders", 3), ("größe", 1), ("wide", 300), ("x" * 200, 1), ("empty", 0)):
        rows = [partition(number, dice) for number in range(partitions)]
        dice.shuffle(rows)
        row = TOPIC(
            error_code=0, name=name, topic_id=uuid.UUID(int=dice.getrandbits(128)), partitions=rows,
            is_internal=dice.random() < 0.5, authorized_operations=dice.choice([None, {3, 4}]),
        )  # fmt: skip
        answer.topics.append(row)
    answer.topics += [TOPIC(error_code=code, name=f"refused-{code}", partitions=[]) for code in (3, 5, 29)]
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_a_description_is_what_kafka_python_decodes(version: int) -> None:
    dice = random.Random(version)
    for _ in range(5):
        data = bytes(made_up(dice).encode(version=version))
        ours, theirs = decode_description(data, version), MetadataResponse.decode(data, version=version)
        assert (ours.id, ours.controller, ours.error) == (theirs.cluster_id or "", theirs.controller_id, 0)
        assert ours.brokers == {broker.node_id: (broker.host, broker.port) for broker in theirs.brokers}
        assert ours.refused == {"refused-5": 5, "refused-29": 29}
        listed = [topic for topic in theirs.topics if topic.partitions]
        assert list(ours.topics) == [topic.name for topic in listed]
        for topic in listed:
            found = ours.topics[topic.name]
            assert list(found.partitions) == list(range(len(topic.partitions)))
            assert found.internal == bool(topic.is_internal)
            assert found.id == (topic.topic_id.bytes if version >= 10 else bytes(16))
            assert found.partitions == {
                p.partition_index: Partition(p.leader_id, p.leader_epoch, len(p.replica_nodes))
                for p in topic.partitions
            }


def test_partitions_after_one_that_is_left_out_wait() -> None:
    assert list(decode(metadata({1: 9092}, {"orders": [3, 0, 1]})).topics["orders"].partitions) == [0, 1]
    assert not decode(metadata({1: 9092}, {"orders": [1]})).topics


def test_tagged_fields_are_skipped() -> None:
    data = bytes(metadata({1: 9092}, {"orders": 1}).encode(version=12))
    # The tagged fields of the partition, of its topic, and of the answer, with the operations of the topic before the second.
    plain, tagged = b"\x01\0\x80\0\0\0\0\0", b"\x01\x01\x63\x02ab\x80\0\0\0\0\0"
    assert data.endswith(plain)
    assert decode_description(data[: -len(plain)] + tagged, 12) == decode_description(data, 12)


# -- answers that are refused


@pytest.mark.parametrize("host", ["", "a host", "a\nhost", "a\0host", "x" * 256])
def test_a_broker_needs_a_host(host: str) -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: setattr(answer.brokers[0], "host", host)))


@pytest.mark.parametrize("port", [-1, 0, 65536, 2**31 - 1])
def test_a_broker_needs_a_port(port: int) -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: setattr(answer.brokers[0], "port", port)))


@pytest.mark.parametrize("node", [-1, 2])
def test_a_broker_needs_a_node_id_of_its_own(node: int) -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: setattr(answer.brokers[0], "node_id", node)))


@pytest.mark.parametrize("name", ["", None, "a\nline", "a\x1b[31m", "x" * 256])
def test_a_topic_needs_a_name_that_can_be_shown(name: str | None) -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: setattr(answer.topics[0], "name", name)))


def test_a_topic_that_was_refused_may_have_any_name() -> None:
    answer = metadata({1: 9092}, {"x" * 300: 0})
    answer.topics[0].error_code = 17
    assert list(decode(answer).refused.values()) == [17]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", [-1, 1])
def test_a_partition_needs_a_number_of_its_own(number: int, version: int) -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: setattr(answer.topics[0].partitions[0], "partition_index", number)), version)


def test_a_topic_occurs_once() -> None:
    with pytest.raises(BadFrame):
        decode(changed(lambda answer: answer.topics.append(answer.topics[0])))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_short_or_damaged_is_refused_or_read(version: int) -> None:
    dice = random.Random(version)
    whole = bytes(metadata({1: 9092, 2: 9093}, {"orders": 2, "payments": 1}).encode(version=version))
    # The tail of some versions is not looked at.
    for size in range(len(whole) - 10):
        with pytest.raises(BadFrame):
            decode_description(whole[:size], version)
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
        try:
            decode_description(bytes(damaged), version)
        except BadFrame:
            continue


# -- size


@pytest.mark.parametrize("version", [1, 7, 12])
def test_more_partitions_than_a_cluster_can_have_are_refused_before_they_are_read(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_description, "MOST_PARTITIONS", 100)
    # Two brokers count too, and a topic as three partitions.
    assert len(decode(metadata({1: 9092, 2: 9093}, {"orders": 95}), version).topics["orders"].partitions) == 95
    with pytest.raises(BadFrame, match="more than a broker can have"):
        decode(metadata({1: 9092, 2: 9093}, {"orders": 96}), version)


@pytest.mark.parametrize("version", [1, 12])
def test_a_partition_costs_neither_an_object_nor_a_call_for_each_field(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer about 262,144 partitions took two seconds and more, as an object with three lists for each."""
    calls = 0
    whole = Reader.take

    def counted(self: Reader, layout: Any) -> tuple[int, ...]:
        nonlocal calls
        calls += 1
        return whole(self, layout)

    monkeypatch.setattr(Reader, "take", counted)
    found = decode(metadata({1: 9092}, {"orders": 20_000}), version).topics["orders"].partitions
    assert len(found) == 20_000
    assert len({id(partition) for partition in found.values()}) == 1
    assert calls < 50
