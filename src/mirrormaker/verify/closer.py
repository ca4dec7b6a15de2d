"""The second Spark job: what is not equal as a whole is looked at record by record.

Both sides become rows, are joined by checksum, and whatever has no counterpart is given a cause: retention, compaction, a mirror that
is not there yet. What remains without one is a difference. It is all joins and windows, so its memory is bounded as Spark's is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrormaker.errors import ClusterError
from mirrormaker.verify.chunks import Chunk
from mirrormaker.verify.hashing import spans as hashed
from mirrormaker.verify.matching import Matched, Pair, behead
from mirrormaker.verify.plan import TARGET, CannotTell, Part, TopicPlan
from mirrormaker.verify.spans import Job, Seen, Span, arriving, cut, look, opened
from mirrormaker.wire import varints
from mirrormaker.wire.varints import Ints

_COLUMNS = (
    "topic int, side int, partition int, place int, producer long, offset long, hash long, key long, tombstone boolean,"
    " beyond boolean, trouble string"
)
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.int32()), pa.field("side", pa.int32()), pa.field("partition", pa.int32()),
        pa.field("place", pa.int32()), pa.field("producer", pa.int64()), pa.field("offset", pa.int64()),
        pa.field("hash", pa.int64()), pa.field("key", pa.int64()), pa.field("tombstone", pa.bool_()),
        pa.field("beyond", pa.bool_()), pa.field("trouble", pa.string()),
    ]
)  # fmt: skip
_FAR = (1 << 63) - 1
_ROWS = 1_000_000  # of a shuffle's partition
SHOWN = 5  # differences that are spelled out, for each topic

# What becomes of a record that the other side does not have. The first six are nobody's fault.
UNMIRRORED, ARRIVING, GONE_FROM_TARGET, GONE_FROM_SOURCE, COMPACTED, BEFORE, OTHERS = (
    "not_yet_mirrored", "still_arriving", "deleted_on_target", "deleted_on_source", "compacted", "before_the_mirror",
    "other_writers",
)  # fmt: skip
MISSING, EXTRA, DOUBLED, CHANGED, MOVED = "missing", "extra", "doubled", "changed", "out_of_order"
DIFFERENT = (MISSING, CHANGED, DOUBLED, EXTRA, MOVED)

Wanted = dict[int, tuple[Ints, Ints]]  # of each line: where its chunks begin and end


@dataclass(frozen=True)
class Difference:
    """One record that is not the same: where it is, or should be."""

    kind: str
    topic: str
    place: int  # the target partition
    side: int
    partition: int
    source_offset: int | None
    target_offset: int | None
    near: int | None = None  # on the side that has no such record: the one before it; of a doubled record the source's


class Closer:
    """A closer look at some topics."""

    def __init__(self, spark: SparkSession, job: Job, found: Sequence[Matched], cores: int, others: bool) -> None:
        """`others`: other writers on the target are allowed."""
        self.spark, self.job, self.found, self.others = spark, job, found, others
        self.spans, self.wanted = _spans(job.plans, found)
        rows = sum(span.stop - span.start for span in self.spans)
        spark.conf.set("spark.sql.shuffle.partitions", str(max(cores, 1 + rows // _ROWS)))

    def run(self) -> tuple[dict[tuple[str, str], int], list[Difference]]:
        """Records by topic and what became of them ("same" too), and the first few differences."""
        rows = self._rows().persist()
        trouble = rows.filter("trouble is not null").select("trouble").head()
        if trouble is not None:
            raise CannotTell(trouble[0])
        pairs = self._paired(rows).persist()
        try:
            return self._judged(rows, pairs)
        finally:
            pairs.unpersist()
            rows.unpersist()

    # -- rows

    def _rows(self) -> DataFrame:
        count = len(self.spans)
        return self.spark.range(0, count, 1, count).mapInArrow(_task(self.job, self.spans, self.wanted), _COLUMNS)

    def _paired(self, rows: DataFrame) -> DataFrame:
        """The n-th record of a checksum on one side belongs to the n-th on the other; from the end where logs lost their start."""
        last = [n for n, plan in enumerate(self.job.plans) if behead(plan)]
        sign = F.when(F.col("topic").isin(last), -1).otherwise(1)
        order = Window.partitionBy("topic", "place", "hash").orderBy(
            sign * F.col("side"), sign * F.col("partition"), sign * F.col("offset")
        )
        left = (
            rows.filter(f"not beyond and side != {TARGET}")
            .withColumn("n", F.row_number().over(order))
            .select(
                "topic", "place", "hash", "n", "side", "partition", F.col("offset").alias("left"),
                F.col("key").alias("left_key"), F.col("tombstone").alias("left_tombstone"),
            )
        )  # fmt: skip
        right = (
            rows.filter(f"not beyond and side = {TARGET}")
            .withColumn("n", F.row_number().over(order))
            .select(
                "topic", "place", "hash", "n", "producer", F.col("offset").alias("right"),
                F.col("key").alias("right_key"), F.col("tombstone").alias("right_tombstone"),
            )
        )  # fmt: skip
        return left.join(right, ["topic", "place", "hash", "n"], "full")

    # -- causes

    def _judged(self, rows: DataFrame, pairs: DataFrame) -> tuple[dict[tuple[str, str], int], list[Difference]]:
        matched = pairs.filter("left is not null and right is not null")
        anchored = matched.select(
            "topic", "place", "side", "partition", "left", "right", "producer", F.lit(False).alias("anchor")
        ).unionByName(self._anchors())
        lines = self._bounded(anchored)
        left = self._causes_left(rows, pairs.filter("right is null"), lines)
        right = self._causes_right(rows, pairs.filter("left is null"), lines, anchored)
        running = Window.partitionBy("topic", "side", "partition", "place").orderBy("left")
        moved = (
            anchored.withColumn("reached", F.max("right").over(running))
            .filter("right < reached and not anchor")
            .withColumn("cause", F.lit(MOVED))
        )
        counted = [
            frame.groupBy("topic", "cause").count()
            for frame in (matched.withColumn("cause", F.lit("same")), left, right, moved)
        ]
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for topic, cause, number in reduce(DataFrame.unionByName, counted).collect():
            counts[self.job.plans[topic].name, cause] += number
        shown: list[Difference] = []
        if any(cause in DIFFERENT for _, cause in counts):
            shown = self._named(anchored, rows, left, right, moved, counts)
        return dict(counts), shown

    def _anchors(self) -> DataFrame:
        """The first and last records of chunks that are equal: what is in between cannot have moved."""
        rows = [
            (number, pair[0].line.number, pair[0].line.side, pair[0].line.partition, left, right, pair[1].line.number)
            for number, found in enumerate(self.found)
            if not self.job.plans[number].compacted
            for pair in _edges(found)
            for left, right in ((pair[0].first, pair[1].first), (pair[0].last, pair[1].last))
        ]
        schema = "topic int, place int, side int, partition int, left long, right long, producer long"
        return self._table(rows, schema).withColumn("anchor", F.lit(True))

    def _bounded(self, anchored: DataFrame) -> DataFrame:
        """For each line: before which offsets the other log may have lost records, and behind which they may not be there yet."""
        rows = []
        for number, plan in enumerate(self.job.plans):
            heads = {part.partition: part.log_start > 0 for part in plan.targets}
            opens = {part.partition: part.open_end for part in plan.targets}
            for part in plan.sources:
                for place in heads if plan.by_key else [part.partition]:
                    is_open = part.open_end or opens.get(place, part.open_end)
                    lost = heads.get(place, False)
                    rows.append(
                        (number, part.side, part.partition, place, part.log_start > 0, lost, plan.starts_late,
                         part.open_end or opens.get(place, False), is_open, part.end > part.until)
                    )  # fmt: skip
        lines = self._table(
            rows,
            "topic int, side int, partition int, place int, source_lost boolean, target_lost boolean, late boolean,"
            " open_left boolean, open_right boolean, behind boolean",
        )
        keys = ["topic", "side", "partition", "place"]
        seen = anchored.groupBy(*keys).agg(
            F.min("left").alias("low_left"), F.max("left").alias("high_left"),
            F.min("right").alias("low_right"), F.max("right").alias("high_right"),
        )  # fmt: skip
        far, none = F.lit(_FAR), F.lit(-1).cast("long")
        return lines.join(seen, keys, "left").select(
            *keys, "source_lost", "target_lost", "late", "behind",
            F.coalesce("low_left", far).alias("front_left"),
            F.when(F.col("source_lost"), F.coalesce("low_right", far)).otherwise(none).alias("front_right"),
            F.when(F.col("open_left"), F.coalesce("high_left", none)).otherwise(far).alias("tail_left"),
            F.when(F.col("open_right"), F.coalesce("high_right", none)).otherwise(far).alias("tail_right"),
        )  # fmt: skip

    def _causes_left(self, rows: DataFrame, left: DataFrame, lines: DataFrame) -> DataFrame:
        """Of records that only the source has."""
        left = left.join(F.broadcast(lines), ["topic", "side", "partition", "place"], "left")
        superseded: Column = F.lit(False)
        if self._compacted:
            keys = rows.filter("key is not null").groupBy("topic", "place", F.col("key").alias("left_key"))
            last = keys.agg(
                F.max(F.when(F.expr(f"side != {TARGET} and not beyond"), F.col("offset"))).alias("last_left"),
                F.max(F.expr(f"side = {TARGET} and beyond")).alias("came_later"),
            )
            left = left.join(last, ["topic", "place", "left_key"], "left")
            superseded = F.col("topic").isin(self._compacted) & (
                F.col("left_tombstone") | (F.col("left") < F.col("last_left")) | F.col("came_later")
            )
        first = F.col("left") < F.col("front_left")
        return left.withColumn(
            "cause",
            F.when(F.coalesce(superseded, F.lit(False)), COMPACTED)
            .when(first & F.col("target_lost"), GONE_FROM_TARGET)
            .when(F.col("left") > F.col("tail_left"), UNMIRRORED)
            .when(first & F.col("late"), BEFORE)
            .otherwise(MISSING),
        )

    def _causes_right(self, rows: DataFrame, right: DataFrame, lines: DataFrame, anchored: DataFrame) -> DataFrame:
        """Of records that only the target has. Whose they would be is told by their producer, or by their partition."""
        right = right.drop("side", "partition").join(F.broadcast(self._owners(anchored)), ["topic", "producer"], "left")
        homes = [
            (number, part.partition, part.side, part.partition)
            for number, plan in enumerate(self.job.plans)
            if plan.one_to_one
            for part in plan.sources
        ]
        home = self._table(homes, "topic int, place int, home_side int, home int")
        right = right.join(F.broadcast(home), ["topic", "place"], "left")
        right = right.withColumn("side", F.coalesce("home_side", "side")).withColumn(
            "partition", F.coalesce("home", "partition")
        )
        right = right.join(
            F.broadcast(lines.select("topic", "side", "partition", "place", "front_right", "tail_right", "behind")),
            ["topic", "side", "partition", "place"],
            "left",
        )
        whole = lines.groupBy("topic", "place").agg(
            F.max("front_right").alias("any_front"), F.min("tail_right").alias("any_tail"),
            F.max("behind").alias("any_behind"),
        )  # fmt: skip
        right = right.join(F.broadcast(whole), ["topic", "place"], "left")
        superseded: Column = F.lit(False)
        if self._compacted:
            keys = rows.filter("key is not null").groupBy("topic", "place", F.col("key").alias("right_key"))
            last = keys.agg(
                F.max(F.when(F.expr(f"side = {TARGET}"), F.col("offset"))).alias("last_right"),
                F.max(F.expr(f"side != {TARGET} and beyond")).alias("comes_later"),
            )
            right = right.join(last, ["topic", "place", "right_key"], "left")
            # A tombstone that is not mirrored yet may itself be gone by now.
            superseded = F.col("topic").isin(self._compacted) & (
                F.col("right_tombstone") | (F.col("right") < F.col("last_right")) | F.col("comes_later")
                | F.coalesce("behind", "any_behind")
            )  # fmt: skip
        ours = F.col("owner").isNotNull()
        return right.withColumn(
            "cause",
            F.when(F.coalesce(superseded, F.lit(False)), COMPACTED)
            .when(F.col("right") < F.coalesce("front_right", "any_front", F.lit(-1)), GONE_FROM_SOURCE)
            .when(F.col("right") > F.coalesce("tail_right", "any_tail", F.lit(_FAR)), ARRIVING)
            .when(F.lit(self.others) & ~ours, OTHERS)
            .otherwise(EXTRA),
        )

    def _owners(self, anchored: DataFrame) -> DataFrame:
        """Which source partition a producer writes for: the ledger says it, or all that it has written."""
        known = self._table(
            [
                (number, part.producer, part.side, part.partition)
                for number, plan in enumerate(self.job.plans)
                for part in plan.sources
                if part.producer >= 0
            ],
            "topic int, producer long, side int, partition int",
        )
        seen = (
            anchored.filter("producer >= 0")
            .groupBy("topic", "producer")
            .agg(F.collect_set(F.struct("side", "partition")).alias("who"))
            .filter("size(who) = 1")
            .select(
                "topic",
                "producer",
                F.col("who")[0]["side"].alias("side"),
                F.col("who")[0]["partition"].alias("partition"),
            )
        )
        both = known.unionByName(seen.join(known, ["topic", "producer"], "left_anti"))
        return both.withColumn("owner", F.col("producer"))

    @property
    def _compacted(self) -> list[int]:
        return [number for number, plan in enumerate(self.job.plans) if plan.compacted]

    # -- differences

    def _named(
        self, anchored: DataFrame, rows: DataFrame, left: DataFrame, right: DataFrame, moved: DataFrame,
        counts: dict[tuple[str, str], int],
    ) -> list[Difference]:  # fmt: skip
        """What is missing and what is extra at the same place is one record that was changed."""
        missing = left.filter(F.col("cause") == MISSING).select(
            "topic", "place", "side", "partition", "left", F.lit(None).cast("long").alias("right")
        )
        extra = right.filter(F.col("cause") == EXTRA).select(
            "topic", "place", F.lit(None).cast("int").alias("side"), F.lit(None).cast("int").alias("partition"),
            F.lit(None).cast("long").alias("left"), "right", "hash",
        )  # fmt: skip
        known = anchored.select("topic", "place", "side", "partition", "left", "right")
        of_line = Window.partitionBy("topic", "side", "partition", "place").orderBy("left")
        of_place = Window.partitionBy("topic", "place").orderBy("right")
        matched = F.expr("left is not null and right is not null")
        here = F.last(F.when(matched, F.col("left")), True)
        there = F.last(F.when(matched, F.col("right")), True)
        missing = (
            known.unionByName(missing)
            .withColumn("after", here.over(of_line))
            .withColumn("beside", there.over(of_line))
            .filter("right is null")
        )
        extra = (
            known.withColumn("hash", F.lit(None).cast("long"))
            .unionByName(extra)
            .withColumn("after", here.over(of_place))
            .filter("left is null")
        )
        turn = Window.partitionBy("topic", "place", "after")
        missing = missing.select(
            "topic", "place", "side", "partition", "left", "beside", F.coalesce("after", F.lit(-1)).alias("after"),
            F.row_number().over(turn.orderBy("left")).alias("n"),
        )  # fmt: skip
        twins = rows.filter(f"side != {TARGET}").groupBy("topic", "place", "hash").agg(F.min("offset").alias("twin"))
        extra = extra.join(twins, ["topic", "place", "hash"], "left").select(
            "topic", "place", "right", F.col("twin"), F.coalesce("after", F.lit(-1)).alias("after"),
            F.row_number().over(turn.orderBy(F.col("twin").isNotNull(), "right")).alias("n"),
        )  # fmt: skip
        both = (
            missing.join(extra, ["topic", "place", "after", "n"], "full")
            .withColumn("near", F.when(F.col("right").isNull(), F.col("beside")).otherwise(F.coalesce("twin", "after")))
            .withColumn(
                "cause",
                F.when(F.col("right").isNull(), MISSING)
                .when(F.col("left").isNull() & F.col("twin").isNotNull(), DOUBLED)
                .when(F.col("left").isNull(), EXTRA)
                .otherwise(CHANGED),
            )
        )
        columns = ("topic", "place", "side", "partition", "left", "right", "cause", "near")
        moved = moved.withColumn("near", F.lit(None).cast("long"))
        all_of_them = both.select(*columns).unionByName(moved.select(*columns)).persist()
        for key in [key for key in counts if key[1] in (MISSING, EXTRA)]:
            del counts[key]  # of a changed record both halves were counted
        for topic, cause, number in all_of_them.groupBy("topic", "cause").count().collect():
            counts[self.job.plans[topic].name, cause] = number
        first = Window.partitionBy("topic").orderBy("place", F.coalesce("left", "right"))
        few = all_of_them.withColumn("n", F.row_number().over(first)).filter(F.col("n") <= SHOWN).collect()
        all_of_them.unpersist()
        return [
            Difference(
                row["cause"], self.job.plans[row["topic"]].name, row["place"],
                0 if row["side"] is None else row["side"],
                row["place"] if row["partition"] is None else row["partition"], row["left"], row["right"], row["near"],
            )
            for row in sorted(few, key=lambda row: (row["topic"], row["n"]))
        ]  # fmt: skip

    def _table(self, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
        return self.spark.createDataFrame(rows, schema)


def _edges(found: Matched) -> list[Pair]:
    """Of equal chunks that follow each other on both sides, the first and the last."""
    lefts, rights = defaultdict(list), defaultdict(list)
    for chunk in found.left:
        lefts[chunk.line].append(chunk.first)
    for chunk in found.right:
        rights[chunk.line.partition].append(chunk.first)
    for firsts in (*lefts.values(), *rights.values()):
        firsts.sort()

    def run(pair: Pair) -> tuple[Any, ...]:
        ours, theirs = pair
        return (
            ours.line,
            bisect_left(lefts[ours.line], ours.first),
            bisect_left(rights[theirs.line.partition], theirs.first),
        )

    kept = []
    for _, group in groupby(sorted(found.pairs, key=lambda pair: (pair[0].line, pair[0].first)), key=run):
        pairs = list(group)
        kept += pairs if len(pairs) < 2 else [pairs[0], pairs[-1]]
    return kept


# -- the tasks


def _spans(plans: Sequence[TopicPlan], found: Sequence[Matched]) -> tuple[list[Span], list[Wanted | None]]:
    """What has to be read again, and which chunks of it; None: all of it."""
    spans: list[Span] = []
    wanted: list[Wanted | None] = []
    for number, (plan, matched) in enumerate(zip(plans, found, strict=True)):
        left = _by_partition(matched.left)
        right = _by_partition(matched.right)
        for part in (*plan.sources, *plan.targets):
            if plan.compacted:  # what supersedes a record may be anywhere
                more = cut(number, part, part.start, part.end)
                spans += more
                wanted += [None] * len(more)
                continue
            chunks = (right if part.side == TARGET else left).get((part.side, part.partition), [])
            for start, stop, inside in _ranges(chunks):
                more = cut(number, part, start, stop)
                spans += more
                wanted += [_wanted(inside)] * len(more)
    return spans, wanted


def _by_partition(chunks: Sequence[Chunk]) -> dict[tuple[int, int], list[Chunk]]:
    found: dict[tuple[int, int], list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        found[chunk.line.side, chunk.line.partition].append(chunk)
    return found


def _ranges(chunks: Sequence[Chunk]) -> Iterator[tuple[int, int, list[Chunk]]]:
    """Chunks of different lines lie among each other: those that overlap or nearly touch are read together."""
    held: list[Chunk] = []
    stop = 0
    for chunk in sorted(chunks, key=lambda c: c.first):
        if held and chunk.first > stop + _NEAR:
            yield held[0].first, stop, held
            held = []
        held.append(chunk)
        stop = max(stop if len(held) > 1 else 0, chunk.last + 1)
    if held:
        yield held[0].first, stop, held


_NEAR = 10_000  # offsets: reading on costs less than another task


def _wanted(chunks: Sequence[Chunk]) -> Wanted:
    lines: dict[int, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        lines[chunk.line.number].append(chunk)
    return {
        number: (np.array([c.first for c in mine], np.int64), np.array([c.last for c in mine], np.int64))
        for number, mine in lines.items()
    }


def _task(job: Job, spans: Sequence[Span], wanted: Sequence[Wanted | None]):  # type: ignore[no-untyped-def]
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read(job, spans[number], wanted[number])

    return rows


def _read(job: Job, span: Span, wanted: Wanted | None) -> Iterator[pa.RecordBatch]:
    plan = job.plans[span.topic]
    part = next(p for p in (*plan.sources, *plan.targets) if (p.side, p.partition) == (span.side, span.partition))
    try:
        with opened(job, span.side) as logs:
            for seen in look(job, span, logs, beyond=wanted is None):
                batch = _batch(span, part, plan, seen, wanted)
                if batch.num_rows:
                    yield batch
    except ClusterError as error:
        yield pa.RecordBatch.from_arrays(
            [pa.array([str(error) if field.name == "trouble" else None], field.type) for field in SCHEMA], schema=SCHEMA
        )


def _batch(span: Span, part: Part, plan: TopicPlan, seen: Seen, wanted: Wanted | None) -> pa.RecordBatch:
    piece, hashes, numbers = seen
    if wanted is not None:
        keep = np.zeros(len(numbers), np.bool_)
        for number, (firsts, lasts) in wanted.items():
            at = np.searchsorted(firsts, piece.records.offsets, side="right") - 1
            keep |= (numbers == number) & (at >= 0) & (piece.records.offsets <= lasts[np.maximum(at, 0)])
        piece, hashes, numbers = piece.part(keep), hashes[keep], numbers[keep]
    records, count = piece.records, len(piece.records)
    offsets = records.offsets
    beyond = offsets >= part.until
    if span.side == TARGET:
        limits = {producer: limit for (t, producer), limit in plan.limits.items() if t == span.partition}
        beyond |= arriving(piece, limits)
    keys, tombstones = pa.nulls(count, pa.int64()), pa.nulls(count, pa.bool_())
    if plan.compacted:
        start, size = records.keys()
        keys = pa.array(hashed(records.data, start, np.maximum(size, 0)).view(np.int64), mask=size < 0)
        tombstones = pa.array(varints.read(records.data, start + np.maximum(size, 0))[0] < 0)
    places = np.full(count, span.partition) if span.side == TARGET else numbers
    columns = [
        pa.array(np.full(count, span.topic, np.int32)), pa.array(np.full(count, span.side, np.int32)),
        pa.array(np.full(count, span.partition, np.int32)), pa.array(places.astype(np.int32)),
        pa.array(piece.producers), pa.array(offsets), pa.array(hashes.view(np.int64)), keys, tombstones,
        pa.array(beyond), pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
