"""Part C on Spark Structured Streaming: two transformWithState, micro-batches as short as they get,
RocksDB state.

A result is seen when ``foreachBatch`` has its batch, before the batch is committed: after a crash
it is said again. Spark's real-time mode has no Python state.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

GROUPS, WARM_UP_S = 50, 20
COUNT = int(os.environ["BENCH_COUNT"])
OUTPUT = os.path.join(os.environ["BENCH_OUTPUT"], "seen.jsonl")
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Count(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key, rows, timers):  # noqa: N802
        count = self.count.get()[0] if self.count.exists() else 0
        group = key[0] % GROUPS if key[0] >= 0 else -1
        for row in rows:
            count += 1
            yield Row(group=group, count_=1, created=row.created)
        self.count.update((count,))

    def close(self):
        pass


class Sum(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timers):  # noqa: N802
        total = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            total += row.count_
            yield Row(group=key[0], total=total, created=row.created)
        self.total.update((total,))

    def close(self):
        pass


def session():
    found = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .config("spark.sql.streaming.stateStore.providerClass", STORE)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("ERROR")
    return found


def sums(spark, port):
    lines = (
        spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    )
    fields = F.split("value", " ")
    ticks = lines.select(
        fields[0].cast("long").alias("key"), fields[1].cast("double").alias("created")
    )
    counts = ticks.groupBy("key").transformWithState(
        Count(), "group long, count_ long, created double", "append", "none"
    )
    return counts.groupBy("group").transformWithState(
        Sum(), "group long, total long, created double", "append", "none"
    )


def follow(spark, port):
    seen, all_seen = 0, threading.Event()

    def note(batch, number):
        nonlocal seen
        rows = [list(row) for row in batch.collect() if row["group"] >= 0]
        now = time.time()
        if rows:
            out.write(json.dumps([now, rows]).encode() + b"\n")
        seen += len(rows)
        if seen >= COUNT:
            all_seen.set()

    with open(OUTPUT, "ab", buffering=0) as out:
        writer = sums(spark, port).writeStream.foreachBatch(note).outputMode("append")
        writer = writer.option("checkpointLocation", os.path.abspath("checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        while query.isActive and not all_seen.wait(0.5):
            pass
        if query.exception() is not None:
            raise query.exception()
        query.stop()


pacer = str(Path(__file__).with_name("latency_pacer.py"))
with subprocess.Popen([sys.executable, pacer, str(WARM_UP_S)], stdout=subprocess.PIPE) as source:
    try:
        spark = session()
        follow(spark, int(source.stdout.readline()))
        spark.stop()
    finally:
        source.kill()
