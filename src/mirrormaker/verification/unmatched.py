"""Find out why only one side has a record: retention, compaction, a mirror that is not there yet, or a real difference.

Each record without a counterpart gets a `cause`. Everything is joins and windows over DataFrames, so Spark bounds the
memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.matching import Pair, TopicMatch
from mirrormaker.verification.outcomes import (
    BEFORE_THE_MIRROR,
    COMPACTED,
    DELETED_ON_SOURCE,
    DELETED_ON_TARGET,
    EXTRA,
    MISSING,
    NOT_YET_MIRRORED,
    OTHER_WRITERS,
    STILL_ARRIVING,
)
from mirrormaker.verification.plan import TARGET, TopicPlan

_NEVER = (1 << 63) - 1  # after every offset
_INT_COLUMNS = ("plan", "side", "partition", "target_partition", "owner_side", "owner_partition")


class SeriesKey(NamedTuple):
    """The records of one source partition that go to one target partition; `plan` is the number of the topic's plan."""

    plan: int
    side: int
    partition: int
    target_partition: int

    @classmethod
    def of(cls, plan: int, source_chunk: Chunk) -> SeriesKey:
        """Return the key of a source chunk's series."""
        series = source_chunk.series
        return cls(plan, series.side, series.partition, series.selector)


@dataclass
class SharedRange:
    """The first and the last record of a series that both sides have, as offsets of each side."""

    source_first: int = _NEVER
    source_last: int = -1
    target_first: int = _NEVER
    target_last: int = -1

    def include(self, source_first: int, source_last: int, target_first: int, target_last: int) -> None:
        """Widen the range by a pair of equal chunks or records."""
        self.source_first, self.source_last = min(self.source_first, source_first), max(self.source_last, source_last)
        self.target_first, self.target_last = min(self.target_first, target_first), max(self.target_last, target_last)


class TargetLimits(NamedTuple):
    """Which records on the target need no counterpart on the source."""

    deleted_before: int = -1  # target offset: the source may have deleted records before it
    arriving_after: int = _NEVER  # target offset: records after it may still be arriving
    is_behind: bool = False  # the mirror has not copied the whole source partition
    losses: int = 0  # how many records the source can have lost

    def combine(self, other: TargetLimits) -> TargetLimits:
        """Return limits for records that may belong to either of two series."""
        return TargetLimits(
            max(self.deleted_before, other.deleted_before),
            min(self.arriving_after, other.arriving_after),
            self.is_behind or other.is_behind,
            self.losses + other.losses,
        )


