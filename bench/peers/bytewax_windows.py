"""Part A on bytewax: a StatefulBatchLogic of our own, much quicker there than its ``fold_window``.

Each key closes its minutes by its own newest timestamp, less ten seconds: bytewax has no watermark
across keys.
"""

import os
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow

MINUTE_MS, DELAY_MS = 60_000, 10_000


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
            if value["type"] == "click":
                row[1] += 1
            else:
                row[0] += 1
            row[2] += value["cost"]
            if at > newest:
                newest = at
        self.newest = newest
        if len(minutes) > 1:
            closed = [start for start in minutes if start + MINUTE_MS <= newest - DELAY_MS]
            if closed:
                return [(start, minutes.pop(start)) for start in closed], False
        return (), False

    def on_eof(self):
        return list(self.open.items()), True

    def snapshot(self):
        return {start: list(row) for start, row in self.open.items()}, self.newest


def line(item):
    key, (start, (impressions, clicks, spend)) = item
    row = {
        "ad_id": int(key),
        "window_start": start * 1000,
        "impressions": impressions,
        "clicks": clicks,
        "spend": spend,
    }
    return key, orjson.dumps(row).decode()


flow = Dataflow("windows")
lines = op.input("in", flow, DirSource(Path(os.environ["BENCH_INPUT"]), "*.jsonl", batch_size=1000))
values = op.flat_map_batch("parse", lines, lambda batch: [orjson.loads(text) for text in batch])
keyed = op.key_on("key", values, lambda value: str(value["ad_id"]))
rows = op.stateful_batch("minutes", keyed, Minutes)
sink = DirSink(Path(os.environ["BENCH_OUTPUT"]), int(os.environ["BENCH_PROCESSES"]))
op.output("out", op.map("line", rows, line), sink)
