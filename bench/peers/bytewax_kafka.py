"""Windows from topic to topic on bytewax. Its Kafka sink has no transactions: rows may appear again
after a crash.

Each key closes its minutes by its own newest timestamp, less ten seconds: bytewax has no watermark
across keys.
"""

import io
import json
import os

import bytewax.operators as op
import fastavro
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow

MINUTE_MS, DELAY_MS = 60_000, 10_000
BROKERS = [os.environ["BENCH_BROKERS"]]


def codec():
    """From a message to an event, and from a row to a message: ``BENCH_FORM`` is json or avro."""
    if os.environ.get("BENCH_FORM", "json") == "json":
        return orjson.loads, orjson.dumps
    events, rows = (
        fastavro.parse_schema(json.loads(os.environ[f"BENCH_{name}"])) for name in ("EVENT", "ROW")
    )

    def encode(row):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, rows, row)
        return out.getvalue()

    return lambda data: fastavro.schemaless_reader(io.BytesIO(data), events, None), encode


DECODE, ENCODE = codec()


class Minutes(op.StatefulBatchLogic):
    __slots__ = ("newest", "open")

    def __init__(self, state):
        self.open, self.newest = state or ({}, 0)

    def on_batch(self, values):
        minutes, newest = self.open, self.newest
        for value in values:
            at = value["ts"]
            start = at - at % MINUTE_MS
            row = minutes.get(start)
            if row is None:
                row = minutes[start] = [0, 0, 0.0]
            row[1 if value["type"] == "click" else 0] += 1
            row[2] += value["cost"]
            if at > newest:
                newest = at
        self.newest = newest
        closed = (
            [start for start in minutes if start + MINUTE_MS <= newest - DELAY_MS]
            if len(minutes) > 1
            else ()
        )
        return [(start, minutes.pop(start)) for start in closed], False

    def on_eof(self):
        return list(self.open.items()), True

    def snapshot(self):
        return {start: list(row) for start, row in self.open.items()}, self.newest


def message(item):
    key, (start, (impressions, clicks, spend)) = item
    row = {
        "ad_id": int(key),
        "window_start": start,
        "impressions": impressions,
        "clicks": clicks,
        "spend": spend,
    }
    return KafkaSinkMessage(key.encode(), ENCODE(row))


flow = Dataflow("windows")
messages = op.input(
    "in", flow, KafkaSource(BROKERS, [os.environ["BENCH_INPUT"]], tail=False, batch_size=1000)
)
values = op.flat_map_batch("parse", messages, lambda batch: [DECODE(each.value) for each in batch])
keyed = op.key_on("key", values, lambda value: str(value["ad_id"]))
rows = op.stateful_batch("minutes", keyed, Minutes)
op.output("out", op.map("row", rows, message), KafkaSink(BROKERS, os.environ["BENCH_TOPIC"]))
