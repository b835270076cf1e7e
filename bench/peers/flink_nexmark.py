"""A query of Nexmark in Flink SQL, from JSON files: RocksDB state, exactly-once checkpoints every
5 s. Rows are written as JSON files where they are only appended, else dropped at the sink; then a
file says when the last was there."""

import os
import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

QUERY, MINI_BATCHES = sys.argv[1], sys.argv[2] == "mini-batches"
INPUT, OUTPUT = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]

COLUMNS = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,"
    " `dateTime` BIGINT, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,"
    " `dateTime` BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING,"
    " state STRING, `dateTime` BIGINT, extra STRING",
    "side": "`key` BIGINT, `value` STRING",
}
TIMES = """, arrived AS PROCTIME(), ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3),
  WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"""
DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')"
HOUR = "EXTRACT(HOUR FROM ts)"
SLIDING = "TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
COUNTS = f"""(SELECT auction, COUNT(*) AS num, window_start, window_end FROM {SLIDING}
  GROUP BY auction, window_start, window_end)"""
OFFERS = """auction a JOIN bid b ON a.id = auction
  AND b.`dateTime` BETWEEN a.`dateTime` AND expires"""


def tumbling(table):
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"


def ms(time):
    return f"(UNIX_TIMESTAMP(CAST({time} AS STRING)) * 1000)"


STATISTICS = """COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  COUNT(*) FILTER (WHERE price >= 1000000),
  COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (WHERE price < 10000),
  COUNT(DISTINCT auction), COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)"""
QUERIES = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT name, city, state, a.id FROM auction a JOIN person p ON seller = p.id
      WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, COUNT(*), SUM(final), AVG(CAST(final AS DOUBLE))
      FROM (SELECT a.id, category, MAX(price) AS final FROM {OFFERS} GROUP BY a.id, category)
      GROUP BY category""",
    "q5": f"""SELECT x.auction, x.num, {ms("x.window_end")} FROM {COUNTS} x
      JOIN (SELECT MAX(num) AS num, window_start, window_end FROM {COUNTS}
        GROUP BY window_start, window_end) y
      ON x.window_start = y.window_start AND x.window_end = y.window_end AND x.num >= y.num""",
    "q7": f"""SELECT b.auction, b.price, b.bidder FROM (SELECT * FROM {tumbling("bid")}) b
      JOIN (SELECT MAX(price) AS price, window_start, window_end FROM {tumbling("bid")}
        GROUP BY window_start, window_end) w
      ON b.price = w.price AND b.window_start = w.window_start AND b.window_end = w.window_end""",
    "q8": f"""SELECT p.id, p.name, {ms("p.window_start")} FROM
      (SELECT id, name, window_start, window_end FROM {tumbling("person")}
        GROUP BY id, name, window_start, window_end) p
      JOIN (SELECT seller, window_start, window_end FROM {tumbling("auction")}
        GROUP BY seller, window_start, window_end) a
      ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""SELECT * FROM (SELECT a.id, price, bidder, b.`dateTime`, ROW_NUMBER() OVER (
      PARTITION BY a.id ORDER BY price DESC, b.`dateTime`) AS place FROM {OFFERS})
      WHERE place <= 1""",
    "q10": """SELECT auction, bidder, price, `dateTime`, extra,
      DATE_FORMAT(ts, 'yyyy-MM-dd') AS dt, DATE_FORMAT(ts, 'HH:mm') AS hm FROM bid""",
    "q11": """SELECT bidder, COUNT(*) FROM TABLE(SESSION(TABLE bid PARTITION BY bidder,
      DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end""",
    "q12": """SELECT bidder, COUNT(*) FROM
      TABLE(TUMBLE(TABLE bid, DESCRIPTOR(arrived), INTERVAL '10' SECOND))
      GROUP BY bidder, window_start, window_end""",
    "q13": """SELECT auction, bidder, price, `dateTime`, `value` FROM bid
      JOIN side ON MOD(auction, 10000) = `key`""",
    "q14": f"""SELECT auction, bidder, CAST(0.908 AS DOUBLE) * price,
      CASE WHEN {HOUR} BETWEEN 8 AND 18 THEN 'dayTime'
        WHEN {HOUR} <= 6 OR {HOUR} >= 20 THEN 'nightTime' ELSE 'otherTime' END,
      `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))
      FROM bid WHERE CAST(0.908 AS DOUBLE) * price > 1000000
      AND CAST(0.908 AS DOUBLE) * price < 50000000""",
    "q15": f"SELECT {DAY}, {STATISTICS} FROM bid GROUP BY {DAY}",
    "q16": f"SELECT channel, {DAY}, {STATISTICS} FROM bid GROUP BY channel, {DAY}",
    "q17": f"""SELECT auction, {DAY}, COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
      COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000),
      COUNT(*) FILTER (WHERE price >= 1000000), MIN(price), MAX(price), AVG(price), SUM(price)
      FROM bid GROUP BY auction, {DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (SELECT *,
      ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place FROM bid)
      WHERE place <= 1""",
    "q19": """SELECT * FROM (SELECT auction, bidder, price, channel, url, `dateTime`, extra,
      ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
      WHERE place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.`dateTime`, b.extra, itemName,
      description, initialBid, reserve, a.`dateTime` AS began, expires, seller, category,
      a.extra AS more
      FROM bid b JOIN auction a ON auction = a.id WHERE category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0'
      WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
      ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END FROM bid
      WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
      OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3),
      SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) FROM bid""",
    "q23": """SELECT auction, price, itemName, name FROM bid b JOIN auction a ON auction = a.id
      JOIN person p ON seller = p.id""",
}
CHANGING = {"q4", "q9", "q15", "q16", "q17", "q18", "q19"}


def environment():
    settings = Configuration()
    for name, value in {
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.memory.managed.size": "1g",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{os.path.abspath('checkpoint')}",
        "restart-strategy.type": "none",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": str(MINI_BATCHES).lower(),
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "5000",
    }.items():
        settings.set_string(name, value)
    mode = EnvironmentSettings.new_instance().in_streaming_mode()
    return TableEnvironment.create(mode.with_configuration(settings).build())


def run(tables):
    for name, columns in COLUMNS.items():
        timed = "" if name == "side" else TIMES
        tables.execute_sql(
            f"""CREATE TABLE {name} ({columns}{timed}) WITH ('connector' = 'filesystem',
            'path' = 'file://{INPUT}/', 'format' = 'json',
            'source.path.regex-pattern' = '.*/{name}-.*')"""
        )
    tables.execute_sql(f"CREATE TEMPORARY VIEW answer AS {QUERIES[QUERY]}")
    types = tables.from_path("answer").get_schema().get_field_data_types()
    columns = ", ".join(f"c{n} {sql_type(each)}" for n, each in enumerate(types))
    sink = f"'connector' = 'filesystem', 'path' = 'file://{OUTPUT}/rows', 'format' = 'json'"
    if QUERY in CHANGING:
        sink = "'connector' = 'blackhole'"
    parted = "PARTITIONED BY (c5, c6)" if QUERY == "q10" else ""
    tables.execute_sql(f"CREATE TABLE rows_out ({columns}) {parted} WITH ({sink})")
    tables.execute_sql("INSERT INTO rows_out SELECT * FROM answer").wait()
    Path(OUTPUT).mkdir(parents=True, exist_ok=True)
    Path(OUTPUT, "done").write_text("")


def sql_type(data_type):
    names = {"BigIntType": "BIGINT", "DoubleType": "DOUBLE", "IntType": "INT"}
    return names.get(type(data_type).__name__, "STRING")


run(environment())
