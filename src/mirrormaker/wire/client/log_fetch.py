"""One fetch of a partition's log, outside of the streams. Damaged answers are fetched again."""

from __future__ import annotations

from typing import NamedTuple

from mirrormaker.errors import BadFrame, BrokerError, CorruptBatch, raise_for
from mirrormaker.kafka_errors import LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.protocol import fetch
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.wire.records.batch import Batches, Run, split
from mirrormaker.wire.records.fetched_offsets import visible
from mirrormaker.wire.transport.turns import give_way

DAMAGED_ANSWERS = 3  # in a row: then the log is damaged where it is stored, and not on its way
_CHECKED_AT_ONCE = 4096  # batches whose CRCs are checked before others have their turn
_MAX_WAIT_MS = 100  # short, because all requested records are in the log already


class FetchedLog(NamedTuple):
    """Batches that follow each other in a log, and the offset after them: the one that was asked for if there are none."""

    runs: list[Run]
    end: int
    aborted_transactions: fetch.AbortedTransactions
    size: int  # bytes of the answer


async def checked(part: fetch.FetchedPartition, asked: int, *, check_crcs: bool = True) -> FetchedLog:
    """Return what was fetched from an offset on, up to the high watermark; raise CorruptBatch if it is damaged.

    The CRCs of old message formats are checked when they are unpacked.
    """
    runs, end = visible(list(split(part.records)), asked, part.high_watermark)
    for run in runs if check_crcs else ():
        if isinstance(run, Batches):
            for _ in run.read_headers():
                await give_way()
            for at in range(0, len(run), _CHECKED_AT_ONCE):
                run.part(at, min(at + _CHECKED_AT_ONCE, len(run))).check()
                await give_way()
    return FetchedLog(runs, end, part.aborted_transactions, len(part.records))


async def fetch_records(
    cluster: Cluster,
    key: TopicPartition,
    offset: int,
    max_bytes: int,
    *,
    read_committed: bool = False,
    check_crcs: bool = True,
) -> FetchedLog:
    """Do the same as `fetch_log` where the log has records: raise BrokerError if none came."""
    log = await fetch_log(cluster, key, offset, max_bytes, read_committed=read_committed, check_crcs=check_crcs)
    if not log.runs:
        raise BrokerError(NOT_LEADER_OR_FOLLOWER, f"no record of {key[0]}-{key[1]} came for offset {offset}")
    return log


async def fetch_log(
    cluster: Cluster,
    key: TopicPartition,
    offset: int,
    max_bytes: int,
    *,
    read_committed: bool = False,
    check_crcs: bool = True,
    detail: str | None = None,
) -> FetchedLog:
    """Return what a partition's leader has from an offset on; a batch that is larger than `max_bytes` comes whole.

    A damaged answer is asked for again at once; raise CorruptBatch after the third one. An error of the partition carries
    `detail`: by default its name and the offset.
    """
    damaged = 0
    while True:
        part = await _fetch(cluster, key, offset, max_bytes, read_committed, detail)
        try:
            return await checked(part, offset, check_crcs=check_crcs)
        except CorruptBatch:
            damaged += 1
            if damaged == DAMAGED_ANSWERS:
                raise


async def _fetch(
    cluster: Cluster, key: TopicPartition, offset: int, max_bytes: int, read_committed: bool, detail: str | None
) -> fetch.FetchedPartition:
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
