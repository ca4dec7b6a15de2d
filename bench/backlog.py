"""Fills the source with a workload's records, once, before any mirror runs."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import raw
from bench.logs import Batches, batches_in
from bench.stage import PARTITIONS, Ends, Stage, create
from bench.workloads import Workload
from mirrormaker.embedded import Cluster, KafkaTools
from mirrormaker.wire.records import murmur2

_WRITE_LIMIT = 180.0
"""Seconds to write one workload: 50 for the slowest, 10 M records in zstd, on two idle cores."""

_TINY = 5
"""Records in the largest batch of W3; the smallest has one."""

_KEYED = 16
"""Records in a batch of W4: what a producer puts into 16 KB, if each is 1 KB."""

_KEY_SIZE = 8

_KEYED_REQUESTS = 625
"""Different ones, 80,000 records and as many keys together: they take 80 MB while W4 is written."""

_UNDER_WAY = 8
"""Produce requests sent ahead of their answers, on two connections together."""


def write(work: Workload, stage: Stage, tell: Callable[[int], None]) -> Batches:
    """Fill the source topic, and say what its batches really are."""
    create(stage.source, work.topic)
    if work.keyed:
        _write_keyed_batches(work, stage.source, tell)
    elif work.batch_size is None:
        _write_tiny_batches(work, stage.source, tell)
    else:
        _write_with_kafkas_producer(work, work.batch_size, stage, tell)
    ends = Ends(stage.source, work.topic)
    written = ends()
    ends.close()
    if written != work.records:
        raise raw.BrokerError(f"{work.name}: {written} records are on the source instead of {work.records}")
    return batches_in(stage.source, work.topic)


def _write_with_kafkas_producer(work: Workload, batch_size: int, stage: Stage, tell: Callable[[int], None]) -> None:
    payload = ["--record-size", str(work.record_size)]
    if work.lines:
        payload = ["--payload-file", str(_json_lines(stage.directory / "payload.txt", work.record_size))]
    producer = [f"batch.size={batch_size}", "linger.ms=100", f"compression.type={work.codec}"]
    tool = KafkaTools(stage.source.version).start(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", stage.source.bootstrap, "--topic", work.topic),
        *("--num-records", str(work.records), "--throughput", "-1", *payload),
        *("--command-property", *producer),
    )
    deadline = time.monotonic() + _WRITE_LIMIT
    ends = Ends(stage.source, work.topic)
    while tool.poll() is None:
        if time.monotonic() > deadline:
            tool.kill()
            raise raw.BrokerError(f"{work.name} could not be written in {_WRITE_LIMIT:g} s")
        tell(ends())
        try:
            tool.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    ends.close()


def _json_lines(file: Path, size: int) -> Path:
    """Ten thousand small events to draw from: lz4 makes a batch of them about 2.3 times smaller."""
    chance = random.Random(1)
    lines = []
    for _ in range(10_000):
        page, user = chance.choice(("cart", "item", "list", "search", "account")), chance.randrange(10**6)
        event = f'{{"user":{user},"page":"/shop/{page}","country":"{chance.choice(("DE", "FR", "IT", "PL"))}"'
        event += f',"ms":{chance.randrange(10, 900)},"session":"'
        lines.append(event + f"{chance.getrandbits(128):032x}"[: size - len(event) - 2] + '"}')
    file.write_text("\n".join(lines))
    return file


def _write_tiny_batches(work: Workload, source: Cluster, tell: Callable[[int], None]) -> None:
    """Five requests, over and over: in request k, partition p gets a batch of 1 + (k + p) % 5 records."""
    chance = random.Random(2)
    requests = []
    for k in range(_TINY):
        sizes = {p: 1 + (k + p) % _TINY for p in range(PARTITIONS)}
        batches = {p: raw.batch(chance.randbytes(work.record_size) for _ in range(n)) for p, n in sizes.items()}
        requests.append(raw.produce(work.topic, batches))
    per_round = PARTITIONS * sum(range(1, _TINY + 1))
    _send(work, source, requests, work.records // per_round * _TINY, tell)


def _write_keyed_batches(work: Workload, source: Cluster, tell: Callable[[int], None]) -> None:
    """Some hundred requests, over and over: each partition gets a batch of keys that belong there."""
    chance = random.Random(3)
    total = work.records // (PARTITIONS * _KEYED)
    different = min(total, _KEYED_REQUESTS)
    keys = _keys_by_partition(chance, different * _KEYED)
    size = work.record_size - _KEY_SIZE
    requests = []
    for number in range(different):
        some = slice(number * _KEYED, (number + 1) * _KEYED)
        batches = {
            p: raw.batch((chance.randbytes(size) for _ in mine[some]), mine[some]) for p, mine in enumerate(keys)
        }
        requests.append(raw.produce(work.topic, batches))
    _send(work, source, requests, total, tell)


def _keys_by_partition(chance: random.Random, count: int) -> list[list[bytes]]:
    """As many different keys for each partition, chosen by Java's partitioner."""
    drawn = int(PARTITIONS * (count + 6 * count**0.5 + 50))  # enough for the partition that gets the fewest
    data = np.frombuffer(chance.randbytes(drawn * _KEY_SIZE), np.uint8)
    starts = np.arange(drawn) * _KEY_SIZE
    chosen = murmur2.partitions(data, starts, np.full(drawn, _KEY_SIZE), PARTITIONS)
    keys = data.reshape(drawn, _KEY_SIZE)
    return [[key.tobytes() for key in keys[chosen == partition][:count]] for partition in range(PARTITIONS)]


def _send(work: Workload, source: Cluster, requests: Sequence[bytes], total: int, tell: Callable[[int], None]) -> None:
    """Send so many produce requests, beginning again where there are no more."""
    # A broker answers one request of a connection after the other: two keep both its cores at work.
    lines = [raw.Line(source.brokers[0].port) for _ in range(2)]
    for number in range(total + _UNDER_WAY):
        line = lines[number % 2]
        if number >= _UNDER_WAY:
            raw.check_produced(line.receive())
        if number < total:
            line.send(requests[number % len(requests)])
        if number % 1000 == 0:
            tell(work.records * number // total)
    for line in lines:
        line.close()
