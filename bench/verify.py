"""`python -m bench.verify`: how long `mirrormaker verify` takes, and how much memory, for topics of different sizes."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench import stage
from bench.measure import Tree
from bench.stage import PARTITIONS, Stage
from mirrormaker.settings.addresses import addresses
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records.arrow import from_columns
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records, pack
from mirrormaker.wire.records.compression import CODECS

_RECORD, _KEY = 100, 8
"""Bytes: a key of 8, and a value that is the rest."""
_BATCH, _AT_ONCE = 200, 100
"""Records of a batch (20 KB), and batches that are made in one go."""
_IN_FLIGHT = 50
"""Requests of one batch each."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="on each side (default: 10 million)")
    parser.add_argument("--codec", choices=CODECS, default="none", help="what they are compressed with (default: none)")
    args = parser.parse_args()
    with Stage() as clusters:
        for number, records in enumerate((args.records // 4, args.records)):
            topic = f"bench-verify-{number}"
            for cluster in (clusters.source, clusters.target):
                stage.create(cluster, topic)
                asyncio.run(fill(cluster.bootstrap, topic, records, CODECS.index(args.codec)))
            print(measured(clusters, topic, records), flush=True)


async def fill(bootstrap: str, topic: str, records: int, codec: int) -> None:
    """The same records whenever it is called: numbered keys, random values, the timestamp of each batch's number."""
    client = Cluster(Endpoint(addresses(bootstrap, "bench", "bootstrap.servers")))
    await client.refresh([topic])
    connection = await client.connection(next(iter(client.brokers)), "produce")
    version = produce.version_for(connection)
    now = int(time.time() // 3600 * 3600 - 3600) * 1000
    waiting: list[asyncio.Future[memoryview]] = []
    for turn, first in enumerate(range(0, records, _BATCH * _AT_ONCE)):
        count = min(_BATCH * _AT_ONCE, records - first)
        bounds = [*range(0, count, _BATCH), count]
        for number, data in enumerate(pack(_records(turn, first, count, now), bounds, codec)):
            batch = Batch(data)
            batch.stamp(-1, -1, -1)
            topics = [(topic, client.topics[topic].id, [(number % PARTITIONS, batch.data)])]
            body = produce.encode_request(version, topics, acks=1, timeout_ms=30_000)
            waiting.append(connection.request(produce.API_KEY, version, produce.is_flexible(version), body))
            if len(waiting) > _IN_FLIGHT:
                await waiting.pop(0)
    await asyncio.gather(*waiting)
    client.close()


def _records(seed: int, first: int, count: int, now: int) -> Records:
    numbers = np.arange(first, first + count)
    keys, values = (
        np.random.default_rng(seed).integers(97, 123, (count, size), np.uint8) for size in (_KEY, _RECORD - _KEY)
    )
    if seed % 2:
        values[:, ::2] = 32  # half of them can be compressed
    return from_columns(pa.array(numbers), pa.array(now + numbers // 1000), _column(keys), _column(values))


def _column(rows: npt.NDArray[np.uint8]) -> Any:
    count, size = rows.shape
    edges = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def measured(clusters: Stage, topic: str, records: int) -> str:
    """One run of the command, looked at twice a second."""
    directory = Path(clusters.directory)
    source, target = directory / "source.properties", directory / "target.properties"
    source.write_text(f"bootstrap.servers={clusters.source.bootstrap}\ngroup.id=bench\n")
    target.write_text(f"bootstrap.servers={clusters.target.bootstrap}\n")
    command = [sys.executable, "-m", "mirrormaker.cli", "verify", "--whitelist", topic]
    command += ["--consumer.config", str(source), "--producer.config", str(target)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    tree, cpu = Tree(process.pid), 0.0
    while process.poll() is None:
        tree.find()
        tree.weigh()
        cpu = max(cpu, tree.cpu())
        time.sleep(0.5)
    seconds = time.monotonic() - started
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    process.stdout.close()
    return f"{records:,} records on each side: {seconds:.0f} s, {cpu:.0f} s of CPU, {tree.peak_memory / 1e6:.0f} MB at most: {line}"


if __name__ == "__main__":
    main()
