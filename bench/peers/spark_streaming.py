"""Parts A and B on Spark Structured Streaming, two cores: ``windows``, ``row`` or ``pandas``
(transformWithState).

One micro-batch of the whole input (``availableNow``), its quickest way; RocksDB state with a
changelog, exactly-once file sink. The rows of a key come in the order of its lines because all are
in one file and one task reads it.
"""

import math
import os
import sys

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

WHAT, OUTPUT = sys.argv[1], os.environ["BENCH_OUTPUT"]
FORM = os.environ["BENCH_FORM"]
FIELDS = "event_id string, ad_id long, client_id long, uid long, type string, cost double, ts long"
STATE, FOUND = "count long, mean double, squares double", "event_id string, ad_id long, z double"
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def judge(state, rows):
    """(new state, outliers) of (event id, cost) pairs."""
    count, mean, squares = state
    found = []
    for event_id, cost in rows:
        if count >= 30:
            deviation = math.sqrt(squares / (count - 1))
            if deviation > 0 and abs((cost - mean) / deviation) > 4:
                found.append((event_id, (cost - mean) / deviation))
        count += 1
        delta = cost - mean
        mean += delta / count
        squares += delta * (cost - mean)
    return (count, mean, squares), found


class Outliers(StatefulProcessor):
    def init(self, handle):
        self.moments = handle.getValueState("moments", STATE)

    def handleInputRows(self, key, rows, timers):  # noqa: N802
        state = self.moments.get() if self.moments.exists() else (0, 0.0, 0.0)
        state, found = judge(state, ((row.event_id, row.cost) for row in rows))
        self.moments.update(state)
        for event_id, z in found:
            yield Row(event_id=event_id, ad_id=key[0], z=z)

    def close(self):
        pass


class OutliersInPandas(Outliers):
    def handleInputRows(self, key, rows, timers):  # noqa: N802
        import pandas as pd

        state = self.moments.get() if self.moments.exists() else (0, 0.0, 0.0)
        frame = pd.concat(rows)
        state, found = judge(state, zip(frame.event_id.tolist(), frame.cost.tolist()))  # noqa: B905
        self.moments.update(state)
        if found:
            names, deviations = zip(*found)  # noqa: B905
            yield pd.DataFrame({"event_id": names, "ad_id": key[0], "z": deviations})


def windows(events):
    click = F.col("type") == "click"
    rows = (
        events.withColumn("at", F.timestamp_millis("ts"))
        .withWatermark("at", "10 seconds")
        .groupBy("ad_id", F.window("at", "1 minute").alias("minute"))
        .agg(
            F.count_if(~click).alias("impressions"),
            F.count_if(click).alias("clicks"),
            F.sum("cost").alias("spend"),
        )
    )
    return rows.select(
        "ad_id",
        F.unix_micros("minute.start").alias("window_start"),
        "impressions",
        "clicks",
        "spend",
    )


def callback(events):
    keyed = events.select("event_id", "ad_id", "cost").groupBy("ad_id")
    if WHAT == "row":
        return keyed.transformWithState(Outliers(), FOUND, "append", "none")
    return keyed.transformWithStateInPandas(OutliersInPandas(), FOUND, "append", "none")


spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.memory", "4g")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.files.maxPartitionBytes", "1g")
    .config("spark.sql.streaming.stateStore.providerClass", STORE)
    .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
reader = spark.readStream.schema(FIELDS)
events = getattr(reader, {"jsonl": "json", "parquet": "parquet"}[FORM])(os.environ["BENCH_INPUT"])
answer = windows(events) if WHAT == "windows" else callback(events)
query = (
    answer.writeStream.format("json")
    .option("path", OUTPUT)
    .option("checkpointLocation", os.path.abspath("checkpoint"))
    .outputMode("append")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
