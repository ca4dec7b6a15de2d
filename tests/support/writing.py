"""Write whole record batches through our own wire client: fast, and with any producer id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mirrormaker.embedded import Cluster
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records.arrow import HEADERS, from_columns
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records, pack
from tests.support.wire_clients import wire_client

NO_PRODUCER = -1
AN_HOUR_AGO = int(time.time() - 3600) * 1000  # a timestamp that retention does not delete
_PER_BATCH = 2000


class Row(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    timestamp: int = AN_HOUR_AGO
    headers: tuple[tuple[str, bytes], ...] = ()


def rows(records: Sequence[Row]) -> Records:
    """Return records as columns, ready to be packed into record batches."""
    headers = [[{"key": k, "value": v} for k, v in row.headers] for row in records]
    return from_columns(
        pa.array(range(len(records)), pa.int64()),
        pa.array([row.timestamp for row in records], pa.int64()),
        pa.array([row.key for row in records], pa.binary()),
        pa.array([row.value for row in records], pa.binary()),
        pa.array(headers, HEADERS),
    )


def many(count: int, first: int = 0, size: int = 60) -> Records:
    """Return numbered records with keys and random values of `size` bytes, made quickly."""
    numbers = np.arange(first, first + count)
    keys = pa.array([b"key-%d" % (n % 1000) for n in numbers.tolist()], pa.binary())
    body = np.random.default_rng(first).integers(0, 256, count * size, dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(body)])
    timestamps = pa.array(AN_HOUR_AGO + numbers // 7)
    return from_columns(pa.array(np.arange(count)), timestamps, keys, values)


def write(
    cluster: Cluster,
    topic: str,
    parts: Mapping[int, Sequence[Records]],
    producer: int = NO_PRODUCER,
    batch: int = _PER_BATCH,
) -> None:
    """Write each partition's records, one sequence of columns after the other, under this producer id."""
    asyncio.run(_write(cluster.bootstrap, topic, parts, producer, batch))


async def _write(bootstrap: str, topic: str, parts: Mapping[int, Sequence[Records]], producer: int, size: int) -> None:
    client = wire_client(bootstrap)
    try:
        await _wait_for_leaders(client, topic)
        (node,) = {partition.leader for partition in client.topics[topic].partitions.values()}
        connection = await client.connection(node, "produce")
        version = produce.version_for(connection)
        answers = []
        for partition, pieces in parts.items():
            sequence = 0
            for records in pieces:
                bounds = [*range(0, len(records), size), len(records)]
                for start, stop in pairwise(bounds):
                    (data,) = pack(records[start:stop], [0, stop - start])
                    batch = Batch(data)
                    batch.stamp(producer, -1 if producer < 0 else 0, -1 if producer < 0 else sequence)
                    sequence += stop - start
                    topics = [(topic, client.topics[topic].id, [(partition, batch.data)])]
                    body = produce.encode_request(version, topics, acks=-1, timeout_ms=30_000)
                    answers.append(connection.request(produce.API_KEY, version, produce.is_flexible(version), body))
        for answer in answers:
            for appended in produce.decode_response(version, await answer):
                assert appended.error == 0, appended
    finally:
        client.close()
        await asyncio.sleep(0)


async def _wait_for_leaders(client: Client, topic: str) -> None:
    """Wait until every partition's leader answers; metadata name the leaders of a new topic a moment earlier."""
    while True:
        await client.refresh([topic])
        found = await list_offsets(
            client, [(topic, partition) for partition in client.topics[topic].partitions], LATEST
        )
        if not any(isinstance(answer, Exception) for answer in found.values()):
            return
        await asyncio.sleep(0.02)
