"""Micro-benchmarks as ratios: what a piece of the hot path costs against a plain Python loop over the same records.

Both are measured in alternation, in CPU time of this thread, and the least of several tries counts, so other load on
the machine and its speed cancel out. A ratio is how many times the loop's cost ours is: less is better.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millwheel import Computation, ValueState
from millwheel.core.ranges import tile
from millwheel.core.table import RangeTable, ShardEntry
from millwheel.injector.events import ReportColumns
from millwheel.injector.node import NodeState
from tests.unit.workers.bench import NOW, ShardBench

RECORDS, KEYS, TRIES = 4_000, 200, 9


@dataclass(frozen=True, slots=True)
class Micro:
    """``prepare`` makes one try ready and returns what is to be measured; ``reference`` is the plain loop."""

    name: str
    prepare: Callable[[], Callable[[], object]]
    reference: Callable[[], object]


class Moments(Computation):
    """Part B's work per record."""

    moments = ValueState(list, default=lambda: [0, 0.0, 0.0])

    def process_record(self, ctx, record):
        count, mean, squares = self.moments.get()
        delta = record.value["cost"] - mean
        mean += delta / (count + 1)
        self.moments.set([count + 1, mean, squares + delta * (record.value["cost"] - mean)])


ROWS = [(f"k{place % KEYS}", {"cost": place % 97 / 7}, NOW + place) for place in range(RECORDS)]
LINES = [json.dumps({"key": key, **value, "ts": at}) for key, value, at in ROWS]
SHARDS = [f"n-{place}" for place in range(RECORDS)]


def plain_loop() -> float:
    """The reference: parse each line with the standard library, Welford per key in a dict."""
    state: dict[str, tuple[int, float, float]] = {}
    for line in LINES:
        value = json.loads(line)
        count, mean, squares = state.get(value["key"], (0, 0.0, 0.0))
        if count > 30 and squares > 0 and abs(value["cost"] - mean) > 4 * math.sqrt(squares / count):
            raise AssertionError("there is no outlier in this input")
        delta = value["cost"] - mean
        mean += delta / (count + 1)
        state[value["key"]] = (count + 1, mean, squares + delta * (value["cost"] - mean))
    return state["k0"][1]


def callback_bundle() -> Callable[[], object]:
    """A bundle from its arrival to its durable commit: decode, dedup, group, callback, state, encode."""
    bench = ShardBench(Moments)

    def work() -> int:
        bench.deliver(*ROWS)
        bench.run()
        return len(bench.settle())

    return work


def watermark_round() -> Callable[[], object]:
    """Every range of a node reports, and the watermark rises."""
    node = NodeState()
    entries = (ShardEntry(name, piece, "w0", 1) for name, piece in zip(SHARDS, tile(RECORDS), strict=True))
    node.table_changed(RangeTable("n", tuple(entries), 0))

    def work() -> object:
        ones = np.ones(RECORDS, np.int64)
        holders = np.full(RECORDS, "input", object)
        return node.reported(1, ReportColumns(SHARDS, ones, ones * NOW, holders, {}, {}))

    return work


MICROS = (
    Micro("callback_bundle", callback_bundle, plain_loop),
    Micro("watermark_round", watermark_round, plain_loop),
)


def ratio(micro: Micro) -> float:
    """How many times the reference's cost."""
    ours, reference = [], []
    for _ in range(TRIES):
        ours.append(_spent(micro.prepare()))
        reference.append(_spent(micro.reference))
    return min(ours) / min(reference)


def _spent(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
