"""What it costs to divide keys: µs a record to find its key and its instance, of a source in rows
and in columns, and to choose and note the instance of a production.

    python -m bench dividing [--instances 12]

One process, its processor time, the least of five reads of 50,000 records, whose keys are text and
Zipf with an exponent of 1.4 over 10,000. *whole* is what whole keys cost.
"""

from __future__ import annotations

import argparse
import time
from itertools import accumulate
from random import Random

import numpy as np
import polars as pl

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.grouping.current import CurrentTables
from millwheel.core.grouping.epochs import KeyEpochs
from millwheel.core.model.records import Batch
from millwheel.core.pipeline.graph import Graph, Node, NodeKind
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec
from millwheel.engine.workers.delivery.fanout import Fanout
from millwheel.engine.workers.delivery.instances import ChosenInstances
from millwheel.language.spec.key_extractors import load_extractor

RECORDS, KEYS, EXPONENT, TURNS = 50_000, 10_000, 1.4, 5
BUNDLE = 500


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench dividing", description=__doc__)
    parser.add_argument("--instances", type=int, default=12)
    arguments = parser.parse_args()
    print("| `skew` | rows, µs a record | columns | productions, beyond hash |\n|---|---|---|---|")
    for rule in (None, *Divided):
        rows_us, columns_us = cost_us(rule, arguments.instances)
        more_us = productions_us(rule, arguments.instances)
        name = rule.value if rule else "hash"
        print(f"| `{name}` | {rows_us:.2f} | {columns_us:.2f} | {more_us:.2f} |", flush=True)
    return 0


def productions_us(rule: Divided | None, instances: int) -> float:
    """To choose the instances of what bundles of 500 records produce, and to note them."""
    keys, rules = drawn_keys(), _fanout(rule, instances).rules("s")
    if not rules:
        return 0.0
    tables, took = CurrentTables(rules, 0), list[float]()
    for turn in range(TURNS):
        began = time.process_time()
        for first in range(0, RECORDS, BUNDLE):
            tables.turn(dict, (turn * RECORDS + first) * 10)
            chosen = ChosenInstances(tables, BUNDLE, first)
            some = keys[first : first + BUNDLE]
            chosen.of("n", instances, some, range(first, first + BUNDLE))
        took.append((time.process_time() - began) / RECORDS * 1e6)
    return min(took)


def drawn_keys() -> list[str]:
    """The keys of all records."""
    ends = list(accumulate((rank + 1) ** -EXPONENT for rank in range(KEYS)))
    return [f"key{each}" for each in Random(1).choices(range(KEYS), cum_weights=ends, k=RECORDS)]


def cost_us(rule: Divided | None, instances: int) -> tuple[float, float]:
    """In rows, and in columns."""
    keys = drawn_keys()
    values, frame, fanout = (
        [{"k": key} for key in keys],
        pl.DataFrame({"k": keys}),
        _fanout(rule, instances),
    )
    epochs = KeyEpochs(fanout.rules("s"))
    rows, columns = list[float](), list[float]()
    for turn in range(2 * TURNS):
        positions = np.arange(turn * RECORDS + 1, (turn + 1) * RECORDS + 1)
        numbers, end = positions.tolist(), int(positions[-1])
        in_rows = Batch("s", numbers, numbers, ["p"] * RECORDS, values)
        epochs.extended(end)
        began = time.process_time()
        if turn % 2:
            fanout.split_columns(
                ColumnBatch("s", positions, positions, frame["k"], frame), None, epochs
            )
        else:
            fanout.split(in_rows, values, (), epochs)
        (columns if turn % 2 else rows).append((time.process_time() - began) / RECORDS * 1e6)
        epochs.moved(end)
    return min(rows), min(columns)


def _fanout(rule: Divided | None, instances: int) -> Fanout:
    key = KeySpec(KeyKind.FIELD, ("k",))
    if rule is not None:
        key = KeySpec(KeyKind.FIELD, ("k",), instances, divided=rule)
    node = Node(
        "n", NodeKind.COMPUTATION, (InputSpec("s", key),), (), computation=ComputationSpec("n", ())
    )
    return Fanout(
        Graph({"n": node}, {"s": ("n",)}, {}), lambda spec: load_extractor(spec, "/nowhere")
    )
