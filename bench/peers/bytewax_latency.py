"""Part C on bytewax: two keyed stages at a steady rate; the sink notes when each result reaches it.

Results are seen before the snapshot that covers them: after a crash they are said again.
"""

import json
import os
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

RATE, COUNT = float(os.environ["BENCH_RATE"]), int(os.environ["BENCH_COUNT"])
KEYS, GROUPS = 1_000, 50


class Ticks(StatefulSourcePartition):
    def __init__(self, position):
        self.position = position or 0
        self.began = time.time() - self.position / RATE

    def next_batch(self):
        first = self.position
        if first >= COUNT:
            raise StopIteration
        self.position = min(int((time.time() - self.began) * RATE), COUNT)
        return [(i % KEYS, self.began + (i + 1) / RATE) for i in range(first, self.position)]

    def next_awake(self):
        return datetime.now(timezone.utc) + timedelta(milliseconds=1)

    def snapshot(self):
        return self.position


class Source(FixedPartitionedSource):
    def list_parts(self):
        return ["0"]

    def build_part(self, step_id, for_part, resume_state):
        return Ticks(resume_state)


class Writer(StatelessSinkPartition):
    def __init__(self):
        path = Path(os.environ["BENCH_OUTPUT"]) / f"{os.getpid()}.jsonl"
        self.file = path.open("ab", buffering=0)

    def write_batch(self, items):
        now = time.time()
        self.file.write(json.dumps([now, [value for _, value in items]]).encode() + b"\n")


class Sink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Writer()


def count(state, tick):
    return (state or 0) + 1, (tick[0] % GROUPS, 1, tick[1])


def total(state, counted):
    now = (state or 0) + counted[1]
    return now, [counted[0], now, counted[2]]


flow = Dataflow("latency")
ticks = op.input("in", flow, Source())
keyed = op.key_on("key", ticks, lambda tick: str(tick[0]))
counts = op.stateful_map("counts", keyed, count)
groups = op.map("group", counts, lambda item: (str(item[1][0]), item[1]))
op.output("out", op.stateful_map("sums", groups, total), Sink())
