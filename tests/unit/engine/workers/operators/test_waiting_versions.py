"""``enrich`` as of event time in columns says what it says in rows, and either form goes on with
what the other kept."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.operators import waiting
from millwheel.engine.workers.operators.waiting import EnrichOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    EVENTS,
    declared_events,
    idle,
    in_rows,
    letters_of,
    never_few,
    rows_by_key,
    small_bundles,
    small_reads,
    written,
)

PRICED = """\
  prices:
    source: {{files: {{path: "{prices}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: at, unit: ms}}
    fields: {{ad: int, type: str, price: float, at: int}}
    watermark: {{max_delay: 8s, max_future: null}}
    {table}
computations:
  priced:
    input: {{events: {{key: {key}}}, prices: {{key: {key}}}}}
    enrich: {{with: prices, as: {name}, missing: {missing}}}
    output: priced
"""
DIRT: dict[str, list[Any]] = {
    "clean": [],
    "a null": [{"ad": 1, "type": "view", "price": None, "at": 1_001_000}],
    "no number": [{"ad": 2, "type": "view", "price": "dear", "at": 1_002_000}],
}


def pipeline(
    folder: Path,
    missing: str = "keep",
    key: str = "ad",
    name: str = "price",
    dirt: Any = (),
    table: str = "",
) -> Path:
    rng = random.Random(7)
    made = declared_events()
    prices = [
        {
            "ad": rng.randrange(1, 11),
            "type": rng.choice(["view", "click"]),
            "price": number / 8,
            "at": 1_004_000 + number * 170 + rng.randrange(-4_000, 4_000),
        }
        for number in range(400)
    ]
    for number, each in enumerate(prices):  # some of one time, and of that of an event
        if number % 3 == 0:
            each["at"] = prices[max(number - 1, 0)]["at"]
        elif number % 3 == 1:
            each["at"] = made[4 * number]["ts"]
    written(folder / "in", {"a": made[:900], "b": made[900:]})
    dear = written(folder / "prices", {"c": [*prices[:100], *dirt, *prices[100:]]})
    file = folder / "p.yaml"
    priced = PRICED.format(prices=dear, key=key, name=name, missing=missing, table=table)
    file.write_text(EVENTS.format(folder=folder / "in", delay="8s") + priced)
    return file


def read(file: Path, columns: bool) -> tuple[Any, bool]:
    with in_rows(not columns), PipelineHarness(str(file), run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        [shard] = harness._cluster.shards_of("priced")
        assert isinstance(shard.operator, EnrichOperator)
        assert not harness.counters.get("failed_in_columns", 0)
        unmatched = harness.counters.get("unmatched", 0)
        said = rows_by_key(harness, "priced"), letters_of(harness), unmatched
        return said, shard.operator.bundles_held > 0


@pytest.mark.parametrize("dirt", DIRT.values(), ids=DIRT)
@pytest.mark.parametrize(
    ("missing", "key", "name"),
    [
        ("keep", "[ad, type]", "cost"),
        ("drop", "ad", "price"),
        ("dead_letter", "[ad, type]", "price"),
    ],
)
def test_enrichment_in_columns_is_that_of_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    key: str,
    name: str,
    dirt: list[Any],
) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, missing, key, name, dirt)
    rows_said, held = read(file, columns=False)
    assert not held
    columns_said, held = read(file, columns=True)
    assert columns_said == rows_said
    assert held
    values = [value for rows in rows_said[0].values() for _, value in rows]
    assert sum('"at"' in value for value in values) > 1000


@pytest.mark.parametrize("table", ["ad", "{key: ad, delete: price > 40 and type == 'view'}"])
@pytest.mark.parametrize("dirt", DIRT.values(), ids=DIRT)
def test_a_table_in_columns_is_that_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, dirt: list[Any]
) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, dirt=dirt, table=f"table: {table}")
    rows_said, held = read(file, columns=False)
    assert not held
    columns_said, held = read(file, columns=True)
    assert columns_said == rows_said
    assert held
    values = [value for rows in rows_said[0].values() for _, value in rows]
    assert any('"price": {' in value for value in values)


def test_keys_in_columns_go_on_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path)
    said, _ = read(file, columns=False)
    monkeypatch.setattr(waiting, "_MOST_BYTES", 40_000)
    assert read(file, columns=True) == (said, True)


def test_enrichment_in_columns_survives_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_reads(monkeypatch, 30_000, 300)
    never_few(monkeypatch)
    file = pipeline(tmp_path)
    assert assert_survives_crashes(str(file), idle, every=11, run_sources=True) > 1


def test_versions_that_are_over_leave_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_bundles(monkeypatch, 60)
    file = pipeline(tmp_path)
    with PipelineHarness(str(file), run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        [shard] = harness._cluster.shards_of("priced")
        assert isinstance(shard.operator, EnrichOperator)
        held = sum(each.groups.height for each in shard.operator._segments())
        assert 0 < held < 400
