"""The start, the end and other offsets of a partition's log: ListOffsets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from mirrormaker.errors import OUTAGE, BrokerError, Unanswered
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.protocol.messages import ListOffsetsRequest

# Timestamps with a special meaning; any other one asks for the first record at or after that time.
LATEST, EARLIEST = -1, -2
# As the replica id of a request: the broker answers with the log end offset instead of the high watermark.
DEBUGGING_REPLICA = -2
_ATTEMPTS, _PAUSE = 50, 0.2  # the pause is in seconds


async def list_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    when: int,
    *,
    read_committed: bool = False,
    replica: int = -1,
) -> dict[TopicPartition, int | Exception]:
    """Return the offset of each partition at the timestamp `when`, or the error of its leader."""
    found: dict[TopicPartition, int | Exception] = {}
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partition in partitions:
        leader = cluster.leader(topic, partition)
        if leader is None:
            found[topic, partition] = BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        else:
            by_leader[leader.leader][topic].append(partition)
    entry, row = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    for node, topics in by_leader.items():
        request = ListOffsetsRequest(
            replica_id=replica,
            isolation_level=int(read_committed),
            topics=[
                entry(
                    name=topic,
                    partitions=[
                        row(
                            partition_index=p,
                            current_leader_epoch=cluster.topics[topic].partitions[p].leader_epoch,
                            timestamp=when,
                        )
                        for p in numbers
                    ],
                )
                for topic, numbers in topics.items()
            ],
        )
        answer = await cluster.ask(request, node)
        for topic_answer in answer.topics:
            for p in topic_answer.partitions:
                key = (topic_answer.name, p.partition_index)
                found[key] = BrokerError(p.error_code) if p.error_code else _offset(p)
    return found


def _offset(answer: Any) -> int:
    """Return the offset of an answer; before Kafka 0.10.1 it is the only one of a list."""
    return int(answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset)


async def wait_for_offsets(
    cluster: Cluster, keys: Iterable[TopicPartition], when: int, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at the timestamp `when`; ask again while leaders move.

    Raise Unanswered after 50 attempts, that is after 10 s at least.
    """
    wanted, found = set(keys), dict[TopicPartition, int]()
    last: Exception | None = None
    for _ in range(_ATTEMPTS):
        if not wanted:
            return found
        try:
            answers = await list_offsets(cluster, wanted, when, read_committed=read_committed)
        except OUTAGE as error:
            answers, last = {}, error
        for key, answer in answers.items():
            if isinstance(answer, Exception):
                last = answer
            else:
                found[key] = answer
                wanted.discard(key)
        if wanted:
            await asyncio.sleep(_PAUSE)
            await cluster.refresh({topic for topic, _ in wanted})
    topic, partition = min(wanted)
    raise Unanswered(f"{cluster.endpoint} does not tell the offsets of {topic}-{partition}: {last}", topic)
