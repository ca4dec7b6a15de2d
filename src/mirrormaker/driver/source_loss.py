"""A source that no longer has the next record: retention was quicker than the mirror, or the log was truncated."""

from __future__ import annotations

import contextlib

from mirrormaker.errors import UnsupportedRequest, WireError, raise_for
from mirrormaker.events.partition_events import LostRange
from mirrormaker.kafka_errors import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import DescribeProducersRequest, OffsetForLeaderEpochRequest


def records_ahead(position: Position) -> int:
    """Return how many records after the position the target already holds, where each of them is one source offset."""
    is_plain = position.fingerprint <= 1 and len(position.cuts) == 1  # the same partition, and no message handler
    return position.cuts[0].ahead if is_plain else 0


async def lost_before(source: Cluster, position: Position, offset: int) -> LostRange | None:
    """Return the range that is gone between a position and the offset where the source goes on; None if nothing is."""
    first = position.offset + records_ahead(position)
    if offset <= first:
        return None
    ahead = sum(cut.ahead for cut in position.cuts) if first == position.offset else 0
    count = offset - first - min(ahead, offset - first)
    is_exact = not ahead and await has_a_record_for_each_offset(source, position.key)
    return LostRange(*position.key, first, offset - 1, count, is_exact)


def truncated_after(position: Position, offset: int) -> LostRange:
    """Return the range that the source has lost after it was mirrored."""
    end = position.offset + records_ahead(position)
    return LostRange(*position.key, offset, end - 1, end - offset, is_exact=False, is_truncated=True)


async def end_of_leader_epoch(source: Cluster, position: Position) -> int | None:
    """Return the offset up to which the source's log is what was mirrored; None where brokers cannot tell (before 2.0)."""
    if position.leader_epoch < 0:
        return None
    end = await _end_of_epoch(source, position, position.leader_epoch)
    return end if end is not None and end >= 0 else None


async def _end_of_epoch(source: Cluster, position: Position, epoch: int) -> int | None:
    """Return where an epoch ends in the source's log; -1 if it is higher than the leader's; None if brokers do not tell."""
    leader = source.leader(*position.key)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    row = topic.OffsetForLeaderPartition(
        partition=position.partition,
        current_leader_epoch=leader.leader_epoch if leader else -1,
        leader_epoch=epoch,
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=position.topic, partitions=[row])])
    try:
        answer = await source.ask(request, leader.leader if leader else None)
    except UnsupportedRequest:
        return None
    found = answer.topics[0].partitions[0]
    if found.error_code in (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED):
        return None  # brokers up to 2.0 answer only each other
    raise_for(found.error_code)
    return int(found.end_offset)


async def was_created_again(source: Cluster, position: Position) -> bool:
    """Return True if a shorter log must be another topic of the same name, where brokers have no topic ids.

    A log is only cut back by a new leader, whose epoch is higher; a new topic counts its leader epochs from 0 again.
    Before Kafka 2.1 the metadata has no leader epochs. There a leader is asked for the next epoch: it does not know one
    that is higher than its own.
    """
    leader = source.leader(*position.key)
    if leader is None or position.leader_epoch < 0:
        return False
    if leader.leader_epoch >= 0:
        return leader.leader_epoch <= position.leader_epoch
    return await _end_of_epoch(source, position, position.leader_epoch + 1) == -1


async def has_a_record_for_each_offset(source: Cluster, key: TopicPartition) -> bool:
    """Return False where compaction removes records, where transaction markers take offsets, or where brokers do not tell."""
    with contextlib.suppress(WireError, UnsupportedRequest):
        return not await _is_compacted(source, key[0]) and not await _has_transactions(source, key)
    return False


async def _is_compacted(source: Cluster, topic: str) -> bool:
    (answer,) = await describe_configs(source, TOPIC, [topic], ["cleanup.policy"])
    raise_for(answer.error_code)
    return any("compact" in (setting.value or "") for setting in answer.configs)


async def _has_transactions(source: Cluster, key: TopicPartition) -> bool:
    """Brokers remember a partition's producers for days; a producer that has ended a transaction has a coordinator epoch."""
    leader = source.leader(*key)
    wanted = DescribeProducersRequest.TopicRequest(name=key[0], partition_indexes=[key[1]])
    answer = await source.ask(DescribeProducersRequest(topics=[wanted]), leader.leader if leader else None)
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code)
    return any(
        producer.coordinator_epoch >= 0 or producer.current_txn_start_offset >= 0 for producer in found.active_producers
    )
