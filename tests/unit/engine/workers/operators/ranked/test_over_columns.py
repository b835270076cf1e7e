"""``over`` in columns emits what it emits in rows, and either form goes on with what the other
kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.operators.ranked import over_columns
from millwheel.engine.workers.operators.ranked.over_columns import OverOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    idle,
    in_rows,
    of_events,
    small_bundles,
    small_reads,
)

COMPUTATIONS = """\
  plain: {{input: events, map: {{ad: ad, type: type, cost: cost, n: ts % 1000}}, output: plain}}
  best:
    input: {{plain: {{key: {key}}}}}
    over: {over}
    {where}
    aggregate: {aggregates}
    output: best
"""
AGGREGATES = {
    "numbers": "{c: count, total: {sum: n}, mean: {mean: cost}, spread: {stddev: n}}",
    "ends": "{cost: {min: cost}, most: {max: n}, last: {max: type}}",
    "one by one": "{kinds: {count_distinct: type}, few: {sum: n, where: n < 300}}",
    "of none": "{few: {sum: cost, where: n < 300}, c: count}",
}
DIRT: dict[str, list[Any]] = {
    "clean": [],
    "no cost": [{"ad": 1, "type": "view", "cost": None, "ts": 1_001_000}],
    "no fit": [{"ad": 1, "type": "view", "cost": 1e308, "ts": 1_001_000}],
    "no sum": [{"ad": 1, "type": "view", "cost": 1.7e308, "ts": 1_001_000}] * 2,
}


def pipeline(
    folder: Path, key: str, over: str, aggregates: str, dirt: list[Any], where: str = ""
) -> Path:
    work = COMPUTATIONS.format(key=key, over=over, where=where, aggregates=aggregates)
    return of_events(folder, work, dirt)


def read(file: Path, columns: bool) -> tuple[Any, bool]:
    with in_rows(not columns), PipelineHarness(str(file), run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        [shard] = harness._cluster.shards_of("best")
        assert isinstance(shard.operator, OverOperator)
        assert not harness.counters.get("failed_in_columns", 0)
        rows = {
            name: Counter(map(json.dumps, harness.read(name))) for name in ("best", "dead_letters")
        }
        return rows, shard.operator.bundles_held > 0


LOOK_BACKS = [
    ("ad", "{rows: 5}"),
    ("[type, ad]", "{rows: 3}"),
    ("ad", "{rows: 1}"),
    ("ad", "{range: 700ms}"),
    ("type", "{range: 0s}"),
]


@pytest.mark.parametrize(
    ("key", "over", "aggregates", "dirt"),
    [
        pytest.param(key, over, chosen, [*DIRT.values()][(row + column) % 4], id=f"{over} {name}")
        for row, (key, over) in enumerate(LOOK_BACKS)
        for column, (name, chosen) in enumerate(AGGREGATES.items())
    ],
)  # each look-back meets each kind of dirt, and so do the aggregates
def test_look_backs_in_columns_are_those_of_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    over: str,
    aggregates: str,
    dirt: list[Any],
) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, key, over, aggregates, dirt)
    rows_said, held = read(file, columns=False)
    assert not held
    columns_said, held = read(file, columns=True)
    assert columns_said == rows_said
    # The sum of no floats is a whole 0 in rows. A read with a null comes in rows.
    known = aggregates != AGGREGATES["one by one"] or "rows" in over
    known = known and aggregates != AGGREGATES["of none"] and dirt != DIRT["no cost"]
    assert held or not known
    assert len(rows_said["best"]) > 1000


def test_keys_in_columns_go_on_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, "ad", "{rows: 5}", AGGREGATES["numbers"], [], "where: n > 100")
    said, _ = read(file, columns=False)
    monkeypatch.setattr(over_columns, "_MOST_BYTES", 60_000)
    assert read(file, columns=True) == (said, True)


@pytest.mark.parametrize("over", ["{rows: 4}", "{range: 1s}"])
def test_look_backs_in_columns_survive_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    small_reads(monkeypatch, 30_000, 300)
    file = pipeline(tmp_path, "ad", over, AGGREGATES["ends"], [])
    assert assert_survives_crashes(str(file), idle, every=11, run_sources=True) > 1
