"""Asking the target's own log how far a source partition got there."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from crc32c import crc32c

from mirrormaker.errors import BadFrame, BrokerError, NumbersBroken, UnsupportedRequest, raise_for
from mirrormaker.kafka_errors import (
    LEADER_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
)
from mirrormaker.model.numbers import Channel, Seen
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.client.cluster import Cluster, Partition
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, EARLIEST, LATEST, list_offsets
from mirrormaker.wire.protocol import fetch, produce
from mirrormaker.wire.protocol.messages import DescribeProducersRequest
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import Records, unpack

_SCAN_BYTES = 8 << 20  # one answer of the scan; a ledger entry is at most 64 MB old
_SCAN_UNPACKED = 1 << 30  # of the last batch found: our own, so no larger than what was sent
_STUCK = 2.0  # seconds for which replicas may lag behind; more is a reason to look closer
_AGAIN_MS = 1000  # how long a broker may hold such a request
_POLL = 0.02  # seconds between looks at a high watermark that has not reached the log end


@dataclass(frozen=True)
class Found:
    """The last of our records on the target: what the source must show at the same place.

    Key, value and headers alone: the target may have given it another timestamp, and compressed it anew.
    """

    size: int
    checksum: int

    @classmethod
    def of(cls, records: Records, index: int) -> Found:
        tail = records.tail(index)
        return cls(len(tail), crc32c(tail))


@dataclass(frozen=True)
class Again:
    """The batch that comes next, just as it was sent before: it is not known whether it was appended."""

    data: bytes
    topic_id: bytes
    max_timestamp: int


async def read_back(
    target: Cluster, topic: str, channel: Channel, again: Again | None = None
) -> tuple[int, Found | None]:
    """How many records after the cut the target already holds, and the last batch of them."""
    _leader(target, topic, channel.partition)
    end = await _replicated_end(target, topic, channel.partition, again)
    if end < channel.offset:
        raise NumbersBroken(
            f"the target's log ends at {end}, before offset {channel.offset} which it had acknowledged:"
            " records were lost there (an unclean election?)"
        )
    start = await _offset(target, topic, channel.partition, EARLIEST)
    beheaded = start > channel.offset
    start = max(start, channel.offset)
    seen: list[Seen] = []
    last: Batch | None = None
    while start < end:
        batches = await _fetch(target, topic, channel.partition, start)
        for batch in batches:
            identity = Identity(batch.producer_id, batch.producer_epoch)
            if batch.last_offset >= start and identity == channel.identity and not batch.is_control:
                seen.append(
                    Seen(
                        batch.base_offset, batch.last_offset, identity,
                        batch.base_sequence, batch.last_sequence, batch.count,
                    )
                )  # fmt: skip
                last = batch
        if not batches:  # or only messages of an older format, which nobody writes any more
            raise BrokerError(
                NOT_LEADER_OR_FOLLOWER, f"the target shows nothing of {topic}-{channel.partition} at offset {start}"
            )
        start = batches[-1].last_offset + 1
    if beheaded and not seen:
        seen = await _remembered(target, topic, channel, end)
    return channel.resume(seen, beheaded=beheaded), _last_record(last) if last is not None else None


async def read_last(target: Cluster, topic: str, cut: Cut) -> Found | None:
    """The record right before a cut's offset, which is ours, if it is still there."""
    try:
        batches = await _fetch(target, topic, cut.partition, cut.offset - 1) if cut.offset else []
    except BrokerError as error:
        if error.code != OFFSET_OUT_OF_RANGE:
            raise
        return None
    last = next((batch for batch in batches if batch.last_offset == cut.offset - 1), None)
    return _last_record(last) if last is not None else None


def _last_record(batch: Batch) -> Found | None:
    """Unless compaction has removed it: then nothing can be compared."""
    records = unpack(Batches.of(batch), _SCAN_UNPACKED)
    if not len(records) or records.offsets[-1] != batch.last_offset:
        return None
    return Found.of(records, -1)


async def _remembered(target: Cluster, topic: str, channel: Channel, end: int) -> list[Seen]:
    """What the leader remembers of us though none of it is left: a claim at most, used only where the log is silent."""
    leader = target.leader(topic, channel.partition)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[channel.partition])]
    )
    try:
        answer = await target.ask(request, leader.leader if leader else None)
    except UnsupportedRequest:
        return []  # before Kafka 2.8: the ledger is all there is
    for producer in answer.topics[0].partitions[0].active_producers or ():
        if Identity(producer.producer_id, producer.producer_epoch) == channel.identity and producer.last_sequence >= 0:
            return [Seen(end - 1, end - 1, channel.identity, producer.last_sequence, producer.last_sequence, 1)]
    return []


async def _replicated_end(target: Cluster, topic: str, partition: int, again: Again | None) -> int:
    """The leader's log end, once all of it is replicated: what lies beyond the high watermark may still vanish.

    Under `min.insync.replicas` a leader of Kafka 4 does not move its high watermark; when enough replicas are there again because
    the setting was lowered, it moves it only at the next append. So a batch of which it is not known whether it was appended
    is sent once more: a broker answers it as the duplicate that it is, and looks at its high watermark.
    """
    end = await _offset(target, topic, partition, LATEST, DEBUGGING_REPLICA)
    began = time.monotonic()
    while await _offset(target, topic, partition, LATEST) < end:
        await asyncio.sleep(_POLL)
        if again is not None and time.monotonic() - began > _STUCK:
            await _send_again(target, topic, partition, again)
            raise BrokerError(NOT_ENOUGH_REPLICAS, "what the target holds is not on enough replicas yet")
    return end


async def _send_again(target: Cluster, topic: str, partition: int, again: Again) -> None:
    """Under the lease, as everything that is sent. Whatever the answer is, the log will tell."""
    leader = _leader(target, topic, partition)
    connection = await target.connection(leader.leader, "produce-again")
    version = produce.version_for(connection)
    topics = [(topic, again.topic_id, [(partition, memoryview(again.data))])]
    parts = produce.request(version, topics, acks=-1, timeout_ms=_AGAIN_MS)
    answer = connection.request(produce.API_KEY, version, produce.is_flexible(version), parts)
    await asyncio.wait_for(asyncio.shield(answer), target.endpoint.request_timeout)


def _leader(target: Cluster, topic: str, partition: int) -> Partition:
    leader = target.leader(topic, partition)
    if leader is None:
        raise BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader on the target")
    return leader


async def _offset(target: Cluster, topic: str, partition: int, when: int, replica: int = -1) -> int:
    found = (await list_offsets(target, [(topic, partition)], when, replica=replica))[topic, partition]
    if isinstance(found, Exception):
        raise found
    return found


async def _fetch(target: Cluster, topic: str, partition: int, offset: int) -> list[Batch]:
    leader = _leader(target, topic, partition)
    connection = await target.connection(leader.leader, "scan")
    version = fetch.version_for(connection)
    wanted = fetch.Wanted(partition, offset, leader.leader_epoch, max_bytes=_SCAN_BYTES)
    body = fetch.request(
        version,
        [(topic, target.topics[topic].id, [wanted])],
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=_SCAN_BYTES,
        read_committed=False,
    )
    answer = connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])
    error, found = fetch.answer(
        version, await asyncio.wait_for(asyncio.shield(answer), target.endpoint.request_timeout)
    )
    raise_for(error)
    if not found:
        raise BadFrame(f"the answer does not speak of {topic}-{partition}")
    raise_for(found[0].error, topic)
    return [batch for run in split(found[0].records) if isinstance(run, Batches) for batch in run]
