"""Resuming: the target's own log says how many records after a position it holds already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from mirrormaker.errors import BadFrame, BrokerError, NumbersBroken, UnsupportedRequest, raise_for
from mirrormaker.kafka_errors import (
    LEADER_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
)
from mirrormaker.model.numbers import Channel, LoggedBatch
from mirrormaker.model.position import Cut, Identity
from mirrormaker.wire.client.cluster import Cluster, Partition
from mirrormaker.wire.client.log_offsets import DEBUGGING_REPLICA, EARLIEST, LATEST, list_offsets
from mirrormaker.wire.protocol import fetch, produce
from mirrormaker.wire.protocol.messages import DescribeProducersRequest
from mirrormaker.wire.records.batch import Batch, Batches, split
from mirrormaker.wire.records.columns import unpack_in_pieces
from mirrormaker.worker.outlet import Outlet, RecordDigest, UnconfirmedBatch

# Limit of one answer to the scan. A position is committed after 64 MB of one partition, so a scan reads little more.
_SCAN_BYTES = 8 << 20
_MAX_UNPACKED, _PIECE = 1 << 30, 4 << 20  # bytes of the last batch found once it is unpacked, and of it at a time
_PARALLEL_SCANS = 4  # target partitions that are read at the same time for one source partition
_HIGH_WATERMARK_POLL = 0.02  # seconds between requests for a high watermark that has not reached the log end
_STUCK_AFTER = 2.0  # seconds without enough in-sync replicas until the unconfirmed batch is sent again
_REPEAT_TIMEOUT_MS = 1000  # how long the broker may hold that request


def restart_outlets(
    outlets: Sequence[Outlet], identity: Identity, cut_of: Callable[[Outlet], Cut], *, clean: bool
) -> list[Outlet]:
    """Set each outlet to its cut; return those whose log must be read, because the target may hold records after it.

    `clean`: the target certainly holds nothing after the cuts.
    """
    unknown: list[Outlet] = []
    for outlet in outlets:
        cut = cut_of(outlet)
        if not outlet.stands_at(cut):
            outlet.restart(identity, cut)
            if clean or not identity.is_numbered:
                outlet.channel.resume([])
            else:
                unknown.append(outlet)
        outlet.skip, outlet.last_skipped = cut.ahead, None
    return unknown


async def scan_outlets(
    target: Cluster, unknown: Sequence[Outlet], ahead: Sequence[Outlet], cut_of: Callable[[Outlet], Cut]
) -> None:
    """Set what each outlet has to skip, from the logs of the target partitions.

    `unknown` are outlets whose log must be read from their cut on. `ahead` are outlets whose cut says that the target
    holds records from after the position; the last one of them is read, so that it can be compared with the source's.
    """
    slots = asyncio.Semaphore(_PARALLEL_SCANS)

    async def scan(outlet: Outlet) -> None:
        async with slots:
            last = None
            if outlet in unknown:
                present, last = await read_back(target, outlet.topic, outlet.channel, outlet.repeatable_batch())
                outlet.unconfirmed = None
                outlet.skip += present
            if last is None and outlet in ahead:
                last = await read_last(target, outlet.topic, cut_of(outlet))
            outlet.last_skipped = last

    tasks = [asyncio.ensure_future(scan(outlet)) for outlet in {*unknown, *ahead}]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def read_back(
    target: Cluster, topic: str, channel: Channel, unconfirmed: UnconfirmedBatch | None = None
) -> tuple[int, RecordDigest | None]:
    """Read the target's log from the channel's cut to its end; return how many records of ours it holds, and the last."""
    _leader(target, topic, channel.partition)
    end = await _replicated_end(target, topic, channel.partition, unconfirmed)
    if end < channel.offset:
        raise NumbersBroken(
            f"the target's log ends at {end}, before offset {channel.offset} which it had acknowledged:"
            " records were lost there (an unclean election?)"
        )
    start = await _offset(target, topic, channel.partition, EARLIEST)
    log_start_passed = start > channel.offset
    start = max(start, channel.offset)
    logged: list[LoggedBatch] = []
    last: Batch | None = None
    while start < end:
        batches = await _fetch(target, topic, channel.partition, start)
        for batch in batches:
            identity = Identity(batch.producer_id, batch.producer_epoch)
            if batch.last_offset >= start and identity == channel.identity and not batch.is_control:
                logged.append(
                    LoggedBatch(
                        batch.base_offset, batch.last_offset, identity,
                        batch.base_sequence, batch.last_sequence, batch.count,
                    )
                )  # fmt: skip
                last = batch
        if not batches:  # nothing, or only messages of an older format, which a mirror never writes
            raise BrokerError(
                NOT_LEADER_OR_FOLLOWER, f"the target returned no batch of {topic}-{channel.partition} at offset {start}"
            )
        start = batches[-1].last_offset + 1
    if log_start_passed and not logged:
        logged = await _producer_state(target, topic, channel, end)
    return channel.resume(logged, log_start_passed=log_start_passed), _last_record(last) if last is not None else None


async def read_last(target: Cluster, topic: str, cut: Cut) -> RecordDigest | None:
    """Return the record right before a cut's offset, which is ours; None if it is no longer there."""
    try:
        batches = await _fetch(target, topic, cut.partition, cut.offset - 1) if cut.offset else []
    except BrokerError as error:
        if error.code != OFFSET_OUT_OF_RANGE:
            raise
        return None
    last = next((batch for batch in batches if batch.last_offset == cut.offset - 1), None)
    return _last_record(last) if last is not None else None


