"""``top`` and ``deduplicate`` in columns emit, bundle by bundle, what they emit in rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from millwheel import as_retraction
from millwheel.engine.workers.operators.ranked.columns import FirstRowsOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    idle,
    in_rows,
    of_events,
    small_bundles,
    small_reads,
)

COMPUTATIONS = """\
  best: {{input: {{events: {{key: {key}}}}}, {work}, output: best}}
"""
WORK = {
    "places": "top: {by: [cost desc], k: 4, rank: place}",
    "no places": "top: {by: [type, 'cost * 2 desc'], k: 3}",
    "the last": "deduplicate: {keep: last}",
    "the first": "deduplicate: {keep: first}",
}
DIRT: dict[str, tuple[list[Any], bool]] = {
    "clean": ([], True),
    "no cost": ([{"ad": 1, "type": "view", "ts": 1_001_000}], False),
    "no fit": ([{"ad": 1, "type": "view", "cost": 1e308, "ts": 1_001_000}], True),
}
"""Records among others, and whether a bundle is in columns still."""


def pipeline(folder: Path, work: str, key: str, dirt: Sequence[Any] = ()) -> Path:
    return of_events(folder, COMPUTATIONS.format(work=work, key=key), dirt)


def left(rows: list[Any]) -> Counter[str]:
    """The rows that have not been taken back: which versions come before depends on bundles."""
    left: Counter[str] = Counter()
    for row in rows:
        back = as_retraction(row)
        left[json.dumps(row if back is None else back.value)] += 1 if back is None else -1
    return +left


@pytest.mark.parametrize(("dirt", "grouped"), DIRT.values(), ids=DIRT)
@pytest.mark.parametrize("key", ["ad", "[type, ad]"])
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_the_first_rows_in_columns_are_those_of_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    key: str,
    dirt: list[Any],
    grouped: bool,
) -> None:
    small_bundles(monkeypatch, 600)
    file, said = pipeline(tmp_path, work, key, dirt), []
    for rows in (False, True):
        with in_rows(rows), PipelineHarness(str(file), run_sources=True, shards=1) as harness:
            harness.advance_processing_time(10**9)
            [shard] = harness._cluster.shards_of("best")
            assert isinstance(shard.operator, FirstRowsOperator)
            if isinstance(shard.operator, FirstRowsOperator):
                assert bool(shard.operator.bundles_held) == (not rows)
            rows_of = {name: left(harness.read(name)) for name in ("best", "dead_letters")}
            said.append({**rows_of, "letters": harness.counters.get("dead_letters", 0)})
    assert said[0] == said[1]
    assert len(said[0]["best"]) >= 10


def test_rows_that_columns_have_chosen_survive_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_reads(monkeypatch, 30_000, 300)
    file = pipeline(tmp_path, WORK["places"], "ad")
    assert assert_survives_crashes(str(file), idle, every=5, run_sources=True) > 1
