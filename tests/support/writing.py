"""Writing to a topic directly, by the million: whole batches through our own wire client, under any producer's name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mirrormaker.embedded import Cluster
from mirrormaker.settings.addresses import addresses
from mirrormaker.wire.client.cluster import Cluster as Client
from mirrormaker.wire.client.cluster import Endpoint
from mirrormaker.wire.client.log_offsets import LATEST, list_offsets
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records.arrow import HEADERS, from_columns
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records, pack

NOBODY = -1
AN_HOUR_AGO = int(time.time() - 3600) * 1000  # older records would be deleted at once
_PER_BATCH = 2000


class Row(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    timestamp: int = AN_HOUR_AGO
    headers: tuple[tuple[str, bytes], ...] = ()


def rows(given: Sequence[Row]) -> Records:
    """As the wire client packs them."""
    headers = [[{"key": k, "value": v} for k, v in row.headers] for row in given]
    return from_columns(
        pa.array(range(len(given)), pa.int64()),
        pa.array([row.timestamp for row in given], pa.int64()),
        pa.array([row.key for row in given], pa.binary()),
        pa.array([row.value for row in given], pa.binary()),
        pa.array(headers, HEADERS),
    )


def many(count: int, first: int = 0, size: int = 60) -> Records:
    """Records with keys and values of their own, quickly made."""
    numbers = np.arange(first, first + count)
    keys = pa.array([b"key-%d" % (n % 1000) for n in numbers.tolist()], pa.binary())
    body = np.random.default_rng(first).integers(0, 256, count * size, dtype=np.uint8)
    edges = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(body)])
    stamps = pa.array(AN_HOUR_AGO + numbers // 7)
    return from_columns(pa.array(np.arange(count)), stamps, keys, values)


def write(
    cluster: Cluster,
    topic: str,
    parts: Mapping[int, Sequence[Records]],
    producer: int = NOBODY,
    batch: int = _PER_BATCH,
) -> None:
    """To each partition its records, one piece after the other; `producer` is whose name they are written under."""
    asyncio.run(_write(cluster.bootstrap, topic, parts, producer, batch))


async def _write(bootstrap: str, topic: str, parts: Mapping[int, Sequence[Records]], producer: int, size: int) -> None:
    client = Client(Endpoint(addresses(bootstrap, "test", "bootstrap.servers")))
    try:
        await _ready(client, topic)
        (node,) = {partition.leader for partition in client.topics[topic].partitions.values()}
        connection = await client.connection(node, "produce")
        version = produce.version_for(connection)
        waiting = []
        for partition, pieces in parts.items():
            at = 0
            for records in pieces:
                bounds = [*range(0, len(records), size), len(records)]
                for start, stop in pairwise(bounds):
                    (data,) = pack(records[start:stop], [0, stop - start])
                    made = Batch(data)
                    made.stamp(producer, -1 if producer < 0 else 0, -1 if producer < 0 else at)
                    at += stop - start
                    topics = [(topic, client.topics[topic].id, [(partition, made.data)])]
                    body = produce.encode_request(version, topics, acks=-1, timeout_ms=30_000)
                    waiting.append(connection.request(produce.API_KEY, version, produce.is_flexible(version), body))
        for answer in waiting:
            for appended in produce.decode_response(version, await answer):
                assert appended.error == 0, appended
    finally:
        client.close()
        await asyncio.sleep(0)


async def _ready(client: Client, topic: str) -> None:
    """A new topic has leaders a moment before they know of it."""
    while True:
        await client.refresh([topic])
        found = await list_offsets(
            client, [(topic, partition) for partition in client.topics[topic].partitions], LATEST
        )
        if not any(isinstance(answer, Exception) for answer in found.values()):
            return
        await asyncio.sleep(0.02)
