"""Steps with ``order_by`` in columns say what they say in rows, in the same order, and either form
goes on with what the other kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.operators import waiting
from millwheel.engine.workers.operators.waiting import OrderedOperator
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

PIPELINE = (
    EVENTS
    + """\
computations:
  sorted:
    input: {{events: {{key: {key}}}}}
    {work}
    order_by: timestamp
    output: sorted
"""
)
WORK = {
    "map": "map: {ad: ad, n: ts % 1000, twice: cost * 2}",
    "filter": "filter: cost > 0.5",
    "letters": "map: {ad: ad, n: 1000 // (ts % 7)}",
    "branches": "branch: {cheap: cost < 1, dear: cost > 4}",
}
DIRT: dict[str, list[Any]] = {
    "clean": [],
    "no cost": [{"ad": 1, "type": "view", "cost": None, "ts": 1_001_000}],
}


def pipeline(folder: Path, key: str, work: str, dirt: list[Any]) -> Path:
    made = declared_events()
    for number, each in enumerate(made):  # some of one time
        if number % 3 == 0:
            each["ts"] = made[max(number - 1, 0)]["ts"]
    written(folder / "in", {"a": [*made[:600], *dirt, *made[600:900]], "b": made[900:]})
    text = PIPELINE.format(folder=folder / "in", delay="8s", key=key, work=work)
    if "branch" in work:
        text = text.replace("    output: sorted\n", "")
    file = folder / "p.yaml"
    file.write_text(text)
    return file


def read(file: Path, columns: bool) -> tuple[Any, bool]:
    with in_rows(not columns), PipelineHarness(str(file), run_sources=True, shards=1) as harness:
        harness.advance_processing_time(10**9)
        [shard] = harness._cluster.shards_of("sorted")
        assert isinstance(shard.operator, OrderedOperator)
        assert not harness.counters.get("failed_in_columns", 0)
        names = ("cheap", "dear") if "branch" in file.read_text() else ("sorted",)
        rows: dict[str, Any] = {name: rows_by_key(harness, name) for name in names}
        rows["letters"] = letters_of(harness)
        return (rows, harness.counters.get("unmatched", 0)), shard.operator.bundles_held > 0


@pytest.mark.parametrize("dirt", DIRT.values(), ids=DIRT)
@pytest.mark.parametrize("key", ["ad", "[type, ad]"])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_order_in_columns_is_that_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, work: str, dirt: list[Any]
) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, key, work, dirt)
    rows_said, held = read(file, columns=False)
    assert not held
    columns_said, held = read(file, columns=True)
    assert columns_said == rows_said
    # Each key has records that fail. The read with a null is one of records.
    assert held or work == WORK["letters"] or dirt
    times = [
        [at for at, _ in rows]
        for by_key in rows_said[0].values()
        if isinstance(by_key, dict)
        for rows in by_key.values()
    ]
    assert times
    assert all(each == sorted(each) for each in times)


def test_keys_in_columns_go_on_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bundles(monkeypatch, 300)
    file = pipeline(tmp_path, "[type, ad]", WORK["map"], [])
    said, _ = read(file, columns=False)
    monkeypatch.setattr(waiting, "_MOST_BYTES", 80_000)
    assert read(file, columns=True) == (said, True)


def test_order_in_columns_survives_crashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_reads(monkeypatch, 30_000, 300)
    never_few(monkeypatch)
    file = pipeline(tmp_path, "ad", WORK["map"], [])
    assert assert_survives_crashes(str(file), idle, every=11, run_sources=True) > 1
