"""A tour, a step at a time, as in a notebook: mirror a topic, look at both sides with SQL, and compare them by content.

python examples/tour.py source.properties target.properties orders

The files are those of `mirrormaker run`; the source's file names the group that keeps the mirror's progress.
"""

import logging
import os
import sys

from pyspark.sql import SparkSession

import mirrormaker

source_file, target_file, topic = sys.argv[1:4]
logging.basicConfig(level=logging.INFO, format="%(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)

# %% A session as in any Spark program. Streams run for long and may fail: local mode needs a number of retries.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
builder = SparkSession.builder.master("local[4,100]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()

# %% Mirror what the topic holds now, in this session. Without `until_caught_up` the mirror would go on.
with mirrormaker.mirror(source_file, target_file, [topic], spark=spark, until_caught_up=True) as mirror:
    status = mirror.wait(timeout=300)
print(f"mirrored {status.records} records, lag {status.lag}")

# %% Each side is a DataFrame: topic, partition, offset, timestamp, key, value, headers, producer_id.
mirrormaker.read(spark, source_file, topic).createOrReplaceTempView("source")
mirrormaker.read(spark, target_file, topic).createOrReplaceTempView("target")
spark.table("source").printSchema()

# %% How many records has each partition, from when to when?
spark.sql(
    "SELECT partition, count(*) AS records, min(timestamp) AS oldest, max(timestamp) AS newest"
    " FROM target GROUP BY partition ORDER BY partition"
).show()

# %% The most frequent keys.
spark.sql(
    "SELECT string(key) AS key, count(*) AS records FROM source GROUP BY key ORDER BY records DESC, key LIMIT 5"
).show()

# %% Records that only the source has, by content. `verify` also says why.
only_source = spark.sql(
    "SELECT timestamp, key, value, to_json(headers) FROM source"
    " EXCEPT ALL SELECT timestamp, key, value, to_json(headers) FROM target"
)
print(f"{only_source.count()} records are only on the source")

# %% The whole comparison: content and order, with the causes of each difference.
verdict = mirrormaker.verify(source_file, target_file, [topic], spark=spark)
print("both sides hold the same records" if verdict.is_same else verdict.text())

spark.stop()
