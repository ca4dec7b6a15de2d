"""A compacted topic that a program keeps its own rows in: the last value of each key counts.

Rows are written with acks=all under a producer id, one request at a time. After a request that was given up, the next one has a
higher producer epoch: the old one may arrive before it, and is refused after it. So no old row of a writer gets behind a newer one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from mirrormaker.errors import OUTAGE, BadFrame, BrokerError, ClusterError, MirrorError, UnsupportedRequest
from mirrormaker.kafka_errors import (
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_PRODUCER_ID,
)
from mirrormaker.wire.client.cluster import Cluster
from mirrormaker.wire.client.configs import TOPIC, describe_configs
from mirrormaker.wire.client.log_fetch import FetchedLog, fetch_log, fetch_records
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, wait_for_offsets
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.protocol.messages import CreateTopicsRequest, InitProducerIdRequest
from mirrormaker.wire.records.arrow import from_columns, to_table
from mirrormaker.wire.records.batch import SEQUENCES, Batch, Batches
from mirrormaker.wire.records.columns import pack, sizes, unpack_in_pieces
from mirrormaker.wire.transport.turns import give_way

Row = tuple[bytes, bytes | None]  # a key and its value; None deletes the key

OFFSETS_TOPIC = "__consumer_offsets"  # the most valuable topic of every cluster: ours is kept as safe
_POLICY, _IN_SYNC = "cleanup.policy", "min.insync.replicas"
_REPLICAS = 3  # where there is no offsets topic yet
_SEGMENT_BYTES = (
    64 << 20
)  # brokers never compact the last segment, and every reader reads it: Kafka's 1 GB are too many
_BATCH_BYTES = 256 << 10  # a quarter of the default max.message.bytes
_FETCH_BYTES = 4 << 20  # of one answer
_MAX_UNPACKED = 64 << 20  # bytes of one batch, once it is unpacked
_SLICE_BYTES = 64 << 10  # of records that are decoded together: 5 ms; then the rest of the event loop has its turn
_PATIENCE, _PAUSE = 30.0, 0.2  # seconds: how long one request is tried again, and the pause in between
# The leader has forgotten the producer, or remembers another number: a higher epoch begins at number 0.
_NEEDS_NEW_EPOCH = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID})

_LAST_EPOCH = (1 << 15) - 1  # of a producer id; whoever has given up so many requests needs another id


class KeyedRecord(NamedTuple):
    """One row as the log has it. A value of None deletes the key."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int = -1  # milliseconds since 1970


async def scan(
    cluster: Cluster, topic: str, start: int, *, partition: int = 0
) -> AsyncIterator[tuple[list[KeyedRecord], int]]:
    """Yield the rows from an offset up to the end that the log has now, in their order, at least once.

    Some megabytes come at a time, each time with the offset after them.
    """
    key = (topic, partition)
    first = (await wait_for_offsets(cluster, [key], EARLIEST))[key]
    end = (await wait_for_offsets(cluster, [key], LATEST))[key]
    at = max(first, min(start, end))
    deadline = time.monotonic() + _PATIENCE
    yield [], at
    while at < end:
        try:
            log = await fetch_records(cluster, key, at, _FETCH_BYTES)
        except OUTAGE as error:
            if isinstance(error, BrokerError) and error.code == OFFSET_OUT_OF_RANGE:
                # Retention or a deletion of records has passed this place.
                at = max(at, (await wait_for_offsets(cluster, [key], EARLIEST))[key])
            elif not _may_pass(error):
                raise
            await _pause(cluster, topic, deadline, error)
            continue
        records, at = await _rows(log, at), log.end
        yield records, at
        deadline = time.monotonic() + _PATIENCE


async def read_next(cluster: Cluster, topic: str, start: int, *, partition: int = 0) -> tuple[list[KeyedRecord], int]:
    """Return the rows from an offset on that one request brings, and the offset after them; raise its error if it fails."""
    log = await fetch_log(cluster, (topic, partition), start, _FETCH_BYTES)
    return await _rows(log, start), log.end


