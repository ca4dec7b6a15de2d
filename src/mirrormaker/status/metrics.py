"""The text that `/metrics` serves for Prometheus, made from a snapshot of the mirror."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from mirrormaker import __version__
from mirrormaker.status.counts import Figures, StreamFigures
from mirrormaker.status.families import Rows, counters, gauges
from mirrormaker.status.figures import SnapshotSums, Totals
from mirrormaker.status.group_metrics import group_families
from mirrormaker.status.snapshot import FLOWING, STOPPED, WAITING, Snapshot
from mirrormaker.wire.protocol.codec import TopicPartition
from mirrormaker.worker.counters import BOUNDS, CLASSES

_PLACE = ("source", "topic", "partition")
# Partitions without series of their own are added up under this name of a partition or topic.
_OTHER = "other"
# Bounds of the latency histogram in milliseconds. The counters have about twice as many, but each is a series per partition.
_HISTOGRAM_BOUNDS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 3_600_000)
_BUCKETS = [(BOUNDS.index(bound), str(bound / 1000)) for bound in _HISTOGRAM_BOUNDS]

Labels = tuple[str, str, str]
CountedPartition = tuple[str, TopicPartition, Figures]  # the name of the source, the partition, its counts


class Metrics:
    """Makes the text of `/metrics`, with a limit on the number of series.

    The first `max_partitions` partitions have series of their own for as long as the process lives, so no counter goes back.
    """

    def __init__(self, max_partitions: int) -> None:
        self._max_partitions = max_partitions
        self._labels: dict[tuple[str, str, int], Labels] = {}
        # Topics that have one series for all partitions without series of their own.
        self._topics_with_other: set[tuple[str, str]] = set()
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        self._sums = SnapshotSums()

    def of(self, snapshot: Snapshot) -> Callable[[], bytes]:
        """Copy the counts now, and return a function that makes the text of them.

        Call that function in another thread, but in one thread at a time. The copy takes 5 ms for 2,000 partitions and the text
        up to a second, in which the event loop could not listen to streams.
        """
        counted = [
            (source.name, key, counts.figures)
            for source in snapshot.sources
            for key, counts in source.counts.partitions.items()
        ]
        totals = self._sums.totals(snapshot, time.monotonic())
        return lambda: self._text(snapshot, totals, counted)

    def _text(self, snapshot: Snapshot, totals: Totals, counted: list[CountedPartition]) -> bytes:
        families = [
            *self._partition_families(snapshot, counted),
            *_source_families(snapshot, totals),
            *group_families(snapshot),
            *_stream_families(snapshot),
        ]
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_FamilyCollector(families))
        return generate_latest(registry) + generate_latest(self._process)

    def labels(self, source: str, topic: str, partition: int) -> Labels:
        """Return the labels under which a partition is counted: its own, or those of a sum if there are too many partitions."""
        key = (source, topic, partition)
        if key not in self._labels:
            if len(self._labels) < self._max_partitions:
                self._labels[key] = (source, topic, str(partition))
            elif (source, topic) in self._topics_with_other or len(self._topics_with_other) < self._max_partitions:
                self._topics_with_other.add((source, topic))
                return (source, topic, _OTHER)
            else:
                return (source, _OTHER, _OTHER)
        return self._labels[key]

    def _partition_families(self, snapshot: Snapshot, counted: list[CountedPartition]) -> Iterator[Metric]:
        figures_by_labels: dict[Labels, list[Figures]] = defaultdict(list)
        lags: dict[Labels, int] = defaultdict(int)
        # The partitions that this process mirrors now get their labels before those that it has counted and given away.
        for partition in snapshot.partitions:
            labels = self.labels(partition.source, partition.topic, partition.partition)
            if partition.lag_known or partition.lag:  # otherwise the source has not said it yet
                lags[labels] += partition.lag
        for source, key, figures in counted:
            figures_by_labels[self.labels(source, *key)].append(figures)

        def sums(count: Callable[[Figures], int]) -> Rows:
            return [(*labels, sum(map(count, figures))) for labels, figures in figures_by_labels.items()]

        yield counters(
            "records", "Records that the target has acknowledged", _PLACE, sums(lambda figures: figures.records)
        )
        yield counters(
            "bytes",
            "Bytes of the batches that the target has acknowledged",
            _PLACE,
            sums(lambda figures: figures.bytes),
        )
        lanes = [(*row[:3], "batches", row[3]) for row in sums(lambda figures: figures.batches_forwarded)]
        lanes += [(*row[:3], "records", row[3]) for row in sums(lambda figures: figures.batches_repacked)]
        yield counters(
            "batches",
            "Batches that the target has acknowledged: forwarded unchanged (lane batches), or packed again (lane records)",
            (*_PLACE, "lane"),
            lanes,
        )
        yield counters(
            "retries",
            "Attempts to fetch or to send that failed and were repeated",
            _PLACE,
            sums(lambda figures: figures.retries),
        )
        yield counters(
            "resumes",
            "Times that the target's log was read to find out which records it already holds",
            _PLACE,
            sums(lambda figures: figures.resumes),
        )
        lag = [(*labels, count) for labels, count in lags.items()]
        yield gauges(
            "lag_records",
            "Offsets between the position and the end of the source's log, as the source last said",
            _PLACE,
            lag,
        )
        latency = HistogramMetricFamily(
            "mirrormaker_latency_seconds",
            "Time from a record's timestamp to the target's acknowledgement",
            labels=_PLACE,
        )
        for labels, partitions in figures_by_labels.items():
            latency.add_metric(labels, *_histogram(partitions))
        yield latency


def _source_families(snapshot: Snapshot, totals: Totals) -> Iterator[Metric]:
    sources = snapshot.sources
    yield gauges(
        "source_info",
        "The source's consumer group, cluster id and address, and the version of mirrormaker, as labels; the value is 1",
        ("source", "group", "cluster", "address", "version"),
        [(source.name, source.group, source.cluster, source.address, __version__, 1) for source in sources],
    )
    yield gauges(
        "source_ready",
        "1 if the source's partitions are known and at least one of its streams is connected to the driver, otherwise 0",
        ("source",),
        [(source.name, int(source.is_ready)) for source in totals.sources],
    )
    yield gauges(
        "lag_unknown_partitions",
        "Partitions whose source has not said where the log ends, or did not answer when it was last asked",
        ("source",),
        [(source.name, source.lag_unknown) for source in totals.sources],
    )
    yield gauges(
        "topics_left_out",
        "Chosen topics that cannot be mirrored at the moment: the log and the status page say why",
        ("source",),
        [(source.name, len(source.topics_left_out)) for source in sources],
    )
    yield counters(
        "dropped_records",
        "Records that could not be delivered and are listed in the undelivered file instead (numDroppedMessages)",
        ("source",),
        [(source.name, source.dropped) for source in sources],
    )
    yield counters(
        "lost_ranges",
        "Ranges of offsets that the source lost: deleted before they were mirrored, or truncated afterwards (LOST in the log)",
        ("source",),
        [(source.name, source.lost) for source in sources],
    )
    yield counters(
        "rebalances",
        "Rebalances of the consumer group that this process took part in",
        ("source",),
        [(source.name, source.counts.rebalances) for source in sources],
    )
    yield gauges(
        "loop_blocked_seconds_max",
        "The longest time for which the driver's event loop stood still in the last minute; leases and heartbeats wait for it",
        (),
        [(snapshot.loop_blocked,)],
    )
    yield gauges(
        "loop_busy_seconds_max",
        "The same without the time in which the loop waited for a CPU core that others had: what the driver's own work took",
        (),
        [(snapshot.loop_busy,)],
    )
    states = {
        (source.name, state): count
        for source in totals.sources
        for state, count in ((FLOWING, source.flowing), (WAITING, source.waiting), (STOPPED, source.stopped))
    }
    yield gauges(
        "partitions",
        "Partitions that this process mirrors, by state",
        ("source", "state"),
        [(*labels, count) for labels, count in states.items()],
    )


def _stream_families(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ("source", "stream")

    def rows(value: Callable[[StreamFigures], float]) -> Rows:
        return [(stream.source, str(stream.number), value(stream.figures)) for stream in snapshot.streams]

    yield gauges(
        "stream_up",
        "1 if the stream is at work, that is connected to the driver, otherwise 0; if all are 0, nothing is mirrored",
        labels,
        rows(lambda figures: int(figures.at_work)),
    )
    yield counters("stream_starts", "Times that the stream was started", labels, rows(lambda figures: figures.starts))
    yield gauges(
        "stream_buffer_bytes",
        "Bytes in the stream's buffer, between source and target",
        labels,
        rows(lambda figures: figures.buffer),
    )
    yield gauges(
        "stream_buffer_limit_bytes",
        "Limit of mirrormaker_stream_buffer_bytes: buffer.memory",
        labels,
        rows(lambda _: snapshot.buffer_limit),
    )
    yield counters("stream_cpu_seconds", "CPU time of the stream's process", labels, rows(lambda figures: figures.cpu))
    yield gauges(
        "stream_resident_memory_bytes",
        "Resident memory of the stream's process",
        labels,
        rows(lambda figures: figures.memory),
    )


class _FamilyCollector(Collector):
    """Hands families that are complete to a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _histogram(partitions: list[Figures]) -> tuple[list[tuple[str, float]], float]:
    """Return the buckets of all these partitions together, each including all smaller ones, and the sum in seconds."""
    counts = (sum(figures.latency_counts[index] for figures in partitions) for index in range(CLASSES))
    cumulative = list(accumulate(counts))
    buckets = [(bound, float(cumulative[index])) for index, bound in _BUCKETS]
    return [*buckets, ("+Inf", cumulative[-1])], sum(figures.latency_ms for figures in partitions) / 1000
