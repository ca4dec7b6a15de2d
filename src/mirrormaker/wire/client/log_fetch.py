"""One fetch of a partition's log, outside of the streams."""

from __future__ import annotations

from mirrormaker.errors import BadFrame, BrokerError, raise_for
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.protocol.codec import TopicPartition

_MAX_WAIT_MS = 100  # short, because all requested records are in the log already


async def fetch_log(
    cluster: Cluster,
    key: TopicPartition,
    offset: int,
    max_bytes: int,
    *,
    read_committed: bool = False,
    detail: str | None = None,
) -> fetch.FetchedPartition:
    """Return what a partition's leader has from an offset on; a batch that is larger than `max_bytes` comes whole.

    An error of the partition carries `detail`: by default its name and the offset.
    """
    topic, partition = key
    leader = cluster.leader(topic, partition)
    if leader is None:
        raise BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    connection = await cluster.connection(leader.leader, "scan")
    topic_id = cluster.topics[topic].id
    version = fetch.version_for(connection, [topic_id])
    wanted = fetch.PartitionToFetch(partition, offset, leader.leader_epoch, max_bytes=max_bytes)
    body = fetch.encode_request(
        version,
        [(topic, topic_id, [wanted])],
        max_wait_ms=_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=max_bytes,
        read_committed=read_committed,
    )
    answer = connection.request(fetch.API_KEY, version, fetch.is_flexible(version), [body])
    (data,) = await connection.answered_within(cluster.endpoint.request_timeout, "Fetch", answer)
    error, parts = fetch.decode_response(version, data, 1)
    raise_for(error)
    if not parts:
        raise BadFrame(f"the broker did not answer for {topic}-{partition}")
    raise_for(parts[0].error, detail or f"{topic}-{partition} at offset {offset}")
    return parts[0]
