"""Columns never disagree with rows, and nothing that fails in columns ends a worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millwheel.engine.workers.shard.commit_building as building
from millwheel.core.columns.pairs import Pairing
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.columns.segments import ColumnarSegments
from millwheel.engine.workers.boundaries import FAILED
from millwheel.engine.workers.sources import source
from millwheel.testing import PipelineHarness
from tests.unit.engine.workers.operators.column_runs import in_rows

T = 60_000_000
PIPELINE = """
pipeline: p
streams:
  in:
    source: {{files: {{path: "{folder}/in.jsonl", format: jsonl}}}}
    timestamp: t
    fields: {{k: int, t: int, v: float}}
computations:
  parts:
    input: {{in: {{key: k}}}}
    window: {window}
    aggregate: {aggregate}
    output: parts
  whole:
    input: {{parts: {{key: k}}}}
    window: {then}
    aggregate: {again}
    output: out
sinks:
  out: {{stdout: {{}}}}
  parts: {{stdout: {{}}}}
  dead_letters: {{stdout: {{}}}}
"""
PARTS = "{n: count, top: {max: {of: v, where: 'v > 50'}}, dev: {stddev: v}}"
WHOLE = (
    "{n: count, tops: {sum: top}, some: {count: top}, least: {min: {of: dev, where: 'top > 60'}}}"
)


def results(
    folder: Path,
    rows: bool,
    window: str = "{tumbling: 10ms}",
    then: str = "{tumbling: 1m}",
    parts: str = PARTS,
) -> dict[str, Any]:
    records = [{"k": i % 5, "t": T + i * 1000, "v": float(i)} for i in range(100)]
    (folder / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = folder / "p.yaml"
    again = WHOLE if parts == PARTS else "{n: count}"
    path.write_text(
        PIPELINE.format(folder=folder, window=window, then=then, aggregate=parts, again=again)
    )
    with in_rows(rows), PipelineHarness(str(path), run_sources=True, shards=1) as harness:
        letters = sorted(letter["reason"] for letter in harness.read("dead_letters"))
        shown = {name: sorted(map(repr, harness.read(name))) for name in ("parts", "out")}
        failed = harness.counters.get(FAILED, 0)
        return {
            **shown,
            "letters": letters,
            "counters": {**harness.counters, FAILED: 0},
            "failed": failed,
        }


@pytest.mark.parametrize(
    "window", ["{tumbling: 10ms}", "{sliding: 20ms, every: 10ms}", "{session: 3ms}", "{count: 3}"]
)
@pytest.mark.parametrize(
    "then", ["{tumbling: 1m}", "global", "{sliding: 2m, every: 1m, emit: changes}"]
)
def test_results_that_are_null_are_to_the_next_aggregation_what_they_are_in_rows(
    tmp_path: Path, window: str, then: str
) -> None:
    found = results(tmp_path, False, window, then)
    assert found == results(tmp_path, True, window, then)
    assert found["letters"]


@pytest.mark.parametrize(
    "then", ["{tumbling: 1m}", "{tumbling: 1d, time_zone: America/New_York}", "{session: 1m}"]
)
def test_results_of_a_global_window_count_in_the_windows_behind_it(
    tmp_path: Path, then: str
) -> None:
    found = results(tmp_path, False, "global", then)
    assert found == results(tmp_path, True, "global", then)
    assert len(found["out"]) == 5


def test_fields_may_be_called_as_columns_are_inside(tmp_path: Path) -> None:
    parts = "{a0: count, start: {count: v}, group: count}"
    found = results(tmp_path, False, parts=parts)
    assert found == results(tmp_path, True, parts=parts)
    assert found["out"]


class PanicException(BaseException):
    """As libraries in Rust raise it."""


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), MemoryError(), PanicException("odd"), pl.exceptions.ShapeError()]
)
@pytest.mark.parametrize(
    ("where", "name"),
    [
        (ColumnPlan, "group"),
        (ColumnPlan, "results"),
        (ColumnarSegments, "add"),
        (source, "sort_frame"),
    ],
)
def test_what_fails_in_columns_is_done_again_in_rows_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, error: BaseException
) -> None:
    want = results(tmp_path, True)
    monkeypatch.setattr(where, name, failing(error))
    found = results(tmp_path, False)
    assert found.pop("failed") > 0
    want.pop("failed")
    assert found == want


def test_the_pairs_of_a_join_that_fail_in_columns_are_made_in_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pairing, "pairs", failing(RuntimeError("odd")))
    text = JOIN.replace("DECLARED", "fields: {k: int, t: int}")
    (tmp_path / "p.yaml").write_text(text)
    with PipelineHarness(str(tmp_path / "p.yaml")) as harness:
        for stream in ("one", "two"):
            harness.push(stream, [{"k": 1, "t": T}])
        harness.finish()
        assert len(harness.read("out")) == 1


JOIN = """
pipeline: p
streams:
  one: {source: {injection: {}}, timestamp: t, DECLARED}
  two: {source: {injection: {}}, timestamp: t, DECLARED}
computations:
  pairs: {input: {one: {key: k}, two: {key: k}}, join: inner, window: {tumbling: 1m}, output: out}
sinks:
  out: {stdout: {}}
"""


def test_one_value_that_no_column_can_hold_costs_what_its_key_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 0
    apply = building.CommitBuilding._apply

    def noted(self: Any, bundle: Any) -> Any:
        nonlocal largest
        commit = apply(self, bundle)
        if self.identity.node == "parts":
            largest = max(largest, len(commit.puts))
        return commit

    monkeypatch.setattr(building.CommitBuilding, "_apply", noted)
    keys = 4_000
    records = [{"k": i, "t": T, "v": 1.5} for i in range(keys)]
    records += [{"k": i, "t": T, "v": 1e-13} for i in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = PIPELINE.format(
        folder=tmp_path,
        window="{tumbling: 1m}",
        then="{tumbling: 1h}",
        aggregate="{s: {sum: v}}",
        again="{n: count}",
    )
    (tmp_path / "p.yaml").write_text(text)
    with PipelineHarness(str(tmp_path / "p.yaml"), run_sources=True, shards=1) as harness:
        found = {row["k"]: row["s"] for row in harness.read("parts")}
    assert len(found) == keys
    assert (found[1], found[3]) == (1.5 + 1e-13, 1.5)
    assert largest < 500, "no commit is as large as the shard"
