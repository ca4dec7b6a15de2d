"""Write a workload's records to the source, once, before any mirror runs."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from tests.support.raw_requests import RawConnection, RequestFailed, produce_many, produce_request, record_batch
from tests.support.topics import EndOffsets, create_topic

from bench.batch_statistics import BatchStatistics, batch_statistics
from bench.clusters import BenchClusters
from bench.workloads import PARTITIONS, Workload
from mirrormaker.embedded import Cluster
from mirrormaker.wire.records import murmur2

_WRITE_LIMIT = 180.0  # seconds to write one workload; the slowest, 10 M records in zstd, takes 50 on two idle cores
_TINY = 5  # records in the largest batch of W3; the smallest has one
_KEYED = 16  # records in a batch of W4: as many records of 1 KB as fit into a batch.size of 16 KB
_KEY_SIZE = 8
_KEYED_REQUESTS = 625  # different requests of W4: together 80,000 records with as many keys, in 80 MB of memory
_IN_FLIGHT = 8  # Produce requests, on two connections together


def write(work: Workload, clusters: BenchClusters, progress: Callable[[int], None]) -> BatchStatistics:
    """Fill the source topic, and return the statistics of its record batches."""
    create_topic(clusters.source, work.topic, PARTITIONS)
    if work.keyed:
        _write_keyed_batches(work, clusters.source, progress)
    elif work.batch_size is None:
        _write_tiny_batches(work, clusters.source, progress)
    else:
        _write_with_kafkas_producer(work, work.batch_size, clusters, progress)
    ends = EndOffsets(clusters.source, work.topic, PARTITIONS)
    written = ends.records()
    ends.close()
    if written != work.records:
        raise RequestFailed(f"{work.name}: the source holds {written} records instead of {work.records}")
    return batch_statistics(clusters.source, work.topic)


def _write_with_kafkas_producer(
    work: Workload, batch_size: int, clusters: BenchClusters, progress: Callable[[int], None]
) -> None:
    payload = ["--record-size", str(work.record_size)]
    if work.lines:
        payload = ["--payload-file", str(_json_lines(clusters.directory / "payload.txt", work.record_size))]
    producer = [f"batch.size={batch_size}", "linger.ms=100", f"compression.type={work.codec}"]
    tool = clusters.source.tools.start(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", clusters.source.bootstrap, "--topic", work.topic),
        *("--num-records", str(work.records), "--throughput", "-1", *payload),
        *("--command-property", *producer),
    )
    deadline = time.monotonic() + _WRITE_LIMIT
    ends = EndOffsets(clusters.source, work.topic, PARTITIONS)
    while tool.poll() is None:
        if time.monotonic() > deadline:
            tool.kill()
            raise RequestFailed(f"{work.name} could not be written within {_WRITE_LIMIT:g} s")
        progress(ends.records())
        try:
            tool.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    ends.close()


def _json_lines(file: Path, size: int) -> Path:
    """Write ten thousand small events to choose from. lz4 makes a batch of them about 2.3 times smaller."""
    generator = random.Random(1)
    lines = []
    for _ in range(10_000):
        page, user = generator.choice(("cart", "item", "list", "search", "account")), generator.randrange(10**6)
        event = f'{{"user":{user},"page":"/shop/{page}","country":"{generator.choice(("DE", "FR", "IT", "PL"))}"'
        event += f',"ms":{generator.randrange(10, 900)},"session":"'
        lines.append(event + f"{generator.getrandbits(128):032x}"[: size - len(event) - 2] + '"}')
    file.write_text("\n".join(lines))
    return file


def _write_tiny_batches(work: Workload, source: Cluster, progress: Callable[[int], None]) -> None:
    """Send five requests again and again. In request k, partition p gets a batch of 1 + (k + p) % 5 records."""
    generator = random.Random(2)
    requests = []
    for k in range(_TINY):
        sizes = {p: 1 + (k + p) % _TINY for p in range(PARTITIONS)}
        batches = {p: record_batch(generator.randbytes(work.record_size) for _ in range(n)) for p, n in sizes.items()}
        requests.append(produce_request(work.topic, batches))
    per_round = PARTITIONS * sum(range(1, _TINY + 1))
    _send(work, source, requests, work.records // per_round * _TINY, progress)


def _write_keyed_batches(work: Workload, source: Cluster, progress: Callable[[int], None]) -> None:
    """Send some hundred requests again and again. Each partition gets batches of keys that belong there."""
    generator = random.Random(3)
    total = work.records // (PARTITIONS * _KEYED)
    different = min(total, _KEYED_REQUESTS)
    keys = _keys_by_partition(generator, different * _KEYED)
    size = work.record_size - _KEY_SIZE
    requests = []
    for number in range(different):
        part = slice(number * _KEYED, (number + 1) * _KEYED)
        batches = {
            partition: record_batch((generator.randbytes(size) for _ in own_keys[part]), own_keys[part])
            for partition, own_keys in enumerate(keys)
        }
        requests.append(produce_request(work.topic, batches))
    _send(work, source, requests, total, progress)


def _keys_by_partition(generator: random.Random, count: int) -> list[list[bytes]]:
    """Return `count` keys for each partition, as Java's partitioner chooses them."""
    total = int(PARTITIONS * (count + 6 * count**0.5 + 50))  # enough for the partition that gets the fewest
    data = np.frombuffer(generator.randbytes(total * _KEY_SIZE), np.uint8)
    starts = np.arange(total) * _KEY_SIZE
    chosen = murmur2.partitions(data, starts, np.full(total, _KEY_SIZE), PARTITIONS)
    keys = data.reshape(total, _KEY_SIZE)
    return [[key.tobytes() for key in keys[chosen == partition][:count]] for partition in range(PARTITIONS)]


def _send(
    work: Workload, source: Cluster, requests: Sequence[bytes], total: int, progress: Callable[[int], None]
) -> None:
    """Send `total` Produce requests, beginning again after the last of `requests`."""
    # A broker handles the requests of one connection one after the other: two connections use both cores.
    connections = [RawConnection(source.brokers[0].port) for _ in range(2)]
    for number in produce_many(connections, requests, total, _IN_FLIGHT):
        if number % 1000 == 0:
            progress(work.records * number // total)
    for connection in connections:
        connection.close()
