"""The second Spark job: compare record by record what the chunks could not settle.

Both sides become rows and are joined by checksum. `unmatched` explains the records without a counterpart; the others
are checked for their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrormaker.errors import CannotTell
from mirrormaker.verification.differences import Difference
from mirrormaker.verification.matching import TopicMatch
from mirrormaker.verification.outcomes import CHANGED, DIFFERENCES, DOUBLED, EXTRA, MISSING, OUT_OF_ORDER, SAME
from mirrormaker.verification.plan import TARGET
from mirrormaker.verification.rows import COLUMNS, row_task, spans_to_read
from mirrormaker.verification.spans import TaskInput, balance
from mirrormaker.verification.unmatched import SeriesKey, UnmatchedRecords, edge_pairs, small_table

_MAX_SHOWN = 5  # differences of each topic that are described
_SHUFFLE_ROWS = 1_000_000  # of one shuffle partition


class DiffResult(NamedTuple):
    """The records that were compared one by one."""

    # (topic, outcome): how many. The outcomes are those in `differences`, SAME included.
    counts: dict[tuple[str, str], int]
    differences: list[Difference]  # the first few of each topic


class RecordDiff:
    """Compare topics record by record. Sets the number of shuffle partitions of its Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        task: TaskInput,
        matches: Sequence[TopicMatch],
        cores: int,
        allow_other_writers: bool,
    ) -> None:
        self._spark, self._task, self._matches = spark, task, matches
        self._allow_other_writers = allow_other_writers
        ranges = spans_to_read(task.plans, matches)
        self.spans, self._tasks = balance(list(ranges), cores)
        self._ranges = [ranges[span] for span in self.spans]
        rows = sum(span.stop - span.start for span in self.spans)
        spark.conf.set("spark.sql.shuffle.partitions", str(max(cores, 1 + rows // _SHUFFLE_ROWS)))

    def run(self) -> DiffResult:
        """Read the spans and compare. Raise CannotTell if a log cannot be read."""
        numbers = self._spark.range(0, len(self.spans), 1, self._tasks)
        rows = numbers.mapInArrow(row_task(self._task, self.spans, self._ranges), COLUMNS).persist()
        pairs = self._pair(rows).persist()
        try:
            error = rows.filter("error is not null").select("error").head()
            if error is not None:
                raise CannotTell(error[0])
            return self._compare(rows, pairs)
        finally:
            pairs.unpersist()
            rows.unpersist()

    def _pair(self, rows: DataFrame) -> DataFrame:
        """Join both sides: the n-th record of a checksum on one side belongs to the n-th on the other.

        Where a log may have lost its first records, n counts from the end.
        """
        from_end = [n for n, plan in enumerate(self._task.plans) if plan.has_deleted_records or plan.compacted]
        sign = F.when(F.col("plan").isin(from_end), -1).otherwise(1)
        order = Window.partitionBy("plan", "target_partition", "hash").orderBy(
            sign * F.col("side"), sign * F.col("partition"), sign * F.col("offset")
        )
        key = ["plan", "target_partition", "hash", "n"]
        source = rows.filter(f"compared and side != {TARGET}").withColumn("n", F.row_number().over(order))
        target = rows.filter(f"compared and side = {TARGET}").withColumn("n", F.row_number().over(order))
        source = source.select(
            *key, "side", "partition", F.col("offset").alias("source_offset"), F.col("key").alias("source_key"),
            F.col("tombstone").alias("source_tombstone"),
        )  # fmt: skip
        target = target.select(
            *key, "producer_id", F.col("offset").alias("target_offset"), F.col("key").alias("target_key"),
            F.col("tombstone").alias("target_tombstone"),
        )  # fmt: skip
        return source.join(target, key, "full")

    def _compare(self, rows: DataFrame, pairs: DataFrame) -> DiffResult:
        plans = self._task.plans
        matched = pairs.filter("source_offset is not null and target_offset is not null")
        unmatched = UnmatchedRecords(self._spark, plans, self._matches, rows, matched, self._allow_other_writers)
        source_only = unmatched.explain_source(pairs.filter("target_offset is null"))
        target_only = unmatched.explain_target(pairs.filter("source_offset is null"))
        anchored = self._anchored(matched)
        moved = _moved(anchored)
        counted = [
            frame.groupBy("plan", "cause").count()
            for frame in (matched.withColumn("cause", F.lit(SAME)), source_only, target_only, moved)
        ]
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for plan, cause, number in reduce(DataFrame.unionByName, counted).collect():
            counts[plans[plan].name, cause] += number
        if not any(cause in DIFFERENCES for _, cause in counts):
            return DiffResult(dict(counts), [])
        # Both halves of a changed record were counted, so differences are counted anew.
        others = {key: number for key, number in counts.items() if key[1] not in DIFFERENCES}
        found = self._find_differences(anchored, rows, source_only, target_only, moved)
        return DiffResult(others | found.counts, found.differences)

    def _anchored(self, matched: DataFrame) -> DataFrame:
        """Return matched records, and as anchors the first and last records of runs of equal chunks."""
        anchors = [
            (*SeriesKey.of(number, source), source_offset, target_offset)
            for number, (source, target) in edge_pairs(self._task.plans, self._matches)
            for source_offset, target_offset in ((source.first, target.first), (source.last, target.last))
        ]
        columns = ("plan", "side", "partition", "target_partition", "source_offset", "target_offset")
        table = small_table(self._spark, anchors, " ".join(columns)).withColumn("is_anchor", F.lit(True))
        return matched.select(*columns, F.lit(False).alias("is_anchor")).unionByName(table)

    def _find_differences(
        self, anchored: DataFrame, rows: DataFrame, source_only: DataFrame, target_only: DataFrame, moved: DataFrame
    ) -> DiffResult:
        """Count the differences and locate the first few of each topic.

        A missing and an extra record after the same equal record are one record that was changed.
        """
        missing = _number_missing(anchored, source_only.filter(F.col("cause") == MISSING))
        extra = _number_extra(anchored, target_only.filter(F.col("cause") == EXTRA), rows)
        is_missing, is_extra = F.col("target_offset").isNull(), F.col("source_offset").isNull()
        has_original = F.col("original").isNotNull()
        unpaired = (
            missing.join(extra, ["plan", "target_partition", "after", "n"], "full")
            .withColumn("neighbour", F.when(is_missing, F.col("beside")).otherwise(F.coalesce("original", "after")))
            .withColumn(
                "cause",
                F.when(is_missing, MISSING)
                .when(is_extra & has_original, DOUBLED)
                .when(is_extra, EXTRA)
                .otherwise(CHANGED),
            )
        )
        columns = (
            "plan", "target_partition", "side", "partition", "source_offset", "target_offset", "cause", "neighbour"
        )  # fmt: skip
        moved = moved.withColumn("neighbour", F.lit(None).cast("long"))
        differences = unpaired.select(*columns).unionByName(moved.select(*columns)).persist()
        names = [plan.name for plan in self._task.plans]
        counts = {
            (names[plan], cause): number
            for plan, cause, number in differences.groupBy("plan", "cause").count().collect()
        }
        order = Window.partitionBy("plan").orderBy("target_partition", F.coalesce("source_offset", "target_offset"))
        shown = differences.withColumn("n", F.row_number().over(order)).filter(F.col("n") <= _MAX_SHOWN).collect()
        differences.unpersist()
        return DiffResult(
            counts,
            [
                Difference(
                    kind=row["cause"],
                    topic=names[row["plan"]],
                    side=0 if row["side"] is None else row["side"],
                    partition=row["target_partition"] if row["partition"] is None else row["partition"],
                    target_partition=row["target_partition"],
                    source_offset=row["source_offset"],
                    target_offset=row["target_offset"],
                    neighbour=row["neighbour"],
                )
                for row in sorted(shown, key=lambda row: (row["plan"], row["n"]))
            ],
        )


def _moved(anchored: DataFrame) -> DataFrame:
    """Return records that lie after an anchor that should follow them, or before a record that should precede them."""
    series = Window.partitionBy("plan", "side", "partition", "target_partition").orderBy("source_offset")
    next_anchor = F.min(F.when(F.col("is_anchor"), F.col("target_offset"))).over(
        series.rowsBetween(1, Window.unboundedFollowing)
    )
    reached = F.max(F.when(~F.col("is_late"), F.col("target_offset"))).over(series)
    return (
        anchored.withColumn("next_anchor", next_anchor)
        .withColumn("is_late", F.expr("not is_anchor and coalesce(target_offset > next_anchor, false)"))
        .withColumn("reached", reached)
        .filter("is_late or (not is_anchor and target_offset < reached)")
        .withColumn("cause", F.lit(OUT_OF_ORDER))
    )


_IS_MATCHED = "source_offset is not null and target_offset is not null"
_PLACES = ("plan", "target_partition", "side", "partition", "source_offset", "target_offset")


def _number_missing(anchored: DataFrame, missing: DataFrame) -> DataFrame:
    """Return missing records with the equal record before them: `after` on the source, `beside` on the target.

    `n` counts the missing records after the same equal record.
    """
    missing = missing.select(
        "plan",
        "target_partition",
        "side",
        "partition",
        "source_offset",
        F.lit(None).cast("long").alias("target_offset"),
    )
    series = Window.partitionBy("plan", "side", "partition", "target_partition").orderBy("source_offset")
    missing = (
        anchored.select(*_PLACES)
        .unionByName(missing)
        .withColumn("after", F.last(F.when(F.expr(_IS_MATCHED), F.col("source_offset")), True).over(series))
        .withColumn("beside", F.last(F.when(F.expr(_IS_MATCHED), F.col("target_offset")), True).over(series))
        .filter("target_offset is null")
    )
    group = Window.partitionBy("plan", "target_partition", "after").orderBy("source_offset")
    return missing.select(
        "plan", "target_partition", "side", "partition", "source_offset", "beside",
        F.coalesce("after", F.lit(-1)).alias("after"), F.row_number().over(group).alias("n"),
    )  # fmt: skip


def _number_extra(anchored: DataFrame, extra: DataFrame, rows: DataFrame) -> DataFrame:
    """Return extra records with `after`, the source offset of the equal record before them.

    `original` is the offset of a source record with the same content, if there is one. `n` counts the extra records
    after the same equal record, those without an original first.
    """
    extra = extra.select(
        "plan", "target_partition", F.lit(None).cast("int").alias("side"), F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("long").alias("source_offset"), "target_offset", "hash",
    )  # fmt: skip
    in_partition = Window.partitionBy("plan", "target_partition").orderBy("target_offset")
    extra = (
        anchored.select(*_PLACES, F.lit(None).cast("long").alias("hash"))
        .unionByName(extra)
        .withColumn("after", F.last(F.when(F.expr(_IS_MATCHED), F.col("source_offset")), True).over(in_partition))
        .filter("source_offset is null")
    )
    originals = (
        rows.filter(f"side != {TARGET}")
        .groupBy("plan", "target_partition", "hash")
        .agg(F.min("offset").alias("original"))
    )
    group = Window.partitionBy("plan", "target_partition", "after").orderBy(
        F.col("original").isNotNull(), "target_offset"
    )
    return extra.join(originals, ["plan", "target_partition", "hash"], "left").select(
        "plan", "target_partition", "target_offset", "original", F.coalesce("after", F.lit(-1)).alias("after"),
        F.row_number().over(group).alias("n"),
    )  # fmt: skip
