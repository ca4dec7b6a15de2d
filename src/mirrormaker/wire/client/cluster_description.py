"""The description of a cluster by one of its brokers: the brokers, and the topics with their partitions and leaders."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from mirrormaker.wire.protocol.messages import ApiMessage
from mirrormaker.wire.transport.connection import read_answer

_NO_TOPIC_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's leader by node id, its epoch, and the number of replicas."""

    leader: int
    leader_epoch: int
    replicas: int


@dataclass(frozen=True)
class Topic:
    """A topic and its partitions; the id is all zeros where brokers have none (before Kafka 2.8)."""

    name: str
    id: bytes
    internal: bool
    partitions: dict[int, Partition] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """A broker's description of its cluster. `refused` are topics that it does not describe, and the error codes."""

    error: int
    id: str
    controller: int
    brokers: dict[int, tuple[str, int]]
    topics: dict[str, Topic]
    refused: dict[str, int]


class DescriptionReader:
    """Reads descriptions. One of the same bytes as the last one is not read again: thousands of partitions take a while."""

    def __init__(self) -> None:
        self._last: tuple[int, bytes, Description] | None = None

    def __call__(self, request: ApiMessage, data: memoryview, version: int) -> Description:
        raw = bytes(data)
        if self._last is None or self._last[:2] != (version, raw):
            self._last = version, raw, _description(read_answer(request, data, version))
        return self._last[2]


def _description(answer: Any) -> Description:
    usable = (_topic(topic) for topic in answer.topics if topic.error_code in (0, LEADER_NOT_AVAILABLE))
    found = {topic.name: topic for topic in usable if topic.partitions}
    refused = {
        topic.name: topic.error_code
        for topic in answer.topics
        if topic.error_code not in (0, UNKNOWN_TOPIC_OR_PARTITION) and topic.name and topic.name not in found
    }
    brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
    return Description(answer.error_code or 0, answer.cluster_id or "", answer.controller_id, brokers, found, refused)


# Thousands of partitions have few leaders and leader epochs: they share the values.
_partition = lru_cache(maxsize=1024)(Partition)


def _topic(answer: Any) -> Topic:
    rows = sorted(answer.partitions, key=lambda p: p.partition_index)
    partitions = {
        number: _partition(p.leader_id, max(-1, p.leader_epoch), len(p.replica_nodes))
        for number, p in enumerate(rows)
        # While a topic is created or grows, a broker leaves out a partition that never had a leader: those after it wait.
        if number == p.partition_index
    }
    topic_id = answer.topic_id.bytes if answer.topic_id is not None else _NO_TOPIC_ID
    return Topic(answer.name, topic_id, bool(answer.is_internal), partitions)
