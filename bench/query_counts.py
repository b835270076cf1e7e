"""What of the figures of queries needs no run: precision against L/H, bytes of a key, what
redis-benchmark prints."""

from __future__ import annotations

import csv
import random

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.formats.store_layout import slice_prefix
from millwheel.core.pipeline.work import AggregateSpec
from millwheel.core.slices.levels import slice_levels
from millwheel.core.slices.slots import slot_stored_key
from millwheel.engine.queries.model import Mode
from millwheel.engine.queries.slices import StoredSlice, encode_slice, span_of

MINUTE_US = 60_000_000
HOUR_US, DAY_US = 60 * MINUTE_US, 1_440 * MINUTE_US
LEVELS_US = (5 * MINUTE_US, HOUR_US, DAY_US)
_NOW_US = 1_700_000_000_000_000
_COLUMNS = {"rps": "queries_per_s", "p50_latency_ms": "p50_ms", "p99_latency_ms": "p99_ms"}


def precision(window_us: int, draws: int, seed: int = 1) -> dict[str, float]:
    """By how much a count at a constant rate is too high for a window that ends at ``draws`` random
    moments, in percent: what is covered before the window, as a share of it. Beside it L/H, which
    it must stay below."""
    levels, rng = slice_levels(LEVELS_US), random.Random(seed)
    over = []
    for _ in range(draws):
        until_us = _NOW_US + rng.randrange(30 * DAY_US)
        start_us = span_of(levels, window_us, until_us, Mode.COVERING).start_us
        over.append(100 * (until_us - window_us - start_us) / window_us)
    return {
        "bound_percent": 100 * LEVELS_US[0] / window_us,
        "most_percent": max(over),
        "mean_percent": sum(over) / draws,
    }


def bytes_per_key(records: int, seed: int = 1) -> dict[str, float]:
    """What the slices of one key with ``records`` in 30 days hold in the store, its keys included
    and nothing compressed; and its records as lines of JSON."""
    rng, key = random.Random(seed), 42
    specs = [AggregateSpec("n", "count"), AggregateSpec("spend", "sum", "cost")]
    aggregation, levels = compile_aggregation(specs, compile_expression), slice_levels(LEVELS_US)
    kept: dict[bytes, StoredSlice] = {}
    raw = 0
    for _ in range(records):
        at_us, cost = _NOW_US + rng.randrange(30 * DAY_US), rng.randrange(1_000)
        raw += len(b'{"at":%d,"key":%d,"cost":%d}\n' % (at_us, key, cost))
        for level in levels:
            name = slice_prefix(level.number, level.bounds(at_us)[0]) + slot_stored_key(key)
            old = kept.get(name)
            acc = aggregation.create() if old is None else old.acc
            acc = aggregation.add_many(acc, [aggregation.prepare({"cost": cost})], [at_us])
            kept[name] = StoredSlice(max(at_us, at_us if old is None else old.newest_us), acc)
    stored = sum(len(name) + len(encode_slice(each)) for name, each in kept.items())
    return {
        "accumulators": len(kept),
        "stored_bytes": stored,
        "raw_bytes": raw,
        "raw_to_stored": raw / stored,
    }


def rates(text: str, queries_of_each: int = 1) -> dict[str, float]:
    """The figures of one run of redis-benchmark with ``--csv``. ``queries_of_each``: indicators of
    one request."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    row = next(csv.DictReader(lines[-2:]))
    found = {name: float(row[column]) for column, name in _COLUMNS.items()}
    if queries_of_each > 1:
        found["indicators_per_s"] = found["queries_per_s"] * queries_of_each
    return found
