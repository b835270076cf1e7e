"""Windows from topic to topic on Quix Streams, exactly once: its own tumbling windows, in RocksDB,
with a changelog.

Windows close by the newest timestamp of their partition, less ten seconds, and only when a later
event comes: those that are open at the end of the input are never written. The app itself stops at
a number of *results* only, so its extractor of timestamps counts events.
"""

import json
import os
import tempfile
from datetime import timedelta

from quixstreams import Application

app = Application(
    broker_address=os.environ["BENCH_BROKERS"],
    consumer_group=os.environ["BENCH_TOPIC"],
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=1.0,
    state_dir=tempfile.mkdtemp(prefix="quix-"),
    loglevel="WARNING",
)
left = int(os.environ["BENCH_EVENTS"])


def moment(value, *_):
    global left
    left -= 1
    if not left:
        app.stop()
    return value["ts"]


def codec():
    """``BENCH_FORM`` is json or avro."""
    if os.environ.get("BENCH_FORM", "json") == "json":
        return "json", "json"
    from quixstreams.models.serializers.avro import AvroDeserializer, AvroSerializer

    event, row = (json.loads(os.environ[f"BENCH_{name}"]) for name in ("EVENT", "ROW"))
    return AvroDeserializer(event), AvroSerializer(row)


decoded, encoded = codec()
events = app.topic(
    os.environ["BENCH_INPUT"],
    value_deserializer=decoded,
    key_deserializer="str",
    timestamp_extractor=moment,
)
counts = app.topic(os.environ["BENCH_TOPIC"], value_serializer=encoded, key_serializer="str")


def start(value):
    click = value["type"] == "click"
    return [int(not click), int(click), value["cost"]]


def add(row, value):
    click = value["type"] == "click"
    return [row[0] + (not click), row[1] + click, row[2] + value["cost"]]


def row(value, key, *_):
    impressions, clicks, spend = value["value"]
    return {
        "ad_id": int(key),
        "window_start": value["start"],
        "impressions": impressions,
        "clicks": clicks,
        "spend": spend,
    }


windows = app.dataframe(events).tumbling_window(
    timedelta(minutes=1), grace_ms=timedelta(seconds=10)
)
windows = windows.reduce(reducer=add, initializer=start).final(closing_strategy="partition")
windows.apply(row, metadata=True).to_topic(counts)
app.run()
