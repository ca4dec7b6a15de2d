"""Fetch and Produce responses for tests: kafka-python encodes them."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import numpy as np
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from mirrormaker.wire.protocol.fetch import AbortedTransactions, FetchedPartition
from mirrormaker.wire.protocol.produce import Appended

NONE_ABORTED: AbortedTransactions = np.empty((0, 2), np.int64)


class FetchAnswer(NamedTuple):
    """A Fetch response: the values that our decoder returns, and others that a broker may add."""

    error: int
    topics: list[tuple[str, bytes, list[FetchedPartition]]]
    current_leader: tuple[int, int] | None
    endpoints: list[tuple[int, str, int, str | None]]
    session: int = 0

    def expected(self, version: int) -> tuple[int, list[tuple[Any, ...]]]:
        """Return what a decoder finds in this version: topic ids from 13 on, names before, and no younger fields."""
        parts = []
        for name, topic_id, fetched in self.topics:
            for part in fetched:
                part = part._replace(topic=topic_id if version >= 13 else name)
                if version < 5:
                    part = part._replace(log_start_offset=-1)
                if version < 4:
                    part = part._replace(last_stable_offset=part.high_watermark, aborted_transactions=NONE_ABORTED)
                if version < 12:
                    part = part._replace(diverging_epoch=None)
                parts.append(comparable(part))
        return self.error if version >= 7 else 0, parts


def comparable(part: FetchedPartition) -> tuple[Any, ...]:
    """Return a value that can be compared: with a list of transactions, and with records as bytes."""
    aborted = [tuple(map(int, row)) for row in part.aborted_transactions]
    return (*part[:-3], aborted, part.diverging_epoch, bytes(part.records))


def encode_fetch_answer(version: int, answer: FetchAnswer) -> bytes:
    """Return the body of a Fetch response."""
    topic, row = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData

    def partition(part: FetchedPartition) -> Any:
        tags: dict[str, Any] = {}
        if part.diverging_epoch is not None:
            epoch, end_offset = part.diverging_epoch
            tags["diverging_epoch"] = row.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if answer.current_leader is not None:
            leader, epoch = answer.current_leader
            tags["current_leader"] = row.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return row(
            partition_index=part.partition,
            error_code=part.error,
            high_watermark=part.high_watermark,
            last_stable_offset=part.last_stable_offset,
            log_start_offset=part.log_start_offset,
            aborted_transactions=[
                row.AbortedTransaction(producer_id=producer_id, first_offset=offset)
                for producer_id, offset in part.aborted_transactions.tolist()
            ],
            preferred_read_replica=-1,
            records=bytes(part.records),
            **tags,
        )

    node = FetchResponse.NodeEndpoint
    response = FetchResponse(
        throttle_time_ms=17,
        error_code=answer.error,
        session_id=answer.session,
        responses=[
            topic(topic=name, topic_id=as_uuid(topic_id), partitions=[partition(part) for part in parts])
            for name, topic_id, parts in answer.topics
        ],
        node_endpoints=[node(node_id=n, host=h, port=p, rack=r) for n, h, p, r in answer.endpoints],
    )
    encoded: bytes = response.encode(version=version)
    return encoded


class ProduceAnswer(NamedTuple):
    """A Produce response, with the tagged fields and the errors per record of younger versions."""

    topics: list[tuple[str, bytes, list[Appended]]]
    record_errors: list[tuple[int, str | None]]
    current_leader: tuple[int, int] | None
    endpoints: list[tuple[int, str, int, str | None]]

    def expected(self, version: int) -> list[Appended]:
        """Return what a decoder finds in this version: topic ids from 13 on, names before, and messages from 8 on."""
        parts = []
        for name, topic_id, rows in self.topics:
            for row in rows:
                message = row.message
                # The last message about a single record is better than none.
                if message is None:
                    message = next((text for _, text in reversed(self.record_errors) if text), None)
                parts.append(
                    row._replace(topic=topic_id if version >= 13 else name, message=message if version >= 8 else None)
                )
        return parts


def encode_produce_answer(version: int, answer: ProduceAnswer) -> bytes:
    """Return the body of a Produce response."""
    topic = ProduceResponse.TopicProduceResponse
    row = topic.PartitionProduceResponse

    def partition(part: Appended) -> Any:
        tags: dict[str, Any] = {}
        if answer.current_leader is not None:
            leader, epoch = answer.current_leader
            tags["current_leader"] = row.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return row(
            index=part.partition,
            error_code=part.error,
            base_offset=part.base_offset,
            log_append_time_ms=-1,
            log_start_offset=5,
            record_errors=[
                row.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text)
                for i, text in answer.record_errors
            ],
            error_message=part.message,
            **tags,
        )

    node = ProduceResponse.NodeEndpoint
    response = ProduceResponse(
        responses=[
            topic(name=name, topic_id=as_uuid(topic_id), partition_responses=[partition(part) for part in parts])
            for name, topic_id, parts in answer.topics
        ],
        throttle_time_ms=3,
        node_endpoints=[node(node_id=n, host=h, port=p, rack=r) for n, h, p, r in answer.endpoints],
    )
    encoded: bytes = response.encode(version=version)
    return encoded


def as_uuid(data: bytes) -> uuid.UUID:
    """Return a topic id in the form that kafka-python wants."""
    return uuid.UUID(bytes=data)