async def _rows(log: FetchedLog, start: int) -> list[KeyedRecord]:
    """Return the rows from an offset on; records without a key, and old message formats, are left out."""
    found: list[KeyedRecord] = []
    for rows in (rows for run in log.runs if isinstance(run, Batches) for rows in _stretches(run)):
        for piece in unpack_in_pieces(rows, _MAX_UNPACKED, _SLICE_BYTES):
            table = to_table(piece.records)
            columns = (table.column(name).to_pylist() for name in ("offset", "key", "value", "timestamp"))
            found += [
                KeyedRecord(offset, key, value, timestamp)
                for offset, key, value, timestamp in zip(*columns, strict=True)
                if key is not None and offset >= start
            ]
            await give_way()
    return found


def _stretches(run: Batches) -> Iterator[Batches]:
    """Yield the batches between control batches."""
    edges = [number for number, batch in enumerate(run) if batch.is_control]
    for before, after in pairwise([-1, *edges, len(run)]):
        if after - before > 1:
            yield run.part(before + 1, after)


class KeyedWriter:
    """Writes rows to one partition of a topic. There must be one writer at most for each key."""

    def __init__(self, cluster: Cluster, topic: str, *, partition: int = 0) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        # Producer id, producer epoch, and the next number; None before the first request.
        self._identity: tuple[int, int, int] | None = None
        # Rows must reach the log in the order in which they were given.
        self._lock = asyncio.Lock()

    async def write(self, rows: Sequence[Row]) -> list[range]:
        """Append the rows in their order, and return once enough replicas have them: the offsets of each batch, if known.

        Leaders that move are waited for; raise the last error after 30 s. Some of the rows may have been written then.
        """
        async with self._lock:
            try:
                return [await self._append(batch) for batch in _batches(rows)]
            except BaseException:
                # The last batch may have been appended, or may still be: another one under its number would be taken for it.
                self._raise_epoch()
                raise

    async def _append(self, batch: Batch) -> range:
        deadline = time.monotonic() + _PATIENCE
        count = batch.count
        while True:
            try:
                identity = self._identity = self._identity or (*await self._allocate(), 0)
                batch.stamp(*identity)
                base = await self._send(batch)
            except OUTAGE as error:
                if isinstance(error, BrokerError) and error.code in _NEEDS_NEW_EPOCH:
                    self._raise_epoch()
                elif isinstance(error, BrokerError) and error.code == INVALID_PRODUCER_EPOCH and self._identity:
                    # No release of Kafka refuses a raised epoch. Whichever broker does gets another producer id.
                    self._identity = None
                elif not _may_pass(error):
                    raise
                await _pause(self._cluster, self._topic, deadline, error)
                continue
            producer_id, epoch, number = identity
            self._identity = (producer_id, epoch, (number + count) % SEQUENCES)
            # A broker that recognises a duplicate may have forgotten where it is.
            return range(base, base + count) if base >= 0 else range(0)

    def _raise_epoch(self) -> None:
        """Begin at number 0 again, in the next epoch: the leader refuses older ones from then on, as for Java's producer."""
        if self._identity is not None:
            producer_id, epoch, _ = self._identity
            self._identity = (producer_id, epoch + 1, 0) if epoch < _LAST_EPOCH else None

    async def _allocate(self) -> tuple[int, int]:
        answer = await self._cluster.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        if answer.error_code:
            raise BrokerError(answer.error_code, f"asking for a producer id for {self._topic}")
        return answer.producer_id, answer.producer_epoch

    async def _send(self, batch: Batch) -> int:
        """Return the offset of the batch; -1 if the broker does not tell it."""
        cluster, topic, partition = self._cluster, self._topic, self._partition
        leader = cluster.leader(topic, partition)
        if leader is None:
            raise BrokerError(LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        connection = await cluster.connection(leader.leader)
        topic_id = cluster.topics[topic].id
        version = produce.version_for(connection, [topic_id])
        if version < produce.FIRST_WITH_RECORD_BATCHES:
            raise ClusterError(f"{cluster.endpoint} is older than Kafka 0.11 and cannot keep {topic}")
        timeout = cluster.endpoint.request_timeout
        body = produce.encode_request(
            version, [(topic, topic_id, [(partition, batch.data)])], acks=-1, timeout_ms=int(timeout * 1000)
        )
        answer = connection.request(produce.API_KEY, version, produce.is_flexible(version), body)
        (data,) = await connection.answered_within(timeout, "Produce", answer)
        results = produce.decode_response(version, data, 1)
        if len(results) != 1 or results[0].partition != partition:
            raise BadFrame(f"{connection} did not answer for {topic}-{partition}")
        if results[0].error not in (0, DUPLICATE_SEQUENCE_NUMBER):
            raise BrokerError(results[0].error, results[0].message or "")
        return -1 if results[0].error else results[0].base_offset


def _batches(rows: Sequence[Row]) -> list[Batch]:
    """Pack rows into batches of at most 256 KB; a larger row gets a batch of its own."""
    if not rows:
        return []
    keys, values = (pa.array(column, pa.binary()) for column in zip(*rows, strict=True))
    now = pa.array([int(time.time() * 1000)] * len(rows), pa.int64())
    records = from_columns(pa.array(range(len(rows)), pa.int64()), now, keys, values)
    bounds, room = [0], _BATCH_BYTES
    for number, size in enumerate(sizes(records).tolist()):
        if size > room and number > bounds[-1]:
            bounds.append(number)
            room = _BATCH_BYTES
        room -= size
    return [Batch(data) for data in pack(records, [*bounds, len(rows)])]


def _may_pass(error: BaseException) -> bool:
    return error.retriable if isinstance(error, MirrorError) else True


async def _pause(cluster: Cluster, topic: str, deadline: float, error: BaseException) -> None:
    """Wait a moment and look for the leader again; raise the error if there is no time left."""
    if time.monotonic() > deadline:
        raise error
    await asyncio.sleep(_PAUSE)
    try:
        await cluster.refresh([topic])
    except OUTAGE:
        # The next request tells whether the cluster is back.
        return


async def ensure(cluster: Cluster, topic: str, *, partitions: int = 1) -> str:
    """Create the topic if it does not exist, as well replicated as the cluster's offsets topic; return its cleanup.policy.

    Raise the error of a cluster that refuses it. The policy is empty if the brokers do not tell it.
    """
    await cluster.refresh([topic, OFFSETS_TOPIC])
    if topic not in cluster.topics:
        await _create(cluster, topic, partitions)
        deadline = time.monotonic() + _PATIENCE
        while cluster.leader(topic, partitions - 1) is None:
            await _pause(cluster, topic, deadline, BrokerError(LEADER_NOT_AVAILABLE, f"{topic} has no leaders yet"))
    return (await _settings(cluster, topic, _POLICY)).get(_POLICY, "")


async def _create(cluster: Cluster, topic: str, partitions: int) -> None:
    kind = CreateTopicsRequest.CreatableTopic
    offsets = cluster.topics.get(OFFSETS_TOPIC)
    copies = max((p.replicas for p in offsets.partitions.values()), default=0) if offsets else 0
    in_sync = await _settings(cluster, OFFSETS_TOPIC, _IN_SYNC) if offsets else {}
    config = {_POLICY: "compact", "segment.bytes": str(_SEGMENT_BYTES), **in_sync}
    request = CreateTopicsRequest(
        topics=[
            kind(
                name=topic,
                num_partitions=partitions,
                replication_factor=copies or min(_REPLICAS, len(cluster.brokers)),
                assignments=[],
                configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in config.items()],
            )
        ],
        timeout_ms=int(cluster.endpoint.request_timeout * 1000),
    )
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            (result,) = (await cluster.ask(request, cluster.controller)).topics
            if result.error_code in (0, TOPIC_ALREADY_EXISTS):
                return
            raise BrokerError(result.error_code, f"creating topic {topic}: {result.error_message or ''}")
        except OUTAGE as error:
            if not _may_pass(error):
                raise
            await _pause(cluster, topic, deadline, error)


async def _settings(cluster: Cluster, topic: str, *keys: str) -> dict[str, str]:
    """Return settings of a topic; none where the brokers do not tell them."""
    try:
        results = await describe_configs(cluster, TOPIC, [topic], keys)
    except (*OUTAGE, UnsupportedRequest):
        return {}
    return {setting.name: setting.value for result in results for setting in result.configs or () if setting.value}
