"""`/metrics`, for Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from mirrormaker import __version__
from mirrormaker.status.counts import Figures, Key
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, Snapshot
from mirrormaker.worker.counters import BOUNDS, CLASSES

_PLACE = ("source", "topic", "partition")
_OTHER = "other"  # the topic or partition under which those are added up that have no series of their own
# Milliseconds: every second class or so, because each is a series of each partition.
_SHOWN = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 3_600_000)
_BUCKETS = [(BOUNDS.index(bound), str(bound / 1000)) for bound in _SHOWN]

Labels = tuple[str, str, str]
Place = tuple[str, Key, Figures]  # a source and its partition, and what was counted there
Rows = list[tuple[Any, ...]]


class Metrics:
    """Which partitions have series of their own: the first that came, up to a number. That never changes, so no count goes back."""

    def __init__(self, max_partitions: int) -> None:
        self._max = max_partitions
        self._own: dict[tuple[str, str, int], Labels] = {}
        self._topics: set[tuple[str, str]] = set()  # with a series for the rest of their partitions
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    def of(self, picture: Snapshot) -> Callable[[], bytes]:
        """What is counted now; the text is made when the result is called, in another thread, but in one at a time.

        Only the copy is made here, 5 ms for 2,000 partitions: whoever calls has streams to listen to.
        """
        counted = [
            (source.name, key, one.figures)
            for source in picture.sources
            for key, one in source.counts.partitions.items()
        ]
        return lambda: self._text(picture, counted)

    def _text(self, picture: Snapshot, counted: list[Place]) -> bytes:
        families = [*self._of_partitions(picture, counted), *_of_sources(picture), *_of_streams(picture)]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Ready(families))
        return generate_latest(registry) + generate_latest(self._process)

    def labels(self, source: str, topic: str, partition: int) -> Labels:
        key = (source, topic, partition)
        if key not in self._own:
            if len(self._own) < self._max:
                self._own[key] = (source, topic, str(partition))
            elif (source, topic) in self._topics or len(self._topics) < self._max:
                self._topics.add((source, topic))
                return (source, topic, _OTHER)
            else:
                return (source, _OTHER, _OTHER)
        return self._own[key]

    def _of_partitions(self, picture: Snapshot, places: list[Place]) -> Iterator[Metric]:
        counted: dict[Labels, list[Figures]] = defaultdict(list)
        lags: dict[Labels, int] = defaultdict(int)
        for row in picture.partitions:  # they come first: what is here now needs its series more than what was
            lags[self.labels(row.source, row.topic, row.partition)] += row.lag
        for source, key, figures in places:
            counted[self.labels(source, *key)].append(figures)

        def total(of: Callable[[Figures], int]) -> Rows:
            return [(*labels, sum(map(of, some))) for labels, some in counted.items()]

        yield _counters("records", "Records that the target has acknowledged", _PLACE, total(lambda c: c.records))
        yield _counters(
            "bytes", "Bytes of the batches that the target has acknowledged", _PLACE, total(lambda c: c.bytes)
        )
        lanes = [(*row[:3], "batches", row[3]) for row in total(lambda c: c.as_is)]
        lanes += [(*row[:3], "records", row[3]) for row in total(lambda c: c.unpacked)]
        yield _counters("batches", "Batches sent: forwarded as they are, or packed anew", (*_PLACE, "lane"), lanes)
        yield _counters("retries", "Attempts that failed and were made again", _PLACE, total(lambda c: c.retries))
        yield _counters(
            "resumes", "Times that a target log was read to find out how far it is", _PLACE, total(lambda c: c.resumes)
        )
        lag = [(*labels, count) for labels, count in lags.items()]
        yield _gauges("lag_records", "Records on the source that are not on the target yet", _PLACE, lag)
        late = HistogramMetricFamily(
            "mirrormaker_latency_seconds", "From a record's timestamp to the target's acknowledgement", labels=_PLACE
        )
        for labels, some in counted.items():
            late.add_metric(labels, *_histogram(some))
        yield late


def _of_sources(picture: Snapshot) -> Iterator[Metric]:
    info = [(s.name, s.group, s.cluster, s.address, __version__, 1) for s in picture.sources]
    yield _gauges("source_info", "Always 1", ("source", "group", "cluster", "address", "version"), info)
    yield _gauges("source_ready", "1 if its partitions are known and its streams at work", ("source",),
                  [(s.name, int(s.is_ready)) for s in picture.sources])  # fmt: skip
    yield _counters("dropped_records", "Records that could not be delivered and were written down instead (numDroppedMessages)",
                    ("source",), [(s.name, s.dropped) for s in picture.sources])  # fmt: skip
    yield _counters("lost_ranges", "Ranges of offsets that were gone from the source before they were mirrored", ("source",),
                    [(s.name, s.lost) for s in picture.sources])  # fmt: skip
    yield _counters("rebalances", "Times that the group has shared its partitions", ("source",),
                    [(s.name, s.counts.rebalances) for s in picture.sources])  # fmt: skip
    states: dict[tuple[str, str], int] = {
        (source.name, state): 0 for source in picture.sources for state in (FLOWING, WAITING, STOPPED)
    }
    for row in picture.partitions:
        states[row.source, row.state] += 1
    yield _gauges("partitions", "Partitions that this process mirrors, by state", ("source", "state"),
                  [(*labels, count) for labels, count in states.items()])  # fmt: skip


def _of_streams(picture: Snapshot) -> Iterator[Metric]:
    labels = ("source", "stream")

    def each(of: Callable[[Any], float]) -> Rows:
        return [(stream.source, str(stream.number), of(stream.figures)) for stream in picture.streams]

    yield _gauges("stream_up", "1 if the stream is at work", labels, each(lambda f: int(f.at_work)))
    yield _counters("stream_starts", "Times that the stream was started", labels, each(lambda f: f.starts))
    yield _gauges("stream_buffer_bytes", "Bytes between source and target", labels, each(lambda f: f.buffer))
    limit = [(s.source, str(s.number), picture.buffer_limit) for s in picture.streams]
    yield _gauges("stream_buffer_limit_bytes", "Bytes that may be between source and target", labels, limit)
    yield _counters("stream_cpu_seconds", "Processor time of the stream's process", labels, each(lambda f: f.cpu))
    yield _gauges("stream_resident_memory_bytes", "Memory of the stream's process", labels, each(lambda f: f.memory))


class _Ready(Collector):
    """What was counted already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _counters(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = CounterMetricFamily(f"mirrormaker_{name}", text, labels=labels)
    for row in rows:
        family.add_metric(row[:-1], row[-1])
    return family


def _gauges(name: str, text: str, labels: tuple[str, ...], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"mirrormaker_{name}", text, labels=labels)
    for row in rows:
        family.add_metric(row[:-1], row[-1])
    return family


def _histogram(some: list[Figures]) -> tuple[list[tuple[str, float]], float]:
    """Buckets as Prometheus wants them, each with all before it, and the sum in seconds."""
    up_to = list(accumulate(sum(counted.late[at] for counted in some) for at in range(CLASSES)))
    buckets = [(bound, float(up_to[at])) for at, bound in _BUCKETS]
    return [*buckets, ("+Inf", up_to[-1])], sum(counted.late_ms for counted in some) / 1000
