"""Resuming: the target's own log says how many records after a position it holds already."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from mirrormaker.errors import (
    BadFrame,
    BrokerError,
    CorruptBatch,
    LogReplaced,
    NumbersBroken,
    RecordsLost,
    UnsupportedRequest,
    raise_for,
)
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
from mirrormaker.wire.records.columns import unpack
from mirrormaker.worker.outlet import Outlet, RecordDigest, UnconfirmedBatch

# Limit of one answer to the scan. A position is committed after 64 MB of one partition, so a scan reads little more.
_SCAN_BYTES = 8 << 20
_MAX_UNPACKED = 1 << 30  # bytes of the last batch found, once it is unpacked
_PARALLEL_SCANS = 4  # target partitions that are read at the same time for one source partition
# Seconds between requests for a high watermark that has not reached the log end; the pause doubles each time.
_HIGH_WATERMARK_POLL, _LONGEST_POLL = 0.02, 1.0
_TAIL = 1000  # offsets at the end of a log that is shorter than it was
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
                try:
                    last = await _scan(target, outlet)
                except NumbersBroken:
                    # The metadata may be outdated: in another topic of the same name other numbers are no wonder.
                    await target.refresh([outlet.topic])
                    outlet.cursor.stream.check_topics(outlet.cursor)
                    raise
            if last is None and outlet in ahead:
                last = await read_last(target, outlet.topic, cut_of(outlet))
            outlet.last_skipped = last

    tasks = [asyncio.ensure_future(scan(outlet)) for outlet in {*unknown, *ahead}]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _scan(target: Cluster, outlet: Outlet) -> RecordDigest | None:
    """Set what an outlet has to skip from the log after its cut; return the last record of ours there."""
    present, last = await read_back(
        target,
        outlet.topic,
        outlet.channel,
        outlet.repeatable_batch(),
        is_compacted=outlet.is_compacted,
        is_same_topic=outlet.is_same_topic,
    )
    if outlet.contradiction is not None:
        raise outlet.contradiction
    if outlet.sequence_refusals > 1 and not present:
        for batch in await _producer_state(target, outlet.topic, outlet.channel, outlet.channel.offset):
            outlet.channel.check_not_behind(batch.last_sequence)
    outlet.unconfirmed = None
    outlet.skip += present
    return last


async def read_back(
    target: Cluster,
    topic: str,
    channel: Channel,
    unconfirmed: UnconfirmedBatch | None = None,
    *,
    is_compacted: bool = False,
    is_same_topic: bool = False,
) -> tuple[int, RecordDigest | None]:
    """Read the target's log from the channel's cut to its end; return how many records of ours it holds, and the last.

    `is_same_topic`: the topic's id proves that it was not created again since the cut.
    """
    _leader(target, topic, channel.partition)
    end = await _replicated_end(target, topic, channel.partition, unconfirmed)
    start = await _offset(target, topic, channel.partition, EARLIEST)
    if end < channel.offset:
        await _explain_shorter_log(target, topic, channel, start, end, is_same_topic)
        channel.offset = end
    log_start_passed = start > channel.offset
    logged, last = await _own_batches(target, topic, channel, max(start, channel.offset), end)
    if log_start_passed and not logged:
        logged = await _producer_state(target, topic, channel, end)
    present = channel.resume(logged, log_start_passed=log_start_passed, is_compacted=is_compacted)
    return present, _last_record(last) if last is not None else None


async def _explain_shorter_log(
    target: Cluster, topic: str, channel: Channel, start: int, end: int, is_same_topic: bool
) -> None:
    """Raise the reason why a log ends before an offset that it had acknowledged, unless nothing of ours is missing.

    Numbers of ours from before the cut prove that it is still the same log. They are looked for only at its end: where
    the log was cut off, the last records that it had acknowledged come right before.
    """
    logged, _ = await _own_batches(target, topic, channel, max(start, end - _TAIL), end)
    after = [channel.missing_after(batch.last_sequence) for batch in logged]
    missing = min((count for count in after if count is not None), default=None)
    if missing is None and not is_same_topic:
        raise LogReplaced(topic)
    if missing == 0:
        return
    count = f"at most {channel.offset - end}" if missing is None else str(missing)
    raise RecordsLost(
        f"LOST {count} records that the target had acknowledged: its log ends at offset {end}, before {channel.offset}"
    )


async def _own_batches(
    target: Cluster, topic: str, channel: Channel, start: int, end: int
) -> tuple[list[LoggedBatch], Batch | None]:
    """Return the numbers of our batches from one offset to another, and the last of these batches."""
    logged: list[LoggedBatch] = []
    last: Batch | None = None
    while start < end:
        reached = 0
        for batch in await _fetch(target, topic, channel.partition, start):
            if batch.base_offset < reached:
                raise CorruptBatch(
                    f"the batch at offset {batch.base_offset} comes after one that ends at {reached - 1}"
                )
            reached = batch.last_offset + 1
            identity = Identity(batch.producer_id, batch.producer_epoch)
            if reached > start and identity == channel.identity and not batch.is_control:
                batch.check()
                logged.append(
                    LoggedBatch(
                        batch.base_offset, batch.last_offset, identity,
                        batch.base_sequence, batch.last_sequence, batch.count,
                    )
                )  # fmt: skip
                last = batch
        if reached <= start:  # nothing, or only messages of an older format, which a mirror never writes
            raise BrokerError(
                NOT_LEADER_OR_FOLLOWER, f"the target returned no batch of {topic}-{channel.partition} at offset {start}"
            )
        start = reached
    return logged, last


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
    records = unpack(Batches.of(batch), _MAX_UNPACKED)
    if not len(records) or records.offsets[-1] != batch.last_offset:
        return None
    return RecordDigest.of(records, -1)


async def _producer_state(target: Cluster, topic: str, channel: Channel, end: int) -> list[LoggedBatch]:
    """Return the last batch that the leader remembers of our producer.

    The log is the better witness. This is used only where retention has deleted all our batches, or where the leader
    refuses the number that comes next in the log.
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
    began, pause = time.monotonic(), _HIGH_WATERMARK_POLL
    while await _offset(target, topic, partition, LATEST) < end:
        await asyncio.sleep(pause)
        pause = min(_LONGEST_POLL, 2 * pause)
        if unconfirmed is not None and time.monotonic() - began > _STUCK_AFTER:
            await _send_again(target, topic, partition, unconfirmed)
            raise BrokerError(NOT_ENOUGH_REPLICAS, "the end of the target's log is not on enough in-sync replicas yet")
    return end


async def _send_again(target: Cluster, topic: str, partition: int, unconfirmed: UnconfirmedBatch) -> None:
    """Send the batch once more, only within the lease as always. The answer does not matter: the log will tell."""
    leader = _leader(target, topic, partition)
    connection = await target.connection(leader.leader, "produce-again")
    version = produce.version_for(connection)
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
    leader, topic_id = _leader(target, topic, partition), target.topics[topic].id
    connection = await target.connection(leader.leader, "scan")
    version = fetch.version_for(connection)
    wanted = fetch.PartitionToFetch(partition, offset, leader.leader_epoch, max_bytes=_SCAN_BYTES)
    body = fetch.encode_request(
        version,
        [(topic, topic_id, [wanted])],
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
