"""A source that no longer has what comes next: retention was quicker than the mirror, or a log was cut back."""

from __future__ import annotations

import contextlib

from mirrormaker.errors import UnsupportedRequest, WireError, raise_for
from mirrormaker.model.position import Position
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.protocol.messages import DescribeProducersRequest, OffsetForLeaderEpochRequest

Key = tuple[str, int]

_FORBIDDEN = (29, 31)  # for the topic, for the cluster


def there_already(position: Position) -> int:
    """Records behind the position that the target holds, where each source offset is one of them."""
    plain = position.fingerprint <= 1 and len(position.cuts) == 1  # the same partition, and no message handler
    return position.cuts[0].ahead if plain else 0


async def lost_before(source: Cluster, position: Position, at: int) -> str:
    """What is gone between a position and the offset where the source goes on; nothing if nothing is."""
    first = position.offset + there_already(position)
    if at <= first:
        return ""
    ahead = sum(cut.ahead for cut in position.cuts) if first == position.offset else 0
    count = at - first - min(ahead, at - first)
    exact = not ahead and await has_a_record_for_each_offset(source, position.key)
    return (
        f"{position.topic}-{position.partition}: source offsets {first} to {at - 1} were gone before they were mirrored:"
        f" {'' if exact else 'at most '}{count} record{'' if count == 1 else 's'}"
    )


def cut_back(position: Position, at: int) -> str:
    """What a source has lost after it was mirrored."""
    last = position.offset + there_already(position)
    return (
        f"{position.topic}-{position.partition}: source offsets {at} to {last - 1} were mirrored and are no longer what the"
        f" source has there (truncated by an unclean election?): at most {last - at} records are on the target only"
    )


async def end_of_epoch(source: Cluster, position: Position) -> int | None:
    """Up to where the source's log agrees with what was mirrored; None where brokers cannot tell (before 2.0)."""
    if position.leader_epoch < 0:
        return None
    leader = source.leader(*position.key)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    row = topic.OffsetForLeaderPartition(
        partition=position.partition,
        current_leader_epoch=leader.leader_epoch if leader else -1,
        leader_epoch=position.leader_epoch,
    )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=position.topic, partitions=[row])])
    try:
        answer = await source.ask(request, leader.leader if leader else None)
    except UnsupportedRequest:
        return None
    found = answer.topics[0].partitions[0]
    if found.error_code in _FORBIDDEN:  # brokers up to 2.0 tell this only to each other
        return None
    raise_for(found.error_code)
    return int(found.end_offset) if found.end_offset >= 0 else None


async def has_a_record_for_each_offset(source: Cluster, key: Key) -> bool:
    """Not where compaction removes records, or where the ends of transactions take offsets; not if nobody tells."""
    with contextlib.suppress(WireError):
        return not await _is_compacted(source, key[0]) and not await _has_transactions(source, key)
    return False


async def _is_compacted(source: Cluster, topic: str) -> bool:
    (answer,) = await describe_configs(source, TOPIC, [topic], ["cleanup.policy"])
    raise_for(answer.error_code)
    return any("compact" in (setting.value or "") for setting in answer.configs)


async def _has_transactions(source: Cluster, key: Key) -> bool:
    """Brokers remember for days who wrote to a partition; those that have ended a transaction know its coordinator."""
    leader = source.leader(*key)
    wanted = DescribeProducersRequest.TopicRequest(name=key[0], partition_indexes=[key[1]])
    answer = await source.ask(DescribeProducersRequest(topics=[wanted]), leader.leader if leader else None)
    found = answer.topics[0].partitions[0]
    raise_for(found.error_code)
    return any(
        producer.coordinator_epoch >= 0 or producer.current_txn_start_offset >= 0 for producer in found.active_producers
    )
