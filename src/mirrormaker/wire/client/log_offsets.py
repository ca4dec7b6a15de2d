"""Where a partition's log starts and ends: ListOffsets."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from mirrormaker.errors import OUTAGE, BrokerError, Unanswered
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.wire.client.cluster import Cluster

Key = tuple[str, int]

LATEST, EARLIEST = -1, -2
_RETRIES = 50  # times 0.2 s
DEBUGGING_REPLICA = -2  # answers with the log end instead of the high watermark


async def list_offsets(
    cluster: Cluster,
    partitions: Iterable[tuple[str, int]],
    when: int,
    *,
    read_committed: bool = False,
    replica: int = -1,
) -> dict[tuple[str, int], int | Exception]:
    """The offset at `when` of each partition, or the error that its leader gave."""
    found: dict[tuple[str, int], int | Exception] = {}
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partition in partitions:
        leader = cluster.leader(topic, partition)
        if leader is None:
            found[topic, partition] = BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        else:
            by_leader[leader.leader][topic].append(partition)
    entry, row = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    for node, topics in by_leader.items():
        question = ListOffsetsRequest(
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
        answer = await cluster.ask(question, node)
        for topic_answer in answer.topics:
            for p in topic_answer.partitions:
                key = (topic_answer.name, p.partition_index)
                found[key] = BrokerError(p.error_code) if p.error_code else _offset(p)
    return found


def _offset(answer: Any) -> int:
    """Before 0.10.1 a list of offsets, one of which was asked for."""
    return int(answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset)


async def wait_for_offsets(
    cluster: Cluster, keys: Iterable[Key], when: int, read_committed: bool = False
) -> dict[Key, int]:
    """Ask until every partition has an answer: leaders move. Raise Unanswered after ten seconds."""
    wanted, found = set(keys), dict[Key, int]()
    last: Exception | None = None
    for _ in range(_RETRIES):
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
            await asyncio.sleep(0.2)
            await cluster.refresh({topic for topic, _ in wanted})
    topic, partition = min(wanted)
    raise Unanswered(f"{cluster.endpoint} does not say where {topic}-{partition} begins or ends: {last}", topic)
