"""`python -m bench.verify`: measure time and memory of `mirrormaker verify` for topics of different sizes."""

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
from tests.support.process_measurements import ProcessTree
from tests.support.topics import create_topic
from tests.support.wire_clients import wire_client

from bench.clusters import BenchClusters
from bench.workloads import PARTITIONS
from mirrormaker.wire.protocol import produce
from mirrormaker.wire.records.arrow import from_columns
from mirrormaker.wire.records.batch import Batch
from mirrormaker.wire.records.columns import Records, pack
from mirrormaker.wire.records.compression import CODECS

_RECORD, _KEY = 100, 8  # bytes of key and value together, and bytes of the key
_BATCH = 200  # records per batch (20 KB)
_AT_ONCE = 100  # batches that are made together
_IN_FLIGHT = 50  # Produce requests of one batch each


def main() -> None:
    """Fill two topics on both clusters, and verify each of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="records on each cluster (default: 10 million)")
    parser.add_argument("--codec", choices=CODECS, default="none", help="compression of the records (default: none)")
    args = parser.parse_args()
    with BenchClusters() as clusters:
        for number, records in enumerate((args.records // 4, args.records)):
            topic = f"bench-verify-{number}"
            for cluster in (clusters.source, clusters.target):
                create_topic(cluster, topic, PARTITIONS)
                asyncio.run(fill(cluster.bootstrap, topic, records, CODECS.index(args.codec)))
            print(measure(clusters, topic, records), flush=True)


async def fill(bootstrap: str, topic: str, records: int, codec: int) -> None:
    """Write records to a topic. Every call with the same arguments writes the same records."""
    client = wire_client(bootstrap, "bench")
    await client.refresh([topic])
    connection = await client.connection(next(iter(client.brokers)), "produce")
    version = produce.version_for(connection)
    now = int(time.time() // 3600 * 3600 - 3600) * 1000
    answers: list[asyncio.Future[memoryview]] = []
    for turn, first in enumerate(range(0, records, _BATCH * _AT_ONCE)):
        count = min(_BATCH * _AT_ONCE, records - first)
        bounds = [*range(0, count, _BATCH), count]
        for number, data in enumerate(pack(_records(turn, first, count, now), bounds, codec)):
            batch = Batch(data)
            batch.stamp(-1, -1, -1)
            topics = [(topic, client.topics[topic].id, [(number % PARTITIONS, batch.data)])]
            body = produce.encode_request(version, topics, acks=1, timeout_ms=30_000)
            answers.append(connection.request(produce.API_KEY, version, produce.is_flexible(version), body))
            if len(answers) > _IN_FLIGHT:
                await answers.pop(0)
    await asyncio.gather(*answers)
    client.close()


def _records(seed: int, first: int, count: int, now: int) -> Records:
    numbers = np.arange(first, first + count)
    keys, values = (
        np.random.default_rng(seed).integers(97, 123, (count, size), np.uint8) for size in (_KEY, _RECORD - _KEY)
    )
    if seed % 2:
        values[:, ::2] = 32  # makes half of the records compressible
    return from_columns(pa.array(numbers), pa.array(now + numbers // 1000), _column(keys), _column(values))


def _column(rows: npt.NDArray[np.uint8]) -> Any:
    count, size = rows.shape
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def measure(clusters: BenchClusters, topic: str, records: int) -> str:
    """Run the command, measure it twice a second, and return a line for the user."""
    directory = Path(clusters.directory)
    source, target = directory / "source.properties", directory / "target.properties"
    source.write_text(f"bootstrap.servers={clusters.source.bootstrap}\ngroup.id=bench\n")
    target.write_text(f"bootstrap.servers={clusters.target.bootstrap}\n")
    command = [sys.executable, "-m", "mirrormaker.cli", "verify", "--whitelist", topic]
    command += ["--consumer.config", str(source), "--producer.config", str(target)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    tree, cpu = ProcessTree(process.pid), 0.0
    while process.poll() is None:
        tree.update()
        tree.measure_memory()
        cpu = max(cpu, tree.cpu_seconds())
        time.sleep(0.5)
    seconds = time.monotonic() - started
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    process.stdout.close()
    cost = f"{seconds:.0f} s, {cpu:.0f} s of CPU, at most {tree.peak_memory / 1e6:.0f} MB of memory"
    return f"{records:,} records on each cluster: {cost}: {line}"


if __name__ == "__main__":
    main()
