"""A query of Nexmark in Spark SQL on a stream, from JSON files, two cores: one micro-batch of the
whole input (``availableNow``), its quickest way; RocksDB state with a changelog, checkpoints.

Rows are written as JSON files where they are only appended; where they are updates they are dropped
at the sink. Then a file says when the last was there. Windows that no further record closes are
never written. q12 has the time
of the micro-batch for that of arrival. With ``all`` in place of a query it prints what Spark says
of each.
"""

import os
import sys
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

INPUT, OUTPUT = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
FIELDS = {
    "bid": "auction long, bidder long, price long, channel string, url string, dateTime long,"
    " extra string",
    "auction": "id long, itemName string, description string, initialBid long, reserve long,"
    " dateTime long, expires long, seller long, category long, extra string",
    "person": "id long, name string, emailAddress string, creditCard string, city string,"
    " state string, dateTime long, extra string",
    "side": "key long, value string",
}
DAY = "date_format(ts, 'yyyy-MM-dd')"
COUNTS = """(SELECT auction, count(*) AS num, window FROM bid
  GROUP BY auction, window(ts, '10 seconds', '2 seconds'))"""
OFFERS = """auction a JOIN bid b ON a.id = auction
  AND b.dateTime BETWEEN a.dateTime AND expires"""
STATISTICS = """count(*), count_if(price < 10000),
  count_if(price >= 10000 AND price < 1000000), count_if(price >= 1000000),
  count(DISTINCT bidder), count(DISTINCT bidder) FILTER (WHERE price < 10000),
  count(DISTINCT auction), count(DISTINCT auction) FILTER (WHERE price >= 1000000)"""
QUERIES = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908D * price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT name, city, state, a.id FROM auction a JOIN person p ON seller = p.id
      WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, count(*), sum(final), avg(final)
      FROM (SELECT a.id, category, max(price) AS final FROM {OFFERS} GROUP BY a.id, category)
      GROUP BY category""",
    "q5": f"""SELECT auction, num, x.window.end FROM {COUNTS} x
      JOIN (SELECT window, max(num) AS most FROM {COUNTS} GROUP BY window) y
      ON x.window = y.window AND num >= most""",
    "q6": f"""SELECT seller, avg(final) OVER (PARTITION BY seller ORDER BY expires
        ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
      FROM (SELECT a.id, seller, expires, max(price) AS final FROM {OFFERS}
        GROUP BY a.id, seller, expires)""",
    "q7": """SELECT auction, b.price, bidder
      FROM (SELECT *, window(ts, '10 seconds') AS w FROM bid) b JOIN
        (SELECT window AS w, max(price) AS price FROM bid GROUP BY window(ts, '10 seconds')) m
      ON b.price = m.price AND b.w = m.w""",
    "q8": """SELECT id, name, p.window.start FROM
      (SELECT id, name, window FROM person GROUP BY id, name, window(ts, '10 seconds')) p
      JOIN (SELECT seller, window FROM auction GROUP BY seller, window(ts, '10 seconds')) a
      ON id = seller AND p.window = a.window""",
    "q9": f"""SELECT a.id, max_by(struct(price, bidder, b.dateTime), struct(price, -b.dateTime))
      FROM {OFFERS} GROUP BY a.id""",
    "q10": """SELECT auction, bidder, price, dateTime, extra,
      date_format(ts, 'yyyy-MM-dd') AS dt, date_format(ts, 'HH:mm') AS hm FROM bid""",
    "q11": "SELECT bidder, count(*) FROM bid GROUP BY bidder, session_window(ts, '10 seconds')",
    "q12": """SELECT bidder, count(*) FROM bid
      GROUP BY bidder, window(current_timestamp(), '10 seconds')""",
    "q13": """SELECT auction, bidder, price, dateTime, value FROM bid
      JOIN side ON auction % 10000 = key""",
    "q14": """SELECT auction, bidder, 0.908D * price,
      CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
      dateTime, extra, length(extra) - length(replace(extra, 'c', ''))
      FROM bid WHERE 0.908D * price > 1000000 AND 0.908D * price < 50000000""",
    "q15": f"SELECT {DAY}, {STATISTICS} FROM bid GROUP BY {DAY}",
    "q16": f"SELECT channel, {DAY}, {STATISTICS} FROM bid GROUP BY channel, {DAY}",
    "q17": f"""SELECT auction, {DAY}, count(*), count_if(price < 10000),
      count_if(price >= 10000 AND price < 1000000), count_if(price >= 1000000),
      min(price), max(price), avg(price), sum(price) FROM bid GROUP BY auction, {DAY}""",
    "q18": """SELECT auction, bidder, max_by(struct(price, channel, url, dateTime, extra), dateTime)
      FROM bid GROUP BY auction, bidder""",
    "q19": """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction
      ORDER BY price DESC) AS place FROM bid) WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.dateTime, b.extra, itemName,
      description, initialBid, reserve, a.dateTime AS began, expires, seller, category,
      a.extra AS more
      FROM bid b JOIN auction a ON auction = a.id WHERE category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0'
      WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
      ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END FROM bid
      WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
      OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4),
      split_part(url, '/', 5), split_part(url, '/', 6) FROM bid""",
    "q23": """SELECT auction, price, itemName, name FROM bid b JOIN auction a ON auction = a.id
      JOIN person p ON seller = p.id""",
}
CHANGING = {"q4", "q6", "q9", "q12", "q15", "q16", "q17", "q18", "q19"}
WINDOWED = {"q5", "q7", "q8", "q11"}


def session():
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def tables(spark, timed):
    for kind, fields in FIELDS.items():
        reader = (spark.read if kind == "side" else spark.readStream).schema(fields)
        rows = reader.option("pathGlobFilter", f"{kind}-*").json(INPUT)
        if kind != "side":
            rows = rows.withColumn("ts", F.timestamp_millis("dateTime"))
        if timed and kind != "side":
            rows = rows.withWatermark("ts", "4 seconds")
        rows.createOrReplaceTempView(kind)


def started(spark, query, output):
    """The running query; its checkpoint is beside the output. Raises AnalysisException where Spark
    cannot run it."""
    tables(spark, query in WINDOWED)
    answer = spark.sql(QUERIES[query])
    answer = answer.toDF(*(f"c{n}" for n in range(len(answer.columns))))
    rows = answer.writeStream.option("checkpointLocation", f"{output}-checkpoint")
    rows = rows.trigger(availableNow=True)
    if query in CHANGING:
        return rows.format("noop").outputMode("update").start()
    if query == "q10":
        rows = rows.partitionBy("c5", "c6")
    return rows.format("json").option("path", f"{output}/rows").start()


def explained(spark):
    for query in QUERIES:
        try:
            started(spark, query, os.path.abspath(f"all/{query}")).stop()
            print(f"{query}: runs", flush=True)
        except AnalysisException as ex:
            print(f"{query}: {str(ex).splitlines()[0]}", flush=True)


spark = session()
spark.sparkContext.setLogLevel("ERROR")
if sys.argv[1] == "all":
    explained(spark)
else:
    started(spark, sys.argv[1], OUTPUT).awaitTermination()
    Path(OUTPUT).mkdir(parents=True, exist_ok=True)
    Path(OUTPUT, "done").write_text("")
spark.stop()
