"""Micro-benchmarks as ratios: what a piece of the hot path costs against a plain Python loop over
the same records.

Both are measured in alternation, in CPU time of this process, and the least of several tries
counts, so other load on the machine and its speed cancel out. A ratio is how many times the loop's
cost ours is: less is better.

``python -m tests.guard.micro`` measures and writes ``baseline.json``: run it five times on a quiet
machine, keep the greatest of each, and commit the file with the change that explains them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from millwheel import Computation, ValueState
from millwheel.adapters.spaces.files import PosixFiles
from millwheel.adapters.stores.growing_store import GrowingStores
from millwheel.adapters.stores.rocksdb import RocksStores
from millwheel.control.injector.events import ReportColumns
from millwheel.control.injector.node import NodeState
from millwheel.core.columns.batch import ColumnBatch, decode_columns, encode_columns
from millwheel.core.formats.codec import decode_batch, encode_batch, stream_decoder
from millwheel.core.model.names import NodeName, ShardName, Token
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import tile
from millwheel.core.model.records import Batch
from millwheel.engine.workers import events as ev
from millwheel.engine.workers.shard.seen_ids import MIN_SPAN_US, SeenIds
from millwheel.engine.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.fakes.reading import open_file
from tests.guard.asked import gets, mgets
from tests.unit.core.columns.state.test_windows import plan_of
from tests.unit.engine.workers.bench import NOW, ShardBench
from tests.unit.engine.workers.loop.test_runtime import Worker

RECORDS, KEYS, TRIES = 4_000, 200, 9
STEPS, SMALL_SHARDS = 200, 50


@dataclass(frozen=True, slots=True)
class Micro:
    """``prepare`` makes one try ready and returns what is to be measured; ``reference`` is the
    plain loop."""

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
        if (
            count > 30
            and squares > 0
            and abs(value["cost"] - mean) > 4 * math.sqrt(squares / count)
        ):
            raise AssertionError("there is no outlier in this input")
        delta = value["cost"] - mean
        mean += delta / (count + 1)
        state[value["key"]] = (count + 1, mean, squares + delta * (value["cost"] - mean))
    return state["k0"][1]


def plain_files() -> float:
    """The reference of what goes to files: as many folders with a file each as ``small_shards``
    makes and removes, since a file system may cost twice another's, and the plain loop."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(SMALL_SHARDS):
            path = Path(folder) / str(number)
            path.mkdir()
            (path / "data").write_bytes(b"x" * 1000)
            (path / "data").read_bytes()
    return plain_loop()


def callback_bundle() -> Callable[[], object]:
    """A bundle from its arrival to its durable commit: decode, dedup, group, callback, state,
    encode."""
    bench = ShardBench(Moments)

    def work() -> int:
        bench.deliver(*ROWS)
        bench.run()
        return len(bench.settle())

    return work


def small_bundles() -> Callable[[], object]:
    """The same records, four in each bundle, as they come when there are few: what a bundle
    costs."""
    bench = ShardBench(Moments)

    def work() -> None:
        for first in range(0, RECORDS, 4):
            bench.deliver(*ROWS[first : first + 4], first=first + 1)
            bench.run()
            bench.settle()

    return work


def steps_of_one_record() -> Callable[[], object]:
    """A worker's whole step for each record that comes alone: delivery, bundle, commit, journal,
    ack, reports."""
    worker = Worker(inline=True)
    batches = [Batch("events", [number + 1], [NOW], ["a"], [1]) for number in range(STEPS)]
    events = [
        ev.DeliveryCame(
            "up", NodeName("work"), ShardName("work-0"), Token(1), 1, index, batch, "peer"
        )
        for index, batch in enumerate(batches)
    ]

    def work() -> None:
        for event in events:
            worker.runtime.step([event])
        assert worker.calls().count("ack") == STEPS

    return work


def small_shards() -> Callable[[], object]:
    """Shards of a few keys are opened from their snapshots, made ready to work, saved and
    closed."""
    bench = ShardBench(Moments)
    saved, folder = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
    stores = GrowingStores(RocksStores(f"{folder.name}/big"), PosixFiles())
    entry = ShardEntry("work-0", tile(1)[0], "w0", 1)
    for number in range(SMALL_SHARDS):
        store = stores.open("work-0", None)
        store.apply([(b"%d" % key, b"x" * 100) for key in range(10)], [])
        store.checkpoint(f"{saved.name}/{number}")
        store.close()

    def work() -> None:
        with saved, folder:
            for number in range(SMALL_SHARDS):
                store = stores.open("work-0", f"{saved.name}/{number}")
                bench.assembly.make_shard("work", entry, store, bench.router).start()
                store.checkpoint(f"{folder.name}/{number}")
                store.close()

    return work


