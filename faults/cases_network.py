"""What can happen between the mirror and its clusters: connections that are cut, slow or narrow, and distance."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bench import raw
from bench.measure import Tree, cpu
from bench.stage import Ends, clear, create
from tests.support.mirror_process import MirrorProcess

from faults.judge import Count, count
from faults.load import PARTITIONS, Load
from faults.proxy import Proxy
from mirrormaker.embedded import Cluster
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack

ONE_WAY = 0.05
"""Seconds from the mirror to a cluster, as from one continent to the next: 100 ms there and back."""

_TOPIC = "wires"
_RECORD, _OVERHEAD = 1024, 12
"""Bytes of a record, and those of them that are not its value: 256 fill a batch as a batch.size of 256 KB would."""
_DIFFERENT = 8
"""Requests that the backlog is made of, over and over."""

_UNDER_WAY = 4
_CATCHES_UP = 60.0
"""Seconds to mirror the rest once the network is well again: a partition waits for 9 at most."""


@dataclass(frozen=True)
class Wires:
    """Two clusters, and the two networks between them and the mirror."""

    source: Cluster
    target: Cluster
    to_source: Proxy
    to_target: Proxy

    @property
    def both(self) -> tuple[Proxy, Proxy]:
        return self.to_source, self.to_target

    def mirror(self, directory: Path, *options: str, consumer: str = "", producer: str = "") -> MirrorProcess:
        return MirrorProcess(
            directory, self.to_source.bootstrap, self.to_target.bootstrap, "--whitelist", _TOPIC, *options,
            group=uuid.uuid4().hex, consumer=consumer, producer=producer,
        )  # fmt: skip

    def calm(self) -> None:
        for proxy in self.both:
            for order in ("delay 0", "throttle 0", "freeze off", "refuse off"):
                proxy.tell(order)


@contextmanager
def wires(heap: str = "512m", quick: bool = True) -> Iterator[Wires]:
    """One broker on each side, each behind a proxy of its own, and the topic on both."""
    settings = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "1000"}
    with (
        Cluster(name="wires-source", settings=settings, heap=heap, quick=quick, proxied=True) as source,
        Cluster(name="wires-target", settings=settings, heap=heap, quick=quick, proxied=True) as target,
        Proxy(source.proxy_routes) as to_source,
        Proxy(target.proxy_routes) as to_target,
    ):
        for cluster in (source, target):
            create(cluster, _TOPIC, PARTITIONS)
        yield Wires(source, target, to_source, to_target)


@dataclass(frozen=True)
class Weather:
    """What came of a mirror in bad weather."""

    found: Count
    faults: Counter[str]
    caught_up: float
    """Seconds from the end of the last fault to the last record."""
    output: str


def bad_weather(directory: Path, seconds: float = 20.0, seed: int = 1) -> Weather:
    """Cut, delay, narrow, freeze and refuse at random, under load; then every record must be there once and in order."""
    chance = random.Random(seed)
    with wires() as there, there.mirror(directory, "--num.streams", "2") as mirror:
        load = Load(there.source.bootstrap, _TOPIC)
        load.start()
        try:
            _wait_for(Ends(there.target, _TOPIC), 1, _CATCHES_UP, mirror)
            faults = _disturb(there, seconds, chance)
        finally:
            there.calm()
            load.stop()
        if load.failures:
            raise AssertionError(f"the load itself failed: {load.failures[0]}")
        calm = time.monotonic()
        caught_up = _wait_for(Ends(there.target, _TOPIC), Ends(there.source, _TOPIC)(), _CATCHES_UP, mirror) - calm
        mirror.stop()
        return Weather(count(there.source, there.target, _TOPIC), faults, caught_up, mirror.text)


def heavy_weather(directory: Path, megabytes: int = 400, batch: int = 16 << 10, seed: int = 1) -> Weather:
    """The same while a backlog crosses: whatever is cut, megabytes are under way."""
    chance = random.Random(seed)
    with wires() as there:
        fill(there, megabytes, batch)
        source, target = Ends(there.source, _TOPIC), Ends(there.target, _TOPIC)
        with there.mirror(directory, "--num.streams", "2") as mirror:
            _wait_for(target, 1, _CATCHES_UP, mirror)
            faults: Counter[str] = Counter()
            while target() < source() * 3 // 4:
                faults += _disturb(there, 1, chance, width=20_000_000)
            calm = time.monotonic()
            caught_up = _wait_for(target, source(), _CATCHES_UP, mirror) - calm
            mirror.stop()
        found = sum((_compare(there, partition) for partition in range(PARTITIONS)), Count())
        return Weather(found, faults, caught_up, mirror.text)


def _compare(there: Wires, partition: int) -> Count:
    """Values are random and come again and again: only the same ones in the same order are right."""
    ours, theirs = (_beginnings(cluster, partition) for cluster in (there.source, there.target))
    longer, both = len(theirs) - len(ours), min(len(ours), len(theirs))
    return Count(len(ours), max(0, -longer), max(0, longer), int((ours[:both] != theirs[:both]).sum()))


def _beginnings(cluster: Cluster, partition: int) -> npt.NDArray[np.void]:
    """The first bytes of every record in the log."""
    found = [np.zeros(0, "V16")]
    for file in sorted((cluster.directory / "broker-1" / f"{_TOPIC}-{partition}").glob("*.log")):
        for run in split(memoryview(file.read_bytes())):
            assert isinstance(run, Batches)
            run.check()
            records = unpack(run)
            found.append(records.data[records.starts[:, None] + np.arange(16)].view("V16")[:, 0])
    return np.concatenate(found)


def _disturb(there: Wires, seconds: float, chance: random.Random, width: int = 30_000) -> Counter[str]:
    """How often each fault was made; the steady load is twice as wide as `width`."""
    cuts = ("cut", "cut one")
    spells = (f"delay {ONE_WAY}", f"throttle {width}", "freeze on", "refuse on")
    faults: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        proxy = chance.choice(there.both)
        order = chance.choice((*cuts, *cuts, *spells))
        proxy.tell(order)
        faults[order] += 1
        if order not in spells:
            time.sleep(chance.uniform(0, 0.5))
        elif chance.random() < 0.5:  # and a cut in the middle of it
            time.sleep(chance.uniform(0.2, 1))
            proxy.tell("cut")
            faults["cut"] += 1
            time.sleep(chance.uniform(0, 0.5))
        else:
            time.sleep(chance.uniform(0.2, 2))
        there.calm()
    return faults


@dataclass(frozen=True)
class Distance:
    """How fast a backlog crossed."""

    per_second: float
    """MB/s between a tenth and nine tenths of the backlog."""
    cores: dict[str, float]
    """Busy meanwhile: with the mirror, both brokers, both proxies."""
    first: float
    """Seconds from the start of the process to the first record."""
    output: str


def distance(
    directory: Path, there: Wires, *options: str, consumer: str = "", producer: str = "", delay: float = ONE_WAY
) -> Distance:
    """Mirror what is on the source to an empty target, both `delay` seconds away."""
    clear(there.target)
    create(there.target, _TOPIC, PARTITIONS)
    for proxy in there.both:
        proxy.tell(f"delay {delay}")
    on_target, records = Ends(there.target, _TOPIC), Ends(there.source, _TOPIC)()
    began = time.monotonic()
    try:
        with there.mirror(directory, *options, consumer=consumer, producer=producer) as mirror:
            first = _wait_for(on_target, 1, _CATCHES_UP, mirror)
            early = _wait_for(on_target, records // 10, _CATCHES_UP, mirror)
            seen, before = on_target(), _cpu(there, mirror)
            late = _wait_for(on_target, records * 9 // 10, 3 * _CATCHES_UP, mirror)
            seen, after = on_target() - seen, _cpu(there, mirror)
            mirror.stop()
    finally:
        there.calm()
    cores = {who: (after[who] - before[who]) / (late - early) for who in after}
    return Distance(seen * _RECORD / 1e6 / (late - early), cores, first - began, mirror.text)


def _cpu(there: Wires, mirror: MirrorProcess) -> dict[str, float]:
    assert mirror.process is not None
    tree = Tree(mirror.process.pid)
    tree.find()
    brokers = [broker.pid for cluster in (there.source, there.target) for broker in cluster.brokers if broker.pid]
    return {"mirror": tree.cpu(), "brokers": cpu(brokers), "proxies": cpu(proxy.pid for proxy in there.both)}


def fill(there: Wires, megabytes: int, batch: int) -> None:
    """A backlog of records that do not compress, in batches of so many bytes, past the proxy."""
    chance = random.Random(4)
    per_batch = batch // _RECORD
    requests = [_request(chance, per_batch) for _ in range(_DIFFERENT)]
    line = raw.Line(there.source.brokers[0].port)
    total = megabytes * 1_000_000 // (per_batch * _RECORD * PARTITIONS)
    for number in range(total + _UNDER_WAY):
        if number >= _UNDER_WAY:
            raw.check_produced(line.receive())
        if number < total:
            line.send(requests[number % _DIFFERENT])
    line.close()


def _request(chance: random.Random, records: int) -> bytes:
    size = _RECORD - _OVERHEAD
    batches = {p: raw.batch(chance.randbytes(size) for _ in range(records)) for p in range(PARTITIONS)}
    return raw.produce(_TOPIC, batches)


def _wait_for(ends: Ends, records: int, within: float, mirror: MirrorProcess) -> float:
    """When so many records were there."""
    deadline = time.monotonic() + within
    while ends() < records:
        assert mirror.process is not None
        if time.monotonic() > deadline or mirror.process.poll() is not None:
            raise AssertionError(f"{ends()} of {records} records are there:\n{mirror.text}")
        time.sleep(0.02)
    return time.monotonic()
