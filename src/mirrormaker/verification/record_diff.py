"""The second Spark job: what is not equal as a whole is looked at record by record.

Both sides become rows, are joined by checksum, and whatever has no counterpart is given a cause: retention, compaction, a mirror
that is not there yet. What remains without one is a difference. All of it is joins and windows, so memory is bounded as in Spark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirrormaker.errors import CannotTell
from mirrormaker.verification.causes import (
    ARRIVING,
    BEFORE,
    COMPACTED,
    DIFFERENT,
    EXTRA,
    GONE_FROM_SOURCE,
    GONE_FROM_TARGET,
    MISSING,
    MOVED,
    OTHERS,
    UNMIRRORED,
    Difference,
)
from mirrormaker.verification.chunks import Chunk
from mirrormaker.verification.differences import named
from mirrormaker.verification.matching import Matched, Pair, behead
from mirrormaker.verification.plan import TARGET
from mirrormaker.verification.rows import COLUMNS, spans_to_read, task
from mirrormaker.verification.spans import Job, dealt

_FAR = (1 << 63) - 1
_ROWS = 1_000_000  # of a shuffle's partition


class Place(NamedTuple):
    """A line of the source on its way to one target partition."""

    topic: int
    side: int
    partition: int
    place: int


@dataclass
class Bounds:
    """The first and last records of a line that both sides have."""

    low_left: int = _FAR
    high_left: int = -1
    low_right: int = _FAR
    high_right: int = -1

    def include(self, low_left: int, high_left: int, low_right: int, high_right: int) -> None:
        self.low_left, self.high_left = min(self.low_left, low_left), max(self.high_left, high_left)
        self.low_right, self.high_right = min(self.low_right, low_right), max(self.high_right, high_right)


class RecordDiff:
    """A closer look at some topics."""

    def __init__(self, spark: SparkSession, job: Job, found: Sequence[Matched], cores: int, others: bool) -> None:
        """`others`: other writers on the target are allowed."""
        self.spark, self.job, self.found, self.others = spark, job, found, others
        wanted = spans_to_read(job.plans, found)
        self.spans, self._tasks = dealt(list(wanted), cores)
        self._wanted = [wanted[span] for span in self.spans]
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
        numbers = self.spark.range(0, len(self.spans), 1, self._tasks)
        return numbers.mapInArrow(task(self.job, self.spans, self._wanted), COLUMNS)

    def _paired(self, rows: DataFrame) -> DataFrame:
        """The n-th record of a checksum on one side belongs to the n-th on the other; from the end where logs lost earlier ones."""
        last = [n for n, plan in enumerate(self.job.plans) if behead(plan) or plan.compacted]
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
        bounds, owners = self._known(matched)
        left = self._causes_left(rows, pairs.filter("right is null"), bounds)
        right = self._causes_right(rows, pairs.filter("left is null"), bounds, owners)
        anchored = self._anchored(matched)
        moved = _moved(anchored)
        counted = [
            frame.groupBy("topic", "cause").count()
            for frame in (matched.withColumn("cause", F.lit("same")), left, right, moved)
        ]
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for topic, cause, number in reduce(DataFrame.unionByName, counted).collect():
            counts[self.job.plans[topic].name, cause] += number
        shown: list[Difference] = []
        if any(cause in DIFFERENT for _, cause in counts):
            shown = named(self.job.plans, anchored, rows, left, right, moved, counts)
        return dict(counts), shown

    def _anchored(self, matched: DataFrame) -> DataFrame:
        """Pairs of records, and the first and last ones of equal chunks: what is in between those cannot have moved."""
        rows = [
            (*_place(number, ours), left, right)
            for number, (ours, theirs) in self._edges()
            for left, right in ((ours.first, theirs.first), (ours.last, theirs.last))
        ]
        anchors = self._table(rows, "topic side partition place left right").withColumn("anchor", F.lit(True))
        columns = ("topic", "side", "partition", "place", "left", "right")
        return matched.select(*columns, F.lit(False).alias("anchor")).unionByName(anchors)

    def _edges(self) -> list[tuple[int, Pair]]:
        """All of a compacted topic is looked at: its chunks say nothing."""
        return [
            (number, pair)
            for number, found in enumerate(self.found)
            if not self.job.plans[number].compacted
            for pair in edges(found)
        ]

    def _known(self, matched: DataFrame) -> tuple[dict[Place, Bounds], dict[tuple[int, int], set[Place]]]:
        """What both sides have of each line, and for which lines each producer has written."""
        bounds: dict[Place, Bounds] = defaultdict(Bounds)
        owners: dict[tuple[int, int], set[Place]] = defaultdict(set)
        for number, (ours, theirs) in self._edges():
            place = _place(number, ours)
            bounds[place].include(ours.first, ours.last, theirs.first, theirs.last)
            owners[number, theirs.line.number].add(place._replace(place=-1))
        found = matched.groupBy("topic", "side", "partition", "place", "producer").agg(
            F.min("left"), F.max("left"), F.min("right"), F.max("right")
        )
        for topic, side, partition, where, producer, *edge in found.collect():
            bounds[Place(topic, side, partition, where)].include(*edge)
            owners[topic, producer].add(Place(topic, side, partition, -1))
        for number, plan in enumerate(self.job.plans):
            for part in plan.sources:
                if part.producer >= 0:  # the ledger says it
                    owners[number, part.producer] = {Place(number, part.side, part.partition, -1)}
        return bounds, {key: lines for key, lines in owners.items() if key[1] >= 0 and len(lines) == 1}

    def _causes_left(self, rows: DataFrame, left: DataFrame, bounds: dict[Place, Bounds]) -> DataFrame:
        """Of records that only the source has."""
        table = []
        for number, plan in enumerate(self.job.plans):
            targets = {part.partition: part for part in plan.targets}
            for part in plan.sources:
                for where in targets if part.side in plan.by_key else [part.partition]:
                    place, target = Place(number, part.side, part.partition, where), targets.get(where)
                    known = bounds.get(place, Bounds())
                    is_open = part.open_end or (target is not None and target.open_end)
                    most = self.found[number].target_losses.get(where, 0)
                    tail = known.high_left if is_open else _FAR
                    table.append((*place, known.low_left, tail, most, plan.starts_late))
        lines = self._table(table, "topic side partition place front tail most late?")
        left = left.join(F.broadcast(lines), ["topic", "side", "partition", "place"], "left")
        superseded: Column = F.lit(False)
        if self._compacted:
            keys = rows.filter("key is not null").groupBy("topic", "place", F.col("key").alias("left_key"))
            last = keys.agg(
                F.max(F.when(F.expr(f"side != {TARGET} and not beyond"), F.col("offset"))).alias("last_left"),
                F.max(F.expr(f"side = {TARGET} and beyond")).alias("came_later"),
                F.max(F.expr(f"side = {TARGET}")).alias("key_is_there"),
            )
            left = left.join(last, ["topic", "place", "left_key"], "left")
            # A tombstone goes only after everything that it deletes.
            superseded = F.col("topic").isin(self._compacted) & (
                (F.col("left_tombstone") & ~F.col("key_is_there"))
                | (F.col("left") < F.col("last_left"))
                | F.col("came_later")
            )
        first = F.col("left") < F.col("front")
        superseded = F.coalesce(superseded, F.lit(False))
        left = left.withColumn("early", F.coalesce(~superseded & first, F.lit(False)))
        turn = F.row_number().over(Window.partitionBy("topic", "place", "early").orderBy("left", "side", "partition"))
        return left.withColumn("turn", turn).withColumn(
            "cause",
            F.when(superseded, COMPACTED)
            .when(F.col("early") & (F.col("turn") <= F.col("most")), GONE_FROM_TARGET)
            .when(F.col("left") > F.col("tail"), UNMIRRORED)
            .when(first & F.col("late"), BEFORE)
            .otherwise(MISSING),
        )

    def _causes_right(
        self,
        rows: DataFrame,
        right: DataFrame,
        bounds: dict[Place, Bounds],
        owners: dict[tuple[int, int], set[Place]],
    ) -> DataFrame:
        """Of records that only the target has. Whose they would be is told by their producer; else any line may be theirs."""
        # Before and behind which offsets they need no counterpart; is it late? How many may be gone?
        lines: dict[Place, tuple[int, int, bool, int]] = {}
        for number, plan in enumerate(self.job.plans):
            opens = {part.partition: part.open_end for part in plan.targets}
            for part in plan.sources:
                for where, is_open in opens.items():
                    if part.side in plan.by_key or where == part.partition:
                        known = bounds.get(Place(number, part.side, part.partition, where), Bounds())
                        front = known.low_right if part.log_start > 0 else -1
                        tail = known.high_right if is_open or part.open_end else _FAR
                        most = self.found[number].source_losses.get((part.side, part.partition), 0)
                        place = Place(number, part.side, part.partition, where)
                        lines[place] = front, tail, part.end > part.until, most
        whole: dict[tuple[int, int], tuple[int, int, bool, int]] = defaultdict(lambda: (-1, _FAR, False, 0))
        for place, (front, tail, behind, most) in lines.items():
            low, high, late, all_of_them = whole[place.topic, place.place]
            whole[place.topic, place.place] = max(low, front), min(high, tail), late or behind, all_of_them + most
        of: dict[Place, list[Place]] = defaultdict(list)
        for place in lines:
            of[place._replace(place=-1)].append(place)
        owned = [
            (number, place.place, producer, *lines[place], owner.side, owner.partition, True)
            for (number, producer), (owner,) in owners.items()
            for place in of[owner]
        ]
        table = self._table(owned, "topic place producer front tail behind? most owner_side owner ours?")
        right = right.join(F.broadcast(table), ["topic", "place", "producer"], "left")
        table = self._table(
            [(*key, *line) for key, line in whole.items()], "topic place any_front any_tail any_behind? any_most"
        )
        right = right.join(F.broadcast(table), ["topic", "place"], "left")
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
        superseded = F.coalesce(superseded, F.lit(False))
        right = right.withColumn(
            "early", ~superseded & (F.col("right") < F.coalesce("front", "any_front", F.lit(-1)))
        ).withColumn("alone", F.when(F.col("ours").isNull(), F.col("place")))
        line = Window.partitionBy("topic", "owner_side", "owner", "alone", "early").orderBy("right", "place")
        return right.withColumn("turn", F.row_number().over(line)).withColumn(
            "cause",
            F.when(superseded, COMPACTED)
            .when(F.col("early") & (F.col("turn") <= F.coalesce("most", "any_most")), GONE_FROM_SOURCE)
            .when(F.col("right") > F.coalesce("tail", "any_tail", F.lit(_FAR)), ARRIVING)
            .when(F.lit(self.others) & F.col("ours").isNull(), OTHERS)
            .otherwise(EXTRA),
        )

    @property
    def _compacted(self) -> list[int]:
        return [number for number, plan in enumerate(self.job.plans) if plan.compacted]

    def _table(self, rows: list[tuple[Any, ...]], names: str) -> DataFrame:
        """A small table that the driver knows: numbers, and flags whose names end in `?`."""
        fields = [
            pa.field(
                name.rstrip("?"), pa.bool_() if name.endswith("?") else pa.int32() if name in _SHORT else pa.int64()
            )
            for name in names.split()
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        table = pa.table(
            [pa.array(column, f.type) for column, f in zip(columns, fields, strict=True)], pa.schema(fields)
        )
        return self.spark.createDataFrame(table)


_SHORT = ("topic", "place", "side", "partition")


def _moved(anchored: DataFrame) -> DataFrame:
    """Records that are behind an equal chunk that should follow them, or before something that should precede them."""
    line = Window.partitionBy("topic", "side", "partition", "place").orderBy("left")
    following = F.min(F.when(F.col("anchor"), F.col("right"))).over(line.rowsBetween(1, Window.unboundedFollowing))
    reached = F.max(F.when(~F.col("astray"), F.col("right"))).over(line)
    return (
        anchored.withColumn("following", following)
        .withColumn("astray", F.expr("not anchor and coalesce(right > following, false)"))
        .withColumn("reached", reached)
        .filter("astray or (not anchor and right < reached)")
        .withColumn("cause", F.lit(MOVED))
    )


def _place(number: int, chunk: Chunk) -> Place:
    return Place(number, chunk.line.side, chunk.line.partition, chunk.line.number)


def edges(found: Matched) -> list[Pair]:
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