def watermark_round() -> Callable[[], object]:
    """Every range of a node reports, and the watermark rises."""
    node = NodeState()
    entries = (
        ShardEntry(name, piece, "w0", 1) for name, piece in zip(SHARDS, tile(RECORDS), strict=True)
    )
    node.table_changed(RangeTable("n", tuple(entries), 0))

    def work() -> object:
        ones = np.ones(RECORDS, np.int64)
        holders = np.full(RECORDS, "input", object)
        return node.reported(1, ReportColumns(SHARDS, ones, ones * NOW, holders, {}, {}))

    return work


def rows_cross() -> Callable[[], object]:
    """Records as rows, from one worker to another: encoded, and decoded where a callback will see
    them."""
    keys, values, times = map(list, zip(*ROWS, strict=True))
    batch = Batch("events", list(range(1, RECORDS + 1)), times, keys, values)
    decode = stream_decoder({})

    def work() -> object:
        came = decode_batch(encode_batch(batch))
        assert isinstance(came, Batch)
        return decode(came.stream, came.values)

    return work


def lines_to_columns() -> Callable[[], object]:
    """Lines of JSON become columns of three fields."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.jsonl"
        path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
        reader = open_file(path, fields={"key": "str", "cost": "float", "ts": "int"})
        reader.read_frame(0, 4096)

    return lambda: reader.read_frame(0, 1 << 24)  # type: ignore[attr-defined]


def columns_to_windows() -> Callable[[], object]:
    """Records in columns cross to another worker, and become groups of keys and windows, which are
    merged."""
    plan = plan_of()
    assert plan is not None
    places = np.arange(RECORDS)
    fields = {"ad": places % KEYS, "cost": places % 97 / 4, "size": places % 13}
    frame = pl.DataFrame(fields).with_columns(kind=pl.lit("click"))
    batch = ColumnBatch("events", places + 1, places // 40, frame["ad"], frame)

    def work() -> object:
        groups = plan.group(decode_columns(encode_columns(batch)))
        return plan.merge([groups, groups])

    return work


def bundle_with_ids() -> Callable[[], object]:
    """Bundles of records in columns, each with an id: looked up among those of eight buckets, and
    remembered."""
    store = SimStore({})
    overlay = Overlay(store)
    seen = SeenIds(store, overlay, 8 * MIN_SPAN_US)
    numbers = np.arange(2 * RECORDS)
    frame = pl.DataFrame({"ad": numbers % KEYS})
    ids = pl.Series("id", [f"id-{number}" for number in range(2 * RECORDS)])
    whole = ColumnBatch(
        "events", numbers + 1, numbers % 8 * MIN_SPAN_US, frame["ad"], frame, 0, ids
    )
    seen.fresh(whole.where(numbers < RECORDS))
    store.apply(*overlay.take())
    batch = whole.where(numbers >= RECORDS)

    def work() -> None:
        assert seen.fresh(batch).all()
        store.apply(*overlay.take())

    return work


MICROS = tuple(
    Micro(made.__name__, made, plain_files if made is small_shards else plain_loop)
    for made in (
        callback_bundle,
        small_bundles,
        steps_of_one_record,
        small_shards,
        watermark_round,
        rows_cross,
        lines_to_columns,
        columns_to_windows,
        bundle_with_ids,
        gets,
        mgets,
    )
)


def ratio(micro: Micro) -> float:
    """How many times the reference's cost."""
    ours, reference = [], []
    for _ in range(TRIES):
        ours.append(_spent(micro.prepare()))
        reference.append(_spent(micro.reference))
    return min(ours) / min(reference)


def _spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


FILE = Path(__file__).with_name("baseline.json")
TOLERANCE = 1.6
"""Ratios of one tree differ by up to a quarter between runs and Pythons, by up to a half between
machines (one build: 1.8 and 2.8). The baseline lies between them. A lost fast path costs far
more."""


def allowed() -> dict[str, float]:
    """The highest ratio of each micro-benchmark that is not a regression."""
    return {
        name: value * TOLERANCE
        for name, value in json.loads(FILE.read_text(encoding="utf-8")).items()
    }


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="Measure the micro-benchmarks and write their baseline."
    ).parse_args()
    found = {micro.name: round(ratio(micro), 3) for micro in MICROS}
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found))
