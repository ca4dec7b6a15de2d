"""The work: what is written to the source, once, before any mirror runs."""

from __future__ import annotations

import random
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench import raw
from bench.stage import PARTITIONS, Ends, Stage, create
from mirrormaker.embedded import Cluster, KafkaTools

_WRITE_LIMIT = 180.0
"""Seconds to write one workload: 15 for the largest on two idle cores."""

_TINY = 5
"""Records in the largest batch of W3; the smallest has one."""

_UNDER_WAY = 8
"""Produce requests sent ahead of their answers, on two connections together."""


_SHIPPED = ("ours", "mm1", "mm2")
_ALL = (*_SHIPPED, "mm1-tuned", "mm2-tuned")


@dataclass(frozen=True)
class Workload:
    """Records of one size in batches of one kind. `limit` is the seconds that a mirror may take for it."""

    name: str
    title: str
    records: int
    record_size: int
    codec: str
    batch_size: int | None
    """Of the producer that writes them, in bytes; without one, batches hold one to five records."""
    limit: float
    tools: tuple[str, ...] = _ALL

    @property
    def topic(self) -> str:
        return f"bench-{self.name.lower()}"

    @property
    def gigabytes(self) -> float:
        return self.records * self.record_size / 1e9


@dataclass(frozen=True)
class Latency:
    """A steady trickle instead of a backlog."""

    name: str
    title: str
    warm_up: float
    seconds: float
    rate: int = 500
    record_size: int = 100
    tools: tuple[str, ...] = _SHIPPED
    """What is tuned for throughput pays for it with latency, and would only look bad here."""


W1 = Workload("W1", "2 M x 1 KB, uncompressed, 16 KB batches", 2_000_000, 1024, "none", 16_384, limit=120)
W2 = Workload("W2", "10 M x 100 B, lz4, 64 KB batches", 10_000_000, 100, "lz4", 65_536, limit=150)
W3 = Workload("W3", "2 M x 100 B, uncompressed, 1 to 5 records a batch", 2_000_040, 100, "none", None, limit=120)
L = Latency("L", "500 records/s, 100 B", warm_up=10, seconds=30)

FULL = (W1, W2, W3, L)
# Four minutes are short: where no goal is at stake, a Java tool is left out.
QUICK = (
    replace(W1, title="200 k x 1 KB, uncompressed, 16 KB batches", records=200_000, limit=60, tools=_SHIPPED),
    replace(W2, title="1 M x 100 B, lz4, 64 KB batches", records=1_000_000, limit=60, tools=_SHIPPED),
    replace(W3, title="150 k x 100 B, 1 to 5 records a batch", records=150_000, limit=60, tools=("ours", "mm1")),
    replace(L, warm_up=3, seconds=10, tools=("ours", "mm2")),
)


def write(work: Workload, stage: Stage, tell: Callable[[int], None]) -> str:
    """Fill the source topic, and say what its batches really are."""
    create(stage.source, work.topic)
    if work.batch_size is None:
        _write_tiny_batches(work, stage.source, tell)
    else:
        _write_with_kafkas_producer(work, work.batch_size, stage, tell)
    ends = Ends(stage.source, work.topic)
    written = ends()
    ends.close()
    if written != work.records:
        raise raw.BrokerError(f"{work.name}: {written} records are on the source instead of {work.records}")
    return _batches_in(stage.source.directory / "broker-1" / f"{work.topic}-0")


def _write_with_kafkas_producer(work: Workload, batch_size: int, stage: Stage, tell: Callable[[int], None]) -> None:
    payload = ["--record-size", str(work.record_size)]
    if work.codec != "none":
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
    # A broker answers one request of a connection after the other: two keep both its cores at work.
    lines = [raw.Line(source.brokers[0].port) for _ in range(2)]
    total = work.records // per_round * _TINY
    for number in range(total + _UNDER_WAY):
        line = lines[number % 2]
        if number >= _UNDER_WAY:
            raw.check_produced(line.receive())
        if number < total:
            line.send(requests[number % _TINY])
        if number % 1000 == 0:
            tell(number // _TINY * per_round)
    for line in lines:
        line.close()


def _batches_in(partition: Path) -> str:
    """What the log itself says about the batches: their mean size and number of records, from its first 8 MB."""
    with open(partition / f"{0:020d}.log", "rb") as log:
        data = log.read(8 << 20)
    at = batches = records = 0
    while at + 61 <= len(data):
        length, count = struct.unpack_from(">i", data, at + 8)[0], struct.unpack_from(">i", data, at + 57)[0]
        at, batches, records = at + 12 + length, batches + 1, records + count
    return f"{records / batches:.1f} records and {at / batches / 1000:.1f} KB a batch"
