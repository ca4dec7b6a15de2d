"""The clusters of `python -m bench grow`: one target, one or three sources, and a proxy before each of the first two."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

from faults.proxy import Proxy
from tests.support.java_mirrors import Job
from tests.support.raw_requests import RawConnection, produce_many, produce_request, record_batch
from tests.support.topics import create_topic, delete_all_topics

from bench.growth import Point
from mirrormaker.embedded import Cluster, child_processes

_BROKER = {"auto.create.topics.enable": "false", "log.segment.delete.delay.ms": "1000"}
# Index files are created in full size; brokers with thousands of partitions would map gigabytes.
_MANY, _SMALL_INDEX = 1000, {"segment.index.bytes": "65536"}
_REQUEST = 2_000_000  # bytes of a Produce request
_IN_FLIGHT = 4  # Produce requests, on two connections together


class GrowClusters:
    """A target and some sources. The brokers run as in production: all compilers, a heap of 1 GB."""

    def __init__(self, sources: int) -> None:
        self.directory = child_processes.new_directory("grow")
        self.target = _cluster("grow-target")
        self.sources = [_cluster(f"grow-source-{number}") for number in range(sources)]
        self._proxies: list[Proxy] = []
        self._running = contextlib.ExitStack()

    def __enter__(self) -> GrowClusters:
        with contextlib.ExitStack() as starting:
            for cluster in (self.target, *self.sources):
                starting.enter_context(cluster)
            for cluster in (self.sources[0], self.target):
                self._proxies.append(starting.enter_context(Proxy(cluster.proxy_routes)))
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        child_processes.remove_directory(self.directory)

    @property
    def brokers(self) -> list[int]:
        """The process ids of all brokers."""
        return [broker.pid for cluster in (self.target, *self.sources) for broker in cluster.brokers if broker.pid]

    def write(self, topic: str, point: Point, progress: Callable[[int], None]) -> None:
        """Create the topic at the sources that take part, and fill it."""
        sources = self.sources[: point.sources]
        for source in sources:
            create_topic(source, topic, point.partitions, _index(point))
        values = [random.Random(4).randbytes(point.record_size)] * point.per_batch
        batch = record_batch(values)
        together = max(1, _REQUEST // len(batch))
        requests = [
            produce_request(topic, dict.fromkeys(range(first, min(first + together, point.partitions)), batch))
            for first in range(0, point.partitions, together)
        ]
        for source in sources:
            connections = [RawConnection(source.brokers[0].port) for _ in range(2)]
            total = point.batches * len(requests)
            for number in produce_many(connections, requests, total, _IN_FLIGHT):
                progress(point.records * number // (total * point.sources))
            for connection in connections:
                connection.close()

    def empty_target(self, topic: str, point: Point) -> None:
        """Delete all topics of the target and create this one."""
        delete_all_topics(self.target)
        create_topic(self.target, topic, point.partitions, _index(point))

    def clear(self) -> None:
        """Delete all topics."""
        for cluster in (self.target, *self.sources):
            delete_all_topics(cluster)

    @contextlib.contextmanager
    def jobs(self, topic: str, point: Point, name: str) -> Iterator[list[Job]]:
        """Yield a job for each source. The round trip is as long as the point wants while they run."""
        addresses = [(source.bootstrap, self.target.bootstrap) for source in self.sources[: point.sources]]
        if point.round_trip is not None:
            source, target = self._proxies
            addresses = [(source.bootstrap, target.bootstrap)]
            for proxy in self._proxies:
                proxy.send(f"delay {point.round_trip / 2000}")  # in each direction
        yield [
            Job(topic, *pair, self.directory, f"{name}-{number}", streams=point.streams)
            for number, pair in enumerate(addresses)
        ]


def _index(point: Point) -> dict[str, str]:
    return _SMALL_INDEX if point.partitions >= _MANY else {}


def _cluster(name: str) -> Cluster:
    return Cluster(name=name, settings=_BROKER, heap="1g", quick=False, proxied=True)
