"""The work of `mirrormaker.read`, `translate` and `offset_map`: records and the offset map for programs and notebooks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from mirrormaker.errors import OUTAGE, ClusterError, SettingError
from mirrormaker.mapping.translation import stored_maps, translate_offsets
from mirrormaker.model.offset_translation import Translation
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.settings.properties import Properties, PropertiesLike, Property, load
from mirrormaker.verification.log_reader import LogReader, LogSlice
from mirrormaker.verification.plan import Time, Window
from mirrormaker.verification.spans import ArrowTask
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, list_offsets
from mirrormaker.wire.records.arrow import HEADERS, to_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

COLUMNS = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>, producer_id long"
)
_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("producer_id", pa.int64()),
    ]
)
_MAP_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("to_topic", pa.string()),
        pa.field("to_partition", pa.int32()),
        pa.field("to_offset", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("unknown_before", pa.int64()),
    ]
)
_SPAN_OFFSETS = 200_000  # of one Spark task
_LAST_OFFSET = 2**63 - 1
_BATCH_ROWS = 10_000  # of an Arrow batch: Spark's own default


class _Span(NamedTuple):
    topic: str
    partition: int
    start: int
    stop: int


def read(
    spark: SparkSession,
    settings: PropertiesLike,
    topics: str | Sequence[str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> DataFrame:
    """Return the records of topics: topic, partition, offset, timestamp, key, value, headers and producer id.

    `settings` is a property file of either cluster as `mirrormaker run` takes it, or its content as a mapping. `since`
    and `until` take only records with timestamps between them. This call fixes the range of offsets, so the DataFrame
    has the same records each time that it is computed, unless retention deletes some. `isolation.level=read_committed`
    leaves out aborted transactions. The timestamp of a record without one is null. The workers of `spark` must have
    this package.

    Raise SettingError for a mistake in the arguments or an unknown topic, ClusterError if the cluster cannot be read.
    """
    endpoint, read_committed = _endpoint(settings)
    if not endpoint.bootstrap:
        raise SettingError("bootstrap.servers is missing; add a line like bootstrap.servers=host:9092")
    names = [topics] if isinstance(topics, str) else list(topics)
    window = Window.of(since, until)
    spans = _in_a_thread(_spans(endpoint, read_committed, names, window))
    tasks = max(1, len(spans))
    return spark.range(0, tasks, 1, tasks).mapInArrow(_task(endpoint, read_committed, spans, window), COLUMNS)


def translate(
    source: PropertiesLike,
    target: PropertiesLike,
    topic: str,
    offsets: Mapping[int, int] | Iterable[tuple[int, int]] | None,
    group: str | None,
    back: bool,
    source_id: str,
) -> list[Translation]:
    """Translate offsets, or those that a group has committed; `mirrormaker.translate` describes the arguments."""
    if (offsets is None) is (group is None):
        raise SettingError("translate: give either offsets or group")
    asked = group or "" if offsets is None else _pairs(offsets)
    here, there = source_settings(load(source, "source")), target_settings(load(target, "target"))
    return _in_a_thread(translate_offsets(here, there, topic, asked, back=back, source_id=source_id))


def _pairs(offsets: Mapping[int, int] | Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return partitions and offsets; raise SettingError for anything else."""
    form = "must be partitions and offsets, for example {0: 1234}"
    if not isinstance(offsets, Iterable):
        raise SettingError(f"translate: offsets={offsets!r}: these {form}")
    pairs = []
    for pair in offsets.items() if isinstance(offsets, Mapping) else offsets:
        try:
            partition, offset = map(index, pair)
        except (TypeError, ValueError):
            raise SettingError(f"translate: {pair!r} in offsets: these {form}") from None
        if partition < 0 or not 0 <= offset <= _LAST_OFFSET:
            raise SettingError(
                f"translate: partition {partition}, offset {offset}: these must not be negative, nor above {_LAST_OFFSET}"
            )
        pairs.append((partition, offset))
    return pairs


