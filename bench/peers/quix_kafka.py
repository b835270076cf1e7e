"""Windows from topic to topic on Quix Streams, exactly once: its own tumbling windows, in RocksDB, with a changelog.

A key closes its minutes by its own newest timestamp, less ten seconds, and only when a later event of the key comes:
the last minutes of a key are never written. ``BENCH_EVENTS`` says when to stop.
"""

import os
import tempfile
from datetime import timedelta

from quixstreams import Application

app = Application(
    broker_address=os.environ["BENCH_BROKERS"],
    consumer_group=os.environ["BENCH_TOPIC"],
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=tempfile.mkdtemp(prefix="quix-"),
    consumer_extra_config={"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 50},
    loglevel="WARNING",
)
events = app.topic(
    os.environ["BENCH_INPUT"],
    value_deserializer="json",
    key_deserializer="str",
    timestamp_extractor=lambda value, *_: value["ts"],
)
counts = app.topic(os.environ["BENCH_TOPIC"], value_serializer="json", key_serializer="str")


def start(value):
    click = value["type"] == "click"
    return [int(not click), int(click), value["cost"]]


def add(row, value):
    click = value["type"] == "click"
    return [row[0] + (not click), row[1] + click, row[2] + value["cost"]]


def row(value):
    impressions, clicks, spend = value["value"]
    return {"window_start": value["start"], "impressions": impressions, "clicks": clicks, "spend": spend}


windows = app.dataframe(events).tumbling_window(timedelta(minutes=1), grace_ms=timedelta(seconds=10))
windows.reduce(reducer=add, initializer=start).final().apply(row).to_topic(counts)
app.run(count=int(os.environ["BENCH_EVENTS"]), timeout=60)
