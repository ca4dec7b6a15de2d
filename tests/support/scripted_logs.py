"""Clusters of one broker whose logs a test writes: they answer Fetch, ListOffsets and InitProducerId, and count requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from kafka.protocol.consumer import FetchRequest, ListOffsetsResponse
from kafka.protocol.producer import InitProducerIdResponse

from mirrormaker.errors import ConnectionLost
from mirrormaker.kafka_errors import OFFSET_OUT_OF_RANGE
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.cluster_description import Partition, Topic
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, EARLIEST, LATEST
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.fetch import FetchedPartition
from mirrormaker.wire.protocol.messages import ApiMessage, InitProducerIdRequest, ListOffsetsRequest
from mirrormaker.wire.transport.connection import Connection
from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import Damage, Written

_VERSION = 12  # the newest Fetch request that has topics by name
Logs = Mapping[TopicPartition, Sequence[Written]]


class ScriptedLogs(Cluster):
    """A cluster with these logs. A partition without batches is empty."""

    def __init__(self, logs: Logs, name: str = "there") -> None:
        super().__init__(Endpoint(((name, 9092),)))
        self.id, self.brokers = name, {1: (name, 9092)}
        self.logs = dict(logs)
        self.aborted: list[tuple[int, int]] = []
        # By partition: the high watermarks that the next requests find, before it reaches the end of the log.
        self.high_watermarks: dict[TopicPartition, list[int]] = {}
        self.outages = 0  # so many of the next fetches fail
        # Changes the records of the answers to fetches.
        self.damage: Damage = lambda _: None
        # The high watermarks of the next fetches, where they are not the end of the log.
        self.fetched_high_watermarks: list[int] = []
        self.fetches = self.offset_requests = self.allocated = self.bytes = 0
        for topic, _ in self.logs:
            numbers = {partition for name, partition in self.logs if name == topic}
            self.topics[topic] = Topic(topic, bytes(16), False, {n: Partition(1, 0, 1) for n in numbers})

    async def connection(self, node: int, purpose: str = "control") -> Any:
        """Return a connection that knows Fetch and ListOffsets."""
        return _Connection(self)

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Find everything as it was."""

    async def knows(self, message: type[ApiMessage]) -> bool:
        """Return True: the broker is young."""
        return True

    async def ask(self, request: Any, node: int | None = None, **_: Any) -> Any:
        """Answer ListOffsets and InitProducerId, after a turn of the event loop, as a real broker would."""
        await asyncio.sleep(0)
        if isinstance(request, InitProducerIdRequest):
            self.allocated += 1
            return InitProducerIdResponse(error_code=0, producer_id=5000 + self.allocated, producer_epoch=0)
        assert isinstance(request, ListOffsetsRequest)
        self.offset_requests += 1
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        row = topic.ListOffsetsPartitionResponse
        return ListOffsetsResponse(
            topics=[
                topic(
                    name=wanted.name,
                    partitions=[
                        row(
                            partition_index=part.partition_index,
                            error_code=0,
                            offset=self._offset(
                                (wanted.name, part.partition_index), part.timestamp, request.replica_id
                            ),
                        )
                        for part in wanted.partitions
                    ],
                )
                for wanted in request.topics
            ]
        )

    async def ask_times(self, request: Any, times: int) -> list[Any]:
        """Answer as often as asked."""
        return [await self.ask(request) for _ in range(times)]

    def _offset(self, key: TopicPartition, when: int, replica: int) -> int:
        log = self.logs[key]
        if when == EARLIEST:
            return log[0].base_offset if log else 0
        if when == LATEST:
            marks = self.high_watermarks.get(key)
            if marks and replica != DEBUGGING_REPLICA:
                return marks.pop(0)
            return log[-1].last_offset + 1 if log else 0
        records = ((offset, row) for batch in log for offset, row in zip(batch.offsets, batch.records, strict=True))
        return next((offset for offset, row in records if row.timestamp >= when), -1)

    def fetch(self, body: bytes) -> bytes:
        """Answer a Fetch request for one partition."""
        if self.outages:
            self.outages -= 1
            raise ConnectionLost("scripted")
        self.fetches += 1
        request = FetchRequest.decode(body, version=_VERSION)
        (topic,) = request.topics
        (part,) = topic.partitions
        log = self.logs[topic.topic, part.partition]
        start, end = (log[0].base_offset, log[-1].last_offset + 1) if log else (0, 0)
        data = b""
        for batch in log:
            if batch.last_offset >= part.fetch_offset:
                if data and len(data) + len(batch.data) > part.partition_max_bytes:
                    break
                data += batch.data
        self.bytes += len(data)
        records = bytearray(data)
        self.damage(records)
        high_watermark = self.fetched_high_watermarks.pop(0) if self.fetched_high_watermarks else end
        error = 0 if start <= part.fetch_offset <= end else OFFSET_OUT_OF_RANGE
        aborted = np.array(self.aborted if request.isolation_level else [], np.int64).reshape(-1, 2)
        fetched = FetchedPartition(
            topic.topic, part.partition, error, high_watermark, high_watermark, start, aborted, None,
            memoryview(b"" if error else records),
        )  # fmt: skip
        return encode_fetch_answer(_VERSION, FetchAnswer(0, [(topic.topic, bytes(16), [fetched])], None, []))


class _Connection:
    """A connection to the broker."""

    answered_within = Connection.answered_within

    def __init__(self, cluster: ScriptedLogs) -> None:
        self._cluster = cluster
        self.versions = {1: (0, _VERSION)}

    def best_version(self, message: type[ApiMessage]) -> int:
        """Return the newest version of a request."""
        return int(message.max_version)

    def request(self, api_key: int, version: int, flexible: bool, parts: Sequence[bytes]) -> asyncio.Future[memoryview]:
        """Answer a Fetch request at once."""
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(memoryview(self._cluster.fetch(b"".join(parts))))
        except ConnectionLost as error:
            future.set_exception(error)
        return future
