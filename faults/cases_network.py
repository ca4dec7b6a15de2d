"""What can happen between the mirror and its clusters: connections that are cut, slow or narrow, and distance."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import raw
from bench.stage import Ends, create
from tests.mirror_process import MirrorProcess

from faults.judge import Count, count
from faults.load import PARTITIONS, Load
from faults.proxy import Proxy
from mirrormaker.embedded import Cluster

ONE_WAY = 0.05
"""Seconds from the mirror to a cluster, as from one continent to the next: 100 ms there and back."""

_TOPIC = "wires"
_RECORD = 1024
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
            consumer=consumer, producer=producer,
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
        Cluster(name="wires-source", settings=settings, heap=heap, quick=quick, detour=True) as source,
        Cluster(name="wires-target", settings=settings, heap=heap, quick=quick, detour=True) as target,
        Proxy(source.detours) as to_source,
        Proxy(target.detours) as to_target,
    ):
        for cluster in (source, target):
            create(cluster, _TOPIC, PARTITIONS)
        yield Wires(source, target, to_source, to_target)


@dataclass(frozen=True)
class Weather:
    """What came of a mirror in bad weather."""

    found: Count
    faults: dict[str, int]
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
        began = time.monotonic()
        _wait_for(Ends(there.target, _TOPIC), Ends(there.source, _TOPIC)(), _CATCHES_UP, mirror)
        caught_up = time.monotonic() - began
        mirror.stop()
        return Weather(count(there.source, there.target, _TOPIC), faults, caught_up, mirror.text)


def _disturb(there: Wires, seconds: float, chance: random.Random) -> dict[str, int]:
    """How often each fault was made."""
    cuts = ("cut", "cut one")
    spells = ("delay 0.05", "throttle 30000", "freeze on", "refuse on")  # the load is twice as wide
    faults = dict.fromkeys((*cuts, *spells), 0)
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

    megabytes: float
    per_second: float
    """MB/s between a tenth and nine tenths of the backlog."""
    first: float
    """Seconds from the start of the process to the first record."""
    output: str


def distance(
    directory: Path,
    there: Wires,
    batch: int,
    *options: str,
    consumer: str = "",
    producer: str = "",
    delay: float = ONE_WAY,
) -> Distance:
    """Mirror what is on the source to an empty target, both so far away."""
    clear_target(there)
    for proxy in there.both:
        proxy.tell(f"delay {delay}")
    source, target = Ends(there.source, _TOPIC), Ends(there.target, _TOPIC)
    records = source()
    began = time.monotonic()
    try:
        with there.mirror(directory, *options, consumer=consumer, producer=producer) as mirror:
            first = _wait_for(target, 1, _CATCHES_UP, mirror)
            early = _wait_for(target, records // 10, _CATCHES_UP, mirror)
            seen_early = target()
            late = _wait_for(target, records * 9 // 10, 3 * _CATCHES_UP, mirror)
            seen_late = target()
            mirror.stop()
            text = mirror.text
    finally:
        there.calm()
    size = (seen_late - seen_early) * _RECORD / 1e6
    return Distance(records * _RECORD / 1e6, size / (late - early), first - began, text)


def clear_target(there: Wires) -> None:
    """An empty topic on the target."""
    from bench.stage import clear

    clear(there.target)
    create(there.target, _TOPIC, PARTITIONS)


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
    values: Sequence[bytes]
    batches = {}
    for partition in range(PARTITIONS):
        values = [chance.randbytes(_RECORD - 12) for _ in range(records)]
        batches[partition] = raw.batch(values)
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
