"""The differences themselves: counted by kind, and the first few of each topic with their places."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrormaker.verification.causes import CHANGED, DOUBLED, EXTRA, MISSING, Difference
from mirrormaker.verification.plan import TARGET, TopicPlan

SHOWN = 5  # differences that are spelled out, for each topic


def named(
    plans: Sequence[TopicPlan],
    anchored: DataFrame,
    rows: DataFrame,
    left: DataFrame,
    right: DataFrame,
    moved: DataFrame,
    counts: dict[tuple[str, str], int],
) -> list[Difference]:
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
        counts[plans[topic].name, cause] = number
    first = Window.partitionBy("topic").orderBy("place", F.coalesce("left", "right"))
    few = all_of_them.withColumn("n", F.row_number().over(first)).filter(F.col("n") <= SHOWN).collect()
    all_of_them.unpersist()
    return [
        Difference(
            row["cause"], plans[row["topic"]].name, row["place"],
            0 if row["side"] is None else row["side"],
            row["place"] if row["partition"] is None else row["partition"], row["left"], row["right"], row["near"],
        )
        for row in sorted(few, key=lambda row: (row["topic"], row["n"]))
    ]  # fmt: skip
