"""Mirrors whose connections go through a proxy that cuts, delays, throttles, freezes and refuses them."""

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
from tests.support.counting import Count, count
from tests.support.load import PARTITIONS, Load
from tests.support.mirror_process import MirrorProcess
from tests.support.raw_requests import RawConnection, produce_many, produce_request, record_batch
from tests.support.topics import EndOffsets, create_topic

from faults.proxy import Proxy
from mirrormaker.embedded import Cluster
from mirrormaker.wire.records.batch import Batches, split
from mirrormaker.wire.records.columns import unpack

_ONE_WAY = 0.05  # seconds from the mirror to a cluster, as between two continents: a round trip of 100 ms

_TOPIC = "proxied"
_RECORD = 1024  # bytes of a record
_OVERHEAD = 12  # bytes of a record beside its value: 256 records fill a batch as a batch.size of 256 KB does
_DIFFERENT = 8  # Produce requests, which are repeated to write the backlog
_IN_FLIGHT = 4  # Produce requests

_CATCH_UP = 60.0  # seconds to mirror the rest once the network works again; a partition waits for 9 at most
_STEADY = 20.0  # seconds of faults under a steady load
_BACKLOG = 400  # MB that are copied during faults


@dataclass(frozen=True)
class ProxiedClusters:
    """Two clusters, and the proxies between them and the mirror."""

    source: Cluster
    target: Cluster
    source_proxy: Proxy
    target_proxy: Proxy

    @property
    def proxies(self) -> tuple[Proxy, Proxy]:
        """Both proxies."""
        return self.source_proxy, self.target_proxy

    def mirror(self, directory: Path) -> MirrorProcess:
        """Return a mirror whose connections go through the proxies; it is not started."""
        options = ("--whitelist", _TOPIC, "--num.streams", "2")
        addresses = (self.source_proxy.bootstrap, self.target_proxy.bootstrap)
        return MirrorProcess(directory, *addresses, *options, group=uuid.uuid4().hex)

    def end_offsets(self) -> tuple[EndOffsets, EndOffsets]:
        """Return the end offsets of source and target."""
        return EndOffsets(self.source, _TOPIC, PARTITIONS), EndOffsets(self.target, _TOPIC, PARTITIONS)

    def repair(self) -> None:
        """End all faults."""
        for proxy in self.proxies:
            for order in ("delay 0", "throttle 0", "freeze off", "refuse off"):
                proxy.send(order)


@contextmanager
def proxied_clusters(heap: str = "512m", quick: bool = True) -> Iterator[ProxiedClusters]:
    """Run two clusters of one broker, each behind a proxy of its own. Both have the topic."""
    settings = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "1000"}
    with (
        Cluster(name="proxied-source", settings=settings, heap=heap, quick=quick, proxied=True) as source,
        Cluster(name="proxied-target", settings=settings, heap=heap, quick=quick, proxied=True) as target,
        Proxy(source.proxy_routes) as source_proxy,
        Proxy(target.proxy_routes) as target_proxy,
    ):
        for cluster in (source, target):
            create_topic(cluster, _TOPIC, PARTITIONS)
        yield ProxiedClusters(source, target, source_proxy, target_proxy)


@dataclass(frozen=True)
class Disturbed:
    """The records after a disturbed copy, and how often each fault happened."""

    count: Count
    faults: Counter[str]


def disturb_steady_load(directory: Path) -> Disturbed:
    """Cause random faults under a steady load, then count the records."""
    generator = random.Random(1)
    with proxied_clusters() as clusters, clusters.mirror(directory) as mirror:
        source, target = clusters.end_offsets()
        load = Load(clusters.source.bootstrap, _TOPIC)
        load.start()
        try:
            _wait_for(target, 1, _CATCH_UP, mirror)
            # The load is twice as many bytes per second.
            faults = _disturb(clusters, _STEADY, generator, throttle=30_000)
        finally:
            clusters.repair()
            load.stop()
        if load.failures:
            raise AssertionError(f"the load itself failed: {load.failures[0]}")
        _wait_for(target, source.records(), _CATCH_UP, mirror)
        mirror.stop()
        return Disturbed(count(clusters.source, clusters.target, _TOPIC), faults)


