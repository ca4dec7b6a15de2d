"""The records of a cluster as a Spark DataFrame, for whoever wants to look for himself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mirrormaker.errors import OUTAGE, ClusterError, SettingError
from mirrormaker.settings import properties
from mirrormaker.settings.clients import source_settings, target_settings
from mirrormaker.verification.log_reader import Logs, Piece
from mirrormaker.wire.client.cluster import Cluster, Endpoint
from mirrormaker.wire.client.log_offsets import EARLIEST, LATEST, list_offsets
from mirrormaker.wire.records.arrow import HEADERS, to_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
_PART = 200_000  # offsets of a task
_ROWS = 10_000  # of an Arrow batch: Spark's own choice

Time = int | datetime  # milliseconds since 1970, or the same as Python has it
Span = tuple[str, int, int, int]


def read(
    spark: SparkSession,
    settings: str | PathLike[str] | Mapping[str, str],
    topics: str | Sequence[str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> DataFrame:
    """What topics hold now: topic, partition, offset, timestamp, key, value, headers and the producer's id.

    `settings` is a property file as `mirrormaker run` takes it, of either cluster, or its content as a mapping. This call fixes the
    range of offsets, so the DataFrame shows the same records however often it is used, unless retention takes some.
    `isolation.level=read_committed` leaves out aborted transactions. A timestamp that no producer gave is null.
    """
    endpoint, committed = _endpoint(settings)
    if not endpoint.bootstrap:
        raise SettingError("bootstrap.servers is missing; add a line like bootstrap.servers=host:9092")
    names = [topics] if isinstance(topics, str) else list(topics)
    low, high = _milliseconds(since), _milliseconds(until)
    with ThreadPoolExecutor(1) as run_in_thread:  # a notebook has an event loop of its own in this thread
        spans = run_in_thread.submit(lambda: asyncio.run(_spans(endpoint, committed, names, low))).result()
    count = max(1, len(spans))
    return spark.range(0, count, 1, count).mapInArrow(_task(endpoint, committed, spans, low, high), COLUMNS)


def _endpoint(settings: str | PathLike[str] | Mapping[str, str]) -> tuple[Endpoint, bool]:
    if isinstance(settings, Mapping):
        lines = (properties.Property(key, value, line) for line, (key, value) in enumerate(settings.items(), 1))
        found = properties.Properties("settings", lines)
    else:
        found = properties.read(fspath(settings), "settings")
    if "group.id" not in found and "isolation.level" not in found:
        return target_settings(found).endpoint, False
    if "group.id" not in found:  # a consumer's file; nothing is committed here, so any name will do
        found = properties.Properties(found.path, (*found.lines, properties.Property("group.id", "mirrormaker", 0)))
    source = source_settings(found)
    return source.endpoint, source.read_committed


def _milliseconds(time: Time | None) -> int | None:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time


async def _spans(endpoint: Endpoint, committed: bool, names: Sequence[str], since: int | None) -> list[Span]:
    """The offsets that there are now, in parts."""
    cluster = Cluster(endpoint)
    try:
        await cluster.refresh(names)
        unknown = [name for name in names if name not in cluster.topics]
        if unknown:
            raise SettingError(f"there is no topic {unknown[0]} on {endpoint}")
        keys = [(name, partition) for name in names for partition in sorted(cluster.topics[name].partitions)]
        starts = await list_offsets(cluster, keys, EARLIEST if since is None else since)
        ends = await list_offsets(cluster, keys, LATEST, read_committed=committed)
    except OUTAGE as error:
        raise ClusterError(f"{endpoint} cannot be read: {error}") from error
    finally:
        cluster.close()
    found: list[Span] = []
    for key in keys:
        start, end = starts[key], ends[key]
        if isinstance(start, Exception) or isinstance(end, Exception):
            raise ClusterError(f"{endpoint} does not say where {key[0]}-{key[1]} begins or ends")
        if start >= 0:  # brokers say -1 where no record is as young as that
            found += [(*key, at, min(at + _PART, end)) for at in range(start, end, _PART)]
    return found


def _task(endpoint: Endpoint, committed: bool, spans: Sequence[Span], since: int | None, until: int | None):  # type: ignore[no-untyped-def]
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Logs(endpoint, committed) as logs:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for topic, partition, start, stop in spans[number : number + 1]:
                        for piece in logs.read(topic, partition, start, stop):
                            yield from _table(topic, partition, piece, since, until).to_batches(_ROWS)

    return rows


def _table(topic: str, partition: int, piece: Piece, since: int | None, until: int | None) -> pa.Table:
    stamps = piece.records.timestamps
    keep = (stamps >= (since if since is not None else stamps)) & (
        stamps < (until if until is not None else stamps + 1)
    )
    if not keep.all():
        piece = piece.part(keep)
    table, count = to_table(piece.records), len(piece.records)
    stamps = piece.records.timestamps
    columns: list[Any] = [
        pa.array([topic] * count, pa.string()),
        pa.array(np.full(count, partition, np.int32)),
        table["offset"],
        pa.array(stamps * 1000, pa.timestamp("us", "UTC"), mask=stamps == -1),
        table["key"],
        table["value"],
        table["headers"],
        pa.array(piece.producers),
    ]
    return pa.table(columns, _SCHEMA)
