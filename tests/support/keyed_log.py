"""A broker in this process with one partition that can be written and read: for topics of rows."""

from __future__ import annotations

import struct

import numpy as np
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import InitProducerIdResponse, ProduceRequest, ProduceResponse

from mirrormaker.wire.client.log_offsets import EARLIEST
from mirrormaker.wire.protocol.fetch import FetchedPartition
from mirrormaker.wire.records.batch import Batch
from tests.support.answers import FetchAnswer, encode_fetch_answer
from tests.support.batches import Damage
from tests.support.scripted_broker import FETCH, METADATA, PRODUCE, SILENT, Answer, ScriptedBroker, metadata

LIST_OFFSETS, INIT_PRODUCER_ID = 2, 22
LATE = -2  # in place of an error code


class KeyedLog(ScriptedBroker):
    """A leader that checks sequence numbers as Kafka's do. `errors` are the answers to the next Produce requests."""

    def __init__(self, topic: str) -> None:
        answers = {
            METADATA: self._metadata,
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            INIT_PRODUCER_ID: self._init_producer_id,
        }
        super().__init__(answers, {PRODUCE: 9, FETCH: 12})
        self.topic = topic
        self.batches: list[bytes] = []
        self.start = 0
        self.batches_per_answer = 2
        self.producers: dict[int, tuple[int, int]] = {}  # the epoch and the next number of each producer id
        self.allocated = 0
        # Error codes; None: the batch is appended, and no answer comes; LATE: it is kept for `append_late`, without an answer.
        self.errors: list[int | None] = []
        self.late: list[bytes] = []
        # Changes the records of the answers to Fetch requests.
        self.damage: Damage = lambda _: None
        # The high watermarks of the next answers to Fetch requests, where they are not the end of the log.
        self.high_watermarks: list[int] = []

    @property
    def end(self) -> int:
        """Return the log end offset."""
        return Batch(memoryview(self.batches[-1])).last_offset + 1 if self.batches else self.start

    def _metadata(self, _version: int, _body: bytes) -> MetadataResponse:
        return metadata({1: self.port}, {self.topic: 1})

    def _init_producer_id(self, _version: int, _body: bytes) -> InitProducerIdResponse:
        self.allocated += 1
        return InitProducerIdResponse(error_code=0, producer_id=self.allocated, producer_epoch=0)

    def _produce(self, version: int, body: bytes) -> Answer:
        ((topic,),) = (ProduceRequest.decode(body, version=version).topic_data,)
        (part,) = topic.partition_data
        error = self.errors.pop(0) if self.errors else 0
        base = -1
        if error == LATE:
            self.late.append(bytes(part.records))
            return SILENT
        if not error:
            code, base = self._append(bytearray(part.records))
            if error is None:
                return SILENT
            error = code
        row = ProduceResponse.TopicProduceResponse
        answer = row.PartitionProduceResponse(
            index=0, error_code=error, base_offset=base, log_append_time_ms=-1, log_start_offset=0, record_errors=[]
        )
        return ProduceResponse(responses=[row(name=self.topic, partition_responses=[answer])], throttle_time_ms=0)

    def _append(self, data: bytearray) -> tuple[int, int]:
        batch = Batch(memoryview(data))
        batch.check()
        epoch, wanted = self.producers.get(batch.producer_id, (batch.producer_epoch, batch.base_sequence))
        if batch.producer_epoch < epoch:
            return 47, -1
        wanted = wanted if batch.producer_epoch == epoch else 0
        if batch.base_sequence < wanted:
            return 46, -1
        if batch.base_sequence > wanted:
            return 45, -1
        base = self.end
        struct.pack_into(">q", data, 0, base)
        self.batches.append(bytes(data))
        self.producers[batch.producer_id] = batch.producer_epoch, wanted + batch.count
        return 0, base

    def append_late(self) -> list[int]:
        """Take the requests that were kept; return their error codes."""
        kept, self.late = self.late, []
        return [self._append(bytearray(data))[0] for data in kept]

    def _list_offsets(self, version: int, body: bytes) -> ListOffsetsResponse:
        request = ListOffsetsRequest.decode(body, version=version)
        offset = self.start if request.topics[0].partitions[0].timestamp == EARLIEST else self.end
        row = ListOffsetsResponse.ListOffsetsTopicResponse
        part = row.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=offset)
        return ListOffsetsResponse(throttle_time_ms=0, topics=[row(name=self.topic, partitions=[part])])

    def _fetch(self, version: int, body: bytes) -> bytes:
        request = FetchRequest.decode(body, version=version)
        offset = request.topics[0].partitions[0].fetch_offset
        found = [data for data in self.batches if Batch(memoryview(data)).last_offset >= offset]
        records = bytearray().join(found[: self.batches_per_answer])
        self.damage(records)
        high_watermark = self.high_watermarks.pop(0) if self.high_watermarks else self.end
        error = 0 if self.start <= offset <= self.end else 1
        part = FetchedPartition(
            self.topic, 0, error, high_watermark, high_watermark, self.start, np.empty((0, 2), np.int64), None,
            memoryview(b"" if error else records),
        )  # fmt: skip
        return bytes(encode_fetch_answer(version, FetchAnswer(0, [(self.topic, bytes(16), [part])], None, [])))