def _last_record(batch: Batch) -> RecordDigest | None:
    """Return the batch's last record; None if compaction has removed it."""
    for piece in unpack_in_pieces(Batches.of(batch), _MAX_UNPACKED, _PIECE):
        records = piece.records
    if not len(records) or records.offsets[-1] != batch.last_offset:
        return None
    return RecordDigest.of(records, -1)


async def _producer_state(target: Cluster, topic: str, channel: Channel, end: int) -> list[LoggedBatch]:
    """Return the last batch that the leader remembers of our producer.

    The log is the better witness; this is used only where retention has deleted all our batches.
    """
    leader = target.leader(topic, channel.partition)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[channel.partition])]
    )
    try:
        answer = await target.ask(request, leader.leader if leader else None)
    except UnsupportedRequest:
        return []  # before Kafka 2.8; the ledger has to do
    for producer in answer.topics[0].partitions[0].active_producers or ():
        if Identity(producer.producer_id, producer.producer_epoch) == channel.identity and producer.last_sequence >= 0:
            return [LoggedBatch(end - 1, end - 1, channel.identity, producer.last_sequence, producer.last_sequence, 1)]
    return []


async def _replicated_end(target: Cluster, topic: str, partition: int, unconfirmed: UnconfirmedBatch | None) -> int:
    """Return the leader's log end offset, once the high watermark has reached it: records beyond that may still vanish.

    A leader of Kafka 4 does not move its high watermark while there are fewer in-sync replicas than
    `min.insync.replicas`. If that setting is lowered, it moves it only at the next append. Therefore a batch that may
    have been appended is sent once more: the broker recognises the duplicate, answers it, and updates its high
    watermark.
    """
    end = await _offset(target, topic, partition, LATEST, DEBUGGING_REPLICA)
    began = time.monotonic()
    while await _offset(target, topic, partition, LATEST) < end:
        await asyncio.sleep(_HIGH_WATERMARK_POLL)
        if unconfirmed is not None and time.monotonic() - began > _STUCK_AFTER:
            await _send_again(target, topic, partition, unconfirmed)
            raise BrokerError(NOT_ENOUGH_REPLICAS, "the end of the target's log is not on enough in-sync replicas yet")
    return end


async def _send_again(target: Cluster, topic: str, partition: int, unconfirmed: UnconfirmedBatch) -> None:
    """Send the batch once more, only within the lease as always. The answer does not matter: the log will tell."""
    leader = _leader(target, topic, partition)
    connection = await target.connection(leader.leader, "produce-again")
    version = produce.version_for(connection, [unconfirmed.topic_id])
    topics = [(topic, unconfirmed.topic_id, [(partition, memoryview(unconfirmed.data))])]
    parts = produce.encode_request(version, topics, acks=-1, timeout_ms=_REPEAT_TIMEOUT_MS)
    answer = connection.request(produce.API_KEY, version, produce.is_flexible(version), parts)
    await asyncio.wait_for(asyncio.shield(answer), target.endpoint.request_timeout)


def _leader(target: Cluster, topic: str, partition: int) -> Partition:
    leader = target.leader(topic, partition)
    if leader is None:
        raise BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader on the target")
    return leader


async def _offset(target: Cluster, topic: str, partition: int, when: int, replica: int = -1) -> int:
    offset = (await list_offsets(target, [(topic, partition)], when, replica=replica))[topic, partition]
    if isinstance(offset, Exception):
        raise offset
    return offset


async def _fetch(target: Cluster, topic: str, partition: int, offset: int) -> list[Batch]:
    leader = _leader(target, topic, partition)
    connection = await target.connection(leader.leader, "scan")
    version = fetch.version_for(connection, [target.topics[topic].id])
    wanted = fetch.PartitionToFetch(partition, offset, leader.leader_epoch, max_bytes=_SCAN_BYTES)
    body = fetch.encode_request(
        version,
        [(topic, target.topics[topic].id, [wanted])],
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=_SCAN_BYTES,
        read_committed=False,
    )
    answer = connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])
    error, parts = fetch.decode_response(
        version, await asyncio.wait_for(asyncio.shield(answer), target.endpoint.request_timeout)
    )
    raise_for(error)
    if not parts:
        raise BadFrame(f"the broker did not answer for {topic}-{partition}")
    raise_for(parts[0].error, topic)
    return [batch for run in split(parts[0].records) if isinstance(run, Batches) for batch in run]
