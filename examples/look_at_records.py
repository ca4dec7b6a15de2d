"""Look at the records of both clusters with Spark, a step at a time, as in a notebook.

python examples/look_at_records.py source.properties target.properties orders
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import mirrormaker

source_file, target_file, topic = sys.argv[1:4]

# %% A session as in any Spark program, on this machine. Its workers must be the Python that has this package.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()  # 200 are for clusters

# %% Each side is a DataFrame: topic, partition, offset, timestamp, key, value, headers, producer_id.
source = mirrormaker.read(spark, source_file, topic)
target = mirrormaker.read(spark, target_file, topic)
source.printSchema()
print(f"{source.count()} records on the source, {target.count()} on the target")

# %% Who has written how much, and from when to when?
target.groupBy("partition", "producer_id").agg(F.count("*"), F.min("timestamp"), F.max("timestamp")).show()

# %% The most frequent keys.
source.groupBy(F.col("key").cast("string")).count().orderBy(F.desc("count")).show(5)

# %% What one side has and the other has not, by content. `mirrormaker verify` also says why.
content = ["timestamp", "key", "value", F.to_json("headers").alias("headers")]
lost = source.select(*content).exceptAll(target.select(*content))
print(f"{lost.count()} are only on the source")

spark.stop()
