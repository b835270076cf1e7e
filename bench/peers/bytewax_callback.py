"""Part B on bytewax: ``stateful_flat_map``, a Python function per record with keyed state."""

import math
import os
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow


def outliers(state, value):
    count, mean, squares = state if state is not None else (0, 0.0, 0.0)
    cost, found = value["cost"], ()
    if count >= 30:
        deviation = math.sqrt(squares / (count - 1))
        if deviation > 0 and abs((cost - mean) / deviation) > 4:
            found = (
                {
                    "event_id": value["event_id"],
                    "ad_id": value["ad_id"],
                    "z": (cost - mean) / deviation,
                },
            )
    count += 1
    delta = cost - mean
    mean += delta / count
    return (count, mean, squares + delta * (cost - mean)), found


flow = Dataflow("callback")
lines = op.input("in", flow, DirSource(Path(os.environ["BENCH_INPUT"]), "*.jsonl", batch_size=1000))
values = op.flat_map_batch("parse", lines, lambda batch: [orjson.loads(text) for text in batch])
keyed = op.key_on("key", values, lambda value: str(value["ad_id"]))
found = op.stateful_flat_map("outliers", keyed, outliers)
sink = DirSink(Path(os.environ["BENCH_OUTPUT"]), int(os.environ["BENCH_PROCESSES"]))
op.output(
    "out", op.map("line", found, lambda item: (item[0], orjson.dumps(item[1]).decode())), sink
)