def read_offset_map(
    spark: SparkSession, source: PropertiesLike, target: PropertiesLike, topics: str | Sequence[str], source_id: str
) -> DataFrame:
    """Return the runs of the offset map; `mirrormaker.offset_map` describes the columns."""
    here, there = source_settings(load(source, "source")), target_settings(load(target, "target"))
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise SettingError("topics: name at least one topic")
    maps = _in_a_thread(stored_maps(here, there, names, source_id))
    rows = [
        (topic, partition, run.source, place[0] or topic, place[1], run.target, run.length, run.skipped)
        for (topic, partition), known in maps.items()
        for place, run in known.runs()
    ]
    columns = zip(*rows, strict=True) if rows else [[]] * len(_MAP_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _MAP_SCHEMA, strict=True)]
    return spark.createDataFrame(pa.table(arrays, _MAP_SCHEMA))


def _in_a_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: a notebook runs an event loop in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


def _endpoint(settings: PropertiesLike) -> tuple[Endpoint, bool]:
    """Return how to reach the cluster, and True if only committed records count."""
    properties = load(settings, "settings")
    if "group.id" not in properties and "isolation.level" not in properties:
        return target_settings(properties).endpoint, False
    if "group.id" not in properties:
        # Nothing is committed here, so any group will do.
        properties = Properties(properties.path, (*properties.lines, Property("group.id", "mirrormaker", 0)))
    source = source_settings(properties)
    return source.endpoint, source.read_committed


async def _spans(endpoint: Endpoint, read_committed: bool, names: Sequence[str], window: Window) -> list[_Span]:
    """Return the offsets that the topics have now, as spans for Spark's tasks."""
    cluster = Cluster(endpoint)
    try:
        await cluster.refresh(names)
        unknown = [name for name in names if name not in cluster.topics]
        if unknown:
            raise SettingError(f"there is no topic {unknown[0]} on {endpoint}")
        keys = [(name, partition) for name in names for partition in sorted(cluster.topics[name].partitions)]
        starts = await list_offsets(cluster, keys, EARLIEST if window.since is None else window.since)
        ends = await list_offsets(cluster, keys, LATEST, read_committed=read_committed)
    except OUTAGE as error:
        raise ClusterError(f"{endpoint} cannot be read: {error}") from error
    finally:
        cluster.close()
    spans: list[_Span] = []
    for topic, partition in keys:
        start, end = starts[topic, partition], ends[topic, partition]
        if isinstance(start, Exception) or isinstance(end, Exception):
            raise ClusterError(f"{endpoint} does not say where {topic}-{partition} begins or ends")
        # Brokers answer -1 if all records are older than `since`.
        if start >= 0:
            spans += [
                _Span(topic, partition, at, min(at + _SPAN_OFFSETS, end)) for at in range(start, end, _SPAN_OFFSETS)
            ]
    return spans


def _task(endpoint: Endpoint, read_committed: bool, spans: Sequence[_Span], window: Window) -> ArrowTask:
    def read_spans(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with LogReader(endpoint, read_committed) as log:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    # There is one task even if there is no span.
                    for topic, partition, start, stop in spans[number : number + 1]:
                        for part in log.read(topic, partition, start, stop):
                            yield from _table(topic, partition, part, window).to_batches(_BATCH_ROWS)

    return read_spans


def _table(topic: str, partition: int, part: LogSlice, window: Window) -> pa.Table:
    inside = window.contains(part.records.timestamps)
    if not inside.all():
        part = part.select(inside)
    table, count = to_table(part.records), len(part.records)
    timestamps = part.records.timestamps
    columns = [
        pa.array([topic] * count, pa.string()),
        pa.array(np.full(count, partition, np.int32)),
        table["offset"],
        pa.array(timestamps * 1000, pa.timestamp("us", "UTC"), mask=timestamps == -1),
        table["key"],
        table["value"],
        table["headers"],
        pa.array(part.producer_ids),
    ]
    return pa.table(columns, _SCHEMA)
