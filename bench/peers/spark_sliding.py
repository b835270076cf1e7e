"""Part E on Spark Structured Streaming: its built-in sliding windows over a file, after a first
query to warm up.

One more record, of another key (its value is negative) and a day later, lets all windows of the
records close; its own stay open.
"""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

LENGTH, SLIDE = (
    f"{int(os.environ[name])} microseconds" for name in ("BENCH_LENGTH", "BENCH_SLIDE")
)
DAY_US = 86_400_000_000
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(spark, folder, output, checkpoint):
    records = spark.readStream.schema("value long, at long").json(folder)
    sums = (
        records.withColumn("time", F.timestamp_micros("at"))
        .withWatermark("time", "0 seconds")
        .groupBy((F.col("value") >= 0).alias("key"), F.window("time", LENGTH, SLIDE))
        .agg(F.sum("value").alias("sum"))
    )
    writer = sums.select("sum").writeStream.format("json").option("path", output)
    writer = writer.option("checkpointLocation", os.path.abspath(checkpoint)).outputMode("append")
    writer.trigger(availableNow=True).start().awaitTermination()


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.memory", "4g")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.streaming.stateStore.providerClass", STORE)
    .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
Path("warm").mkdir()
for path in Path(os.environ["BENCH_INPUT"]).iterdir():
    # nothing is opened: the clock starts when the input is
    (Path("warm") / path.name).hardlink_to(path)
run(spark, "warm", "warm-out", "warm-checkpoint")
run(spark, os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"], "checkpoint")
spark.stop()
