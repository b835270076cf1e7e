"""Part E on bytewax: ``fold_window`` over its ``SlidingWindower``. Its clock knows the records'
times only."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, SlidingWindower, fold_window
from bytewax.testing import run_main

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
LENGTH, SLIDE = (
    timedelta(microseconds=int(os.environ[name])) for name in ("BENCH_LENGTH", "BENCH_SLIDE")
)


def add(total, record):
    return total + record["value"]


def line(item):
    key, (window, total) = item
    return key, orjson.dumps({"window": window, "sum": total}).decode()


flow = Dataflow("sliding")
lines = op.input("in", flow, DirSource(Path(os.environ["BENCH_INPUT"]), "*.jsonl", batch_size=50))
keyed = op.key_on("key", op.map("parse", lines, orjson.loads), lambda record: "k")
clock = EventClock(
    lambda record: EPOCH + timedelta(microseconds=record["at"]), timedelta(0), lambda: EPOCH
)
sums = fold_window(
    "sums", keyed, clock, SlidingWindower(LENGTH, SLIDE, EPOCH), int, add, int.__add__
)
op.output("out", op.map("line", sums.down, line), DirSink(Path(os.environ["BENCH_OUTPUT"]), 1))
run_main(flow)