def disturb_backlog(directory: Path) -> Disturbed:
    """Cause random faults while a backlog is copied, then compare the records."""
    generator = random.Random(1)
    with proxied_clusters() as clusters:
        fill(clusters, _BACKLOG, 16 << 10)
        source, target = clusters.end_offsets()
        with clusters.mirror(directory) as mirror:
            _wait_for(target, 1, _CATCH_UP, mirror)
            faults: Counter[str] = Counter()
            while target.records() < source.records() * 3 // 4:
                faults += _disturb(clusters, 1, generator, throttle=20_000_000)
            _wait_for(target, source.records(), _CATCH_UP, mirror)
            mirror.stop()
        total = sum((compare_logs(clusters.source, clusters.target, _TOPIC, p) for p in range(PARTITIONS)), Count())
        return Disturbed(total, faults)


def compare_logs(source: Cluster, target: Cluster, topic: str, partition: int, width: int = 16) -> Count:
    """Compare the first bytes of every record of a partition, at clusters of one broker.

    Values may be repeated, so only the same values in the same order are right.
    """
    left, right = (_first_bytes(cluster, topic, partition, width) for cluster in (source, target))
    surplus, both = len(right) - len(left), min(len(left), len(right))
    return Count(len(left), max(0, -surplus), max(0, surplus), int((left[:both] != right[:both]).sum()))


def _first_bytes(cluster: Cluster, topic: str, partition: int, width: int) -> npt.NDArray[np.void]:
    """Return the first bytes of every record in the log."""
    parts = [np.zeros(0, f"V{width}")]
    for file in sorted((cluster.directory / "broker-1" / f"{topic}-{partition}").glob("*.log")):
        for batches in split(memoryview(file.read_bytes())):
            assert isinstance(batches, Batches)
            batches.check()
            records = unpack(batches)
            parts.append(records.data[records.starts[:, None] + np.arange(width)].view(f"V{width}")[:, 0])
    return np.concatenate(parts)


def _disturb(clusters: ProxiedClusters, seconds: float, generator: random.Random, throttle: int) -> Counter[str]:
    """Cause random faults for some seconds. Return how often each fault happened."""
    cuts = ("cut", "cut one")
    lasting = (f"delay {_ONE_WAY}", f"throttle {throttle}", "freeze on", "refuse on")
    faults: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        proxy = generator.choice(clusters.proxies)
        order = generator.choice((*cuts, *cuts, *lasting))
        proxy.send(order)
        faults[order] += 1
        if order not in lasting:
            time.sleep(generator.uniform(0, 0.5))
        elif generator.random() < 0.5:  # cut the connections while the fault lasts
            time.sleep(generator.uniform(0.2, 1))
            proxy.send("cut")
            faults["cut"] += 1
            time.sleep(generator.uniform(0, 0.5))
        else:
            time.sleep(generator.uniform(0.2, 2))
        clusters.repair()
    return faults


def copy_over_distance(directory: Path, clusters: ProxiedClusters) -> float:
    """Copy the backlog with delayed connections. Return MB/s between a tenth and nine tenths of the backlog."""
    for proxy in clusters.proxies:
        proxy.send(f"delay {_ONE_WAY}")
    source, target = clusters.end_offsets()
    records = source.records()
    try:
        with clusters.mirror(directory) as mirror:
            _wait_for(target, 1, _CATCH_UP, mirror)
            began = _wait_for(target, records // 10, _CATCH_UP, mirror)
            before = target.records()
            ended = _wait_for(target, records * 9 // 10, 3 * _CATCH_UP, mirror)
            copied = target.records() - before
            mirror.stop()
    finally:
        clusters.repair()
    return copied * _RECORD / 1e6 / (ended - began)


def fill(clusters: ProxiedClusters, megabytes: int, batch_bytes: int) -> None:
    """Write a backlog of incompressible records in batches of so many bytes, without the proxy."""
    generator = random.Random(4)
    per_batch = batch_bytes // _RECORD
    requests = [_request(generator, per_batch) for _ in range(_DIFFERENT)]
    total = megabytes * 1_000_000 // (per_batch * _RECORD * PARTITIONS)
    connection = RawConnection(clusters.source.brokers[0].port)
    for _ in produce_many([connection], requests, total, _IN_FLIGHT):
        pass
    connection.close()


def _request(generator: random.Random, records: int) -> bytes:
    size = _RECORD - _OVERHEAD
    batches = {p: record_batch(generator.randbytes(size) for _ in range(records)) for p in range(PARTITIONS)}
    return produce_request(_TOPIC, batches)


def _wait_for(ends: EndOffsets, records: int, within: float, mirror: MirrorProcess) -> float:
    """Wait until the topic holds so many records. Return the time at which it did."""
    deadline = time.monotonic() + within
    while ends.records() < records:
        if time.monotonic() > deadline or mirror.has_ended:
            raise AssertionError(f"{ends.records()} of {records} records have arrived:\n{mirror.text}")
        time.sleep(0.02)
    return time.monotonic()