class UnmatchedRecords:
    """Add the column `cause` to records that only one side has."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Sequence[TopicPlan],
        matches: Sequence[TopicMatch],
        rows: DataFrame,
        matched: DataFrame,
        allow_other_writers: bool,
    ) -> None:
        """`rows` are the records of both sides, `matched` those that are on both."""
        self._spark, self._plans, self._matches, self._rows = spark, plans, matches, rows
        self._allow_other_writers = allow_other_writers
        self._compacted = [number for number, plan in enumerate(plans) if plan.compacted]
        self._shared: dict[SeriesKey, SharedRange] = defaultdict(SharedRange)
        # (plan, producer id): the source partitions, as (side, partition), whose records this producer has written.
        self._producers: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
        self._learn(matched)

    def _learn(self, matched: DataFrame) -> None:
        """Collect from equal records the range that both sides share, and which producer writes which partition."""
        for number, (source, target) in edge_pairs(self._plans, self._matches):
            series = SeriesKey.of(number, source)
            self._shared[series].include(source.first, source.last, target.first, target.last)
            self._producers[number, target.series.selector].add((series.side, series.partition))
        ranges = matched.groupBy("plan", "side", "partition", "target_partition", "producer_id").agg(
            F.min("source_offset"), F.max("source_offset"), F.min("target_offset"), F.max("target_offset")
        )
        for plan, side, partition, target_partition, producer_id, *offsets in ranges.collect():
            self._shared[SeriesKey(plan, side, partition, target_partition)].include(*offsets)
            self._producers[plan, producer_id].add((side, partition))
        for number, topic in enumerate(self._plans):
            for part in topic.sources:
                if part.producer_id >= 0:
                    # The ledger is certain.
                    self._producers[number, part.producer_id] = {(part.side, part.partition)}

    # -- records that only the source has

    def explain_source(self, records: DataFrame) -> DataFrame:
        """Return records that only the source has, with their cause."""
        records = records.join(
            F.broadcast(self._source_limits()), ["plan", "side", "partition", "target_partition"], "left"
        )
        superseded: Column = F.lit(False)
        if self._compacted:
            keys = self._rows.filter("key is not null").groupBy(
                "plan", "target_partition", F.col("key").alias("source_key")
            )
            latest = keys.agg(
                F.max(F.when(F.expr(f"side != {TARGET} and compared"), F.col("offset"))).alias("latest_offset"),
                F.max(F.expr(f"side = {TARGET} and not compared")).alias("arrives_later"),
                F.max(F.expr(f"side = {TARGET}")).alias("key_on_target"),
            )
            records = records.join(latest, ["plan", "target_partition", "source_key"], "left")
            # Compaction removes a tombstone only after everything that it deletes.
            superseded = F.col("plan").isin(self._compacted) & (
                (F.col("source_tombstone") & ~F.col("key_on_target"))
                | (F.col("source_offset") < F.col("latest_offset"))
                | F.col("arrives_later")
            )
        superseded = F.coalesce(superseded, F.lit(False))
        before_first = F.col("source_offset") < F.col("first_shared")
        records = records.withColumn("may_be_deleted", F.coalesce(~superseded & before_first, F.lit(False)))
        order = Window.partitionBy("plan", "target_partition", "may_be_deleted").orderBy(
            "source_offset", "side", "partition"
        )
        return records.withColumn("rank", F.row_number().over(order)).withColumn(
            "cause",
            F.when(superseded, COMPACTED)
            .when(F.col("may_be_deleted") & (F.col("rank") <= F.col("losses")), DELETED_ON_TARGET)
            .when(F.col("source_offset") > F.col("unmirrored_after"), NOT_YET_MIRRORED)
            .when(before_first & F.col("starts_at_latest"), BEFORE_THE_MIRROR)
            .otherwise(MISSING),
        )

    def _source_limits(self) -> DataFrame:
        table = []
        for number, plan in enumerate(self._plans):
            targets = {part.partition: part for part in plan.targets}
            for part in plan.sources:
                for place in targets if part.side in plan.by_key else [part.partition]:
                    series, target = SeriesKey(number, part.side, part.partition, place), targets.get(place)
                    shared = self._shared.get(series, SharedRange())
                    is_open = part.open_end or (target is not None and target.open_end)
                    unmirrored_after = shared.source_last if is_open else _NEVER
                    losses = self._matches[number].target_losses.get(place, 0)
                    table.append((*series, shared.source_first, unmirrored_after, losses, plan.starts_at_latest))
        names = "plan side partition target_partition first_shared unmirrored_after losses starts_at_latest?"
        return small_table(self._spark, table, names)

    # -- records that only the target has

    def explain_target(self, records: DataFrame) -> DataFrame:
        """Return records that only the target has, with their cause.

        A known producer tells to which source partition a record belongs; otherwise it may belong to any.
        """
        by_producer, by_partition = self._target_limits()
        records = records.join(F.broadcast(by_producer), ["plan", "target_partition", "producer_id"], "left")
        records = records.join(F.broadcast(by_partition), ["plan", "target_partition"], "left")
        superseded: Column = F.lit(False)
        if self._compacted:
            keys = self._rows.filter("key is not null").groupBy(
                "plan", "target_partition", F.col("key").alias("target_key")
            )
            latest = keys.agg(
                F.max(F.when(F.expr(f"side = {TARGET}"), F.col("offset"))).alias("latest_offset"),
                F.max(F.expr(f"side != {TARGET} and not compared")).alias("comes_later"),
            )
            records = records.join(latest, ["plan", "target_partition", "target_key"], "left")
            # If the mirror is behind, a tombstone that it has not copied may have deleted the record.
            superseded = F.col("plan").isin(self._compacted) & (
                F.col("target_tombstone") | (F.col("target_offset") < F.col("latest_offset")) | F.col("comes_later")
                | F.coalesce("is_behind", "any_is_behind")
            )  # fmt: skip
        superseded = F.coalesce(superseded, F.lit(False))
        deleted_before = F.coalesce("deleted_before", "any_deleted_before", F.lit(-1))
        has_owner = F.col("owner_partition").isNotNull()
        records = records.withColumn(
            "may_be_deleted", ~superseded & (F.col("target_offset") < deleted_before)
        ).withColumn("unowned_in", F.when(~has_owner, F.col("target_partition")))
        order = Window.partitionBy("plan", "owner_side", "owner_partition", "unowned_in", "may_be_deleted").orderBy(
            "target_offset", "target_partition"
        )
        return records.withColumn("rank", F.row_number().over(order)).withColumn(
            "cause",
            F.when(superseded, COMPACTED)
            .when(F.col("may_be_deleted") & (F.col("rank") <= F.coalesce("losses", "any_losses")), DELETED_ON_SOURCE)
            .when(
                F.col("target_offset") > F.coalesce("arriving_after", "any_arriving_after", F.lit(_NEVER)),
                STILL_ARRIVING,
            )
            .when(F.lit(self._allow_other_writers) & ~has_owner, OTHER_WRITERS)
            .otherwise(EXTRA),
        )

    def _target_limits(self) -> tuple[DataFrame, DataFrame]:
        """Return the limits for records of known producers, and those for all others, by target partition."""
        limits: dict[SeriesKey, TargetLimits] = {}
        for number, plan in enumerate(self._plans):
            for part in plan.sources:
                for target in plan.targets:
                    if part.side in plan.by_key or target.partition == part.partition:
                        series = SeriesKey(number, part.side, part.partition, target.partition)
                        shared = self._shared.get(series, SharedRange())
                        limits[series] = TargetLimits(
                            shared.target_first if part.log_start > 0 else -1,
                            shared.target_last if target.open_end or part.open_end else _NEVER,
                            part.end > part.stop,
                            self._matches[number].source_losses.get((part.side, part.partition), 0),
                        )
        combined: dict[tuple[int, int], TargetLimits] = defaultdict(TargetLimits)
        by_source: dict[tuple[int, int, int], list[SeriesKey]] = defaultdict(list)
        for series, limit in limits.items():
            key = series.plan, series.target_partition
            combined[key] = combined[key].combine(limit)
            by_source[series.plan, series.side, series.partition].append(series)
        owned = [
            (number, series.target_partition, producer_id, *limits[series], series.side, series.partition)
            for (number, producer_id), partitions in self._producers.items()
            if producer_id >= 0 and len(partitions) == 1
            for side, partition in partitions
            for series in by_source[number, side, partition]
        ]
        by_producer = small_table(
            self._spark,
            owned,
            "plan target_partition producer_id deleted_before arriving_after is_behind? losses owner_side"
            " owner_partition",
        )
        by_partition = small_table(
            self._spark,
            [(*key, *limit) for key, limit in combined.items()],
            "plan target_partition any_deleted_before any_arriving_after any_is_behind? any_losses",
        )
        return by_producer, by_partition


def edge_pairs(plans: Sequence[TopicPlan], matches: Sequence[TopicMatch]) -> list[tuple[int, Pair]]:
    """Return the edges of equal chunks with the number of their plan; compacted topics are compared without chunks."""
    return [
        (number, pair)
        for number, (plan, match) in enumerate(zip(plans, matches, strict=True))
        if not plan.compacted
        for pair in match.edge_pairs()
    ]


def small_table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], names: str) -> DataFrame:
    """Return a DataFrame of the driver's own numbers; names that end in `?` are flags."""
    fields = []
    for name in names.split():
        kind = pa.bool_() if name.endswith("?") else pa.int32() if name in _INT_COLUMNS else pa.int64()
        fields.append(pa.field(name.rstrip("?"), kind))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(arrays, pa.schema(fields)))
