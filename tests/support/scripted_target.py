"""A target cluster whose logs a test has written: it answers ListOffsets, Fetch, DescribeProducers and DescribeConfigs."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from kafka.protocol.admin import DescribeConfigsResponse, DescribeProducersResponse
from kafka.protocol.consumer import FetchRequest, ListOffsetsResponse

from mirrormaker.errors import UnsupportedRequest
from mirrormaker.model.position import Identity
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, EARLIEST
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.fetch import FetchedPartition
from mirrormaker.wire.protocol.messages import (
    DescribeConfigsRequest,
    DescribeProducersRequest,
    ListOffsetsRequest,
    decode_response,
)
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.transport.connection import Part
from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import NOW, Record, write_batch

FETCH = 12  # the newest Fetch request that has topics by name


class ScriptedLog:
    """One target partition, at its leader."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        # None: everything is replicated.
        self.high_watermark: int | None = None
        # The last number that the leader remembers of each producer; None: brokers before 2.8 cannot be asked.
        self.producers: dict[Identity, int] | None = {}
        self.batches_per_answer = 100

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return Batch(memoryview(self.batches[-1])).last_offset + 1 if self.batches else self.start

    def append(self, identity: Identity, sequence: int, count: int, *, gap: int = 0) -> None:
        """Append a batch of `count` records, after `gap` offsets whose records compaction has removed."""
        rows = [Record(NOW, None, b"%d" % (sequence + n)) for n in range(count)]
        self.batches.append(
            write_batch(
                rows, base_offset=self.end + gap, producer_id=identity.producer_id,
                producer_epoch=identity.epoch, base_sequence=sequence,
            ).data
        )  # fmt: skip

    def add(self, data: bytes | memoryview) -> int:
        """Append a batch as a producer has sent it, and return its base offset."""
        base, copy = self.end, bytearray(data)
        struct.pack_into(">q", copy, 0, base)
        self.batches.append(bytes(copy))
        return base

    def fetch(self, offset: int) -> bytes:
        """Return the batches from an offset on, as a broker does: beginning with the one that holds the offset."""
        replicated = self.end if self.high_watermark is None else self.high_watermark
        headers = [(Batch(memoryview(data)), data) for data in self.batches]
        found = [data for batch, data in headers if batch.last_offset >= offset and batch.last_offset < replicated]
        return b"".join(found[: self.batches_per_answer])


class _Broker:
    """A connection on which every Fetch request is answered at once."""

    def __init__(self, target: ScriptedTarget) -> None:
        self._target = target
        self.versions = {1: (4, FETCH), 0: (0, 12)}

    def request(self, key: int, version: int, flexible: bool, parts: list[Part]) -> asyncio.Future[memoryview]:
        """Answer a Fetch request for one partition."""
        self._target.asked["Fetch"] += 1
        request = FetchRequest.decode(b"".join(bytes(part) for part in parts), version=FETCH)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        log = self._target.logs[topic.topic, wanted.partition]
        records = memoryview(self._target.rewrite(log.fetch(wanted.fetch_offset)))
        part = FetchedPartition(
            topic.topic, wanted.partition, 0, log.end, log.end, log.start, np.empty((0, 2), np.int64), None, records
        )
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        body = encode_fetch_answer(FETCH, FetchAnswer(0, [(topic.topic, bytes(16), [part])], None, []))
        answer.set_result(memoryview(bytearray(body)))
        return answer


class ScriptedTarget(Cluster):
    """The cluster. `asked` counts its requests by name; `rewrite` may change what a Fetch request returns."""

    def __init__(self, logs: dict[TopicPartition, ScriptedLog], topic_id: bytes = bytes(16)) -> None:
        super().__init__(Endpoint((("nowhere", 1),)))
        self.logs = logs
        self.brokers = {1: ("a", 1)}
        self.asked: Counter[str] = Counter()
        self.rewrite: Callable[[bytes], bytes] = lambda records: records
        # By topic; a topic that is not here may not be described.
        self.settings: dict[str, dict[str, str]] = {}
        self.show(topic_id)

    def show(self, topic_id: bytes) -> None:
        """Give all topics this id in the metadata."""
        self.topics = {
            topic: Topic(topic, topic_id, False, {p: Partition(1, 0, 1) for t, p in self.logs if t == topic})
            for topic, _ in self.logs
        }

    async def connection(self, node: int, purpose: str = "control") -> Any:
        """Return a connection to the one broker."""
        return _Broker(self)

    async def refresh(self, topics: object = None, *, create: bool = False) -> None:
        """Count that the metadata was asked for."""
        self.asked["Metadata"] += 1

    async def ask(self, request: Any, node: int | None = None, **_: Any) -> Any:
        """Answer a request as a broker would, over the wire and back."""
        self.asked[request.name] += 1
        answer, version = self._answer(request)
        return decode_response(type(request), memoryview(answer.encode(version=version)), version)

    def _answer(self, request: Any) -> tuple[Any, int]:
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request), 5
        if isinstance(request, DescribeProducersRequest):
            return self._producers(request), 0
        assert isinstance(request, DescribeConfigsRequest)
        return self._configs(request), 2

    def _offsets(self, request: Any) -> Any:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse

        def offset(log: ScriptedLog, timestamp: int) -> int:
            if timestamp == EARLIEST:
                return log.start
            return (
                log.end if request.replica_id == DEBUGGING_REPLICA or log.high_watermark is None else log.high_watermark
            )

        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                topic(
                    name=t.name,
                    partitions=[
                        topic.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, error_code=0, timestamp=-1, leader_epoch=0,
                            offset=offset(self.logs[t.name, p.partition_index], p.timestamp),
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ],
        )  # fmt: skip

    def _producers(self, request: Any) -> Any:
        topic = DescribeProducersResponse.TopicResponse
        row = topic.PartitionResponse
        (wanted,) = request.topics
        (number,) = wanted.partition_indexes
        known = self.logs[wanted.name, number].producers
        if known is None:
            raise UnsupportedRequest("before 2.8")
        producers = [
            row.ProducerState(
                producer_id=identity.producer_id, producer_epoch=identity.epoch, last_sequence=last, last_timestamp=NOW,
                coordinator_epoch=-1, current_txn_start_offset=-1,
            )
            for identity, last in known.items()
        ]  # fmt: skip
        partition = row(partition_index=number, error_code=0, error_message=None, active_producers=producers)
        return DescribeProducersResponse(throttle_time_ms=0, topics=[topic(name=wanted.name, partitions=[partition])])

    def _configs(self, request: Any) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        row = result.DescribeConfigsResourceResult
        return DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                result(
                    error_code=0 if resource.resource_name in self.settings else 29,
                    error_message=None, resource_type=2, resource_name=resource.resource_name,
                    configs=[
                        row(name=name, value=value, read_only=False, config_source=1, is_sensitive=False, synonyms=[])
                        for name, value in self.settings.get(resource.resource_name, {}).items()
                        if name in resource.configuration_keys
                    ],
                )
                for resource in request.resources
            ],
        )  # fmt: skip
