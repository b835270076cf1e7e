"""Aggregations on columns in the real runtime: the rows are those of the row form, whatever the
input and the crash."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from millwheel.engine.workers.operators.windows import columns
from millwheel.engine.workers.operators.windows.columns import ColumnOperator
from millwheel.engine.workers.operators.windows.grouping import GroupedOperator
from millwheel.engine.workers.operators.windows.rows import WindowedOperator
from millwheel.engine.workers.sources.frames import ReadSize
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.testing import PipelineHarness, assert_survives_crashes
from tests.unit.engine.workers.operators.column_runs import (
    DIRTY,
    FIELDS,
    LISTS,
    LONG_LISTS,
    PIPELINE,
    events,
    exact,
    idle,
    pipeline,
    results,
    run_of,
    small_reads,
    written,
)


@pytest.mark.parametrize("key", ["ad", "[ad, type]"])
@pytest.mark.parametrize("dirt", DIRTY.values(), ids=DIRTY)
def test_results_are_those_of_rows(tmp_path: Path, dirt: list[Any], key: str) -> None:
    first, second = events(300, 1), events(250, 2)
    folder = written(tmp_path, {"a": [*first[:150], *dirt, *first[150:]], "b": second})
    columns, rows = results(folder, "columns", key), results(folder, "rows", key)
    assert columns["minutes"] == rows["minutes"]
    assert columns["totals"] == rows["totals"]
    assert len(columns["dead_letters"]) == len(rows["dead_letters"])
    assert columns["counters"] == rows["counters"]
    assert len(rows["minutes"]) > 10
    assert rows["counters"]["late"] > 0


CALCULATIONS = """
      dear: {max: "cost - size"}
      revenue: {sum: "cost * size"}
      area: {sum: {of: "size * size", where: "size > 0"}}
      each: {mean: "cost / size"}
      paid: {sum: {of: "cost / size", where: "size != 0 and type == 'view'"}}
      spread: {stddev: "size + 0.5"}
"""
SIZES: dict[str, list[Any]] = {
    "clean": [],
    "a size of nothing": [{"ad": 1, "type": "click", "cost": 1.0, "size": 0, "ts": 1_002_000}],
    "a square beyond 64 bits": [
        {"ad": 1, "type": "click", "cost": 1.0, "size": 2**40, "ts": 1_002_000}
    ],
    "no size": [{"ad": 1, "type": "click", "cost": 1.0, "size": None, "ts": 1_002_000}],
    "a revenue beyond all floats": [
        {"ad": 1, "type": "click", "cost": 1e308, "size": 9, "ts": 1_002_000}
    ],
}


@pytest.mark.parametrize(
    "window",
    ["tumbling: 10s", "sliding: 20s, every: 10s", "cumulative: 20s, every: 10s", "session: 2s"],
)
@pytest.mark.parametrize("odd", SIZES.values(), ids=SIZES)
def test_calculations_give_what_rows_give_and_the_same_dead_letters(
    tmp_path: Path, odd: list[Any], window: str
) -> None:
    rng = random.Random(5)
    sized = [{**event, "size": rng.choice([1, 2, 3, 7])} for event in events(300, 1)]
    folder = written(tmp_path, {"a": [*sized[:150], *odd, *sized[150:]]})
    path = folder / "calculated.yaml"
    text = PIPELINE.format(
        folder=folder,
        fields=FIELDS.replace("ts: int", "ts: int, size: int"),
        windowing="",
        key="ad",
    )
    text = text.replace("      most: {max: cost}\n", CALCULATIONS).replace(
        "tumbling: 10s", window, 1
    )

    def found(text: str, form: type, rows: bool) -> dict[str, Any]:
        path.write_text(text)
        read, operators = run_of(path, rows, ("minutes", "dead_letters"))
        assert {type(each) for each in operators} == {form}
        # Rows without a plan do not know that the sum of no floats is one, too.
        paid = [{**row, "paid": float(row["paid"])} for row in read["minutes"]]
        return {**read, "minutes": sorted(map(json.dumps, paid))}

    expected = found(text, WindowedOperator, rows=True)
    form = GroupedOperator if window.startswith("cumulative") else ColumnOperator
    assert found(text, form, rows=False) == expected
    several = text.replace("stddev", "approx_count_distinct")
    assert found(several, form, rows=False) == found(several, WindowedOperator, rows=True)
    assert len(expected["minutes"]) > 10


@pytest.mark.parametrize(
    "most", [columns.MOST_BYTES, 3000], ids=["in columns", "too much for columns"]
)
@pytest.mark.parametrize("window", ["tumbling: 10s", "sliding: 20s, every: 10s", "session: 2s"])
@pytest.mark.parametrize("more", [LISTS, LISTS + LONG_LISTS], ids=["numbers", "lists"])
def test_values_and_bins_in_columns_are_those_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, window: str, more: str
) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", most)
    small_reads(monkeypatch)
    went: list[bool] = []
    run_rows = ColumnOperator._run_rows

    def noted(self: ColumnOperator, *args: Any) -> None:
        if self._spec.name == "minutes":
            went.append(True)
        run_rows(self, *args)

    monkeypatch.setattr(ColumnOperator, "_run_rows", noted)
    folder = written(tmp_path, {"a": events(300, 1), "b": events(250, 2)})
    path = folder / "lists.yaml"
    text = PIPELINE.format(folder=folder, fields=FIELDS, windowing="", key="ad")
    path.write_text(
        text.replace("      most: {max: cost}\n", more, 1).replace("tumbling: 10s", window, 1)
    )
    found = []
    for rows in (False, True):
        made, operators = run_of(path, rows)
        assert {type(each) is ColumnOperator for each in operators} == {not rows}
        found.append(made)
    assert exact(found[0]) == exact(found[1])
    assert len(found[0]["minutes"]) > 10
    assert bool(went) == (most == 3000)


UNDECLARED: dict[str, list[Any]] = {
    "all of one kind": [],
    "a broken line": ["{no json"],
    "a field is missing": [{"ad": 1, "type": "view", "ts": 1_001_000}],
    "a whole number among floats": [{"ad": 1, "type": "view", "cost": 7, "ts": 1_002_000}],
    "only whole numbers for long": [
        {"ad": 2, "type": "view", "cost": n, "ts": 1_002_000 + n} for n in range(80)
    ],
    "a key of another kind": [{"ad": "x", "type": "view", "cost": 1.5, "ts": 1_002_000}],
    "text for a number": [{"ad": 1, "type": "view", "cost": "1.5", "ts": 1_002_000}],
    "a tiny float": [{"ad": 1, "type": "view", "cost": 1e-14, "ts": 1_002_000}],
    "a huge number that nobody needs": [
        '{"ad": 1, "type": "view", "cost": 1.5, "ts": 1002000, "other": 1e999}'
    ],
    "a time as text": [{"ad": 1, "type": "view", "cost": 1.5, "ts": "1970-01-01T00:16:42Z"}],
}


@pytest.mark.parametrize("form", ["columns", "guessed"])
def test_a_field_that_is_twice_in_a_key_goes_by_rows(tmp_path: Path, form: str) -> None:
    folder = written(tmp_path, {"a": events(60, 1)})
    found, _ = run_of(pipeline(folder, form == "columns", key="[ad, ad]"), False)
    assert exact(found) == exact(run_of(pipeline(folder, False, key="[ad, ad]"), True)[0])
    assert found["minutes"]


@pytest.mark.parametrize("key", ["ad", "[ad, type]"])
@pytest.mark.parametrize("odd", UNDECLARED.values(), ids=UNDECLARED)
def test_fields_that_nobody_declared_are_guessed_and_the_results_are_those_of_rows(
    tmp_path: Path, odd: list[Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []
    read_frame = SourceOperator._read_frame
    monkeypatch.setattr(
        SourceOperator, "_read_frame", lambda *args: read.append(read_frame(*args)) or read[-1]
    )
    small_reads(monkeypatch)
    went: list[bool] = []
    run_rows = ColumnOperator._run_rows
    monkeypatch.setattr(
        ColumnOperator, "_run_rows", lambda *args: went.append(True) or run_rows(*args)
    )
    first, second = events(300, 1), events(250, 2)
    folder = written(tmp_path, {"a": [*first[:150], *odd, *first[150:]], "b": second})
    guessed, rows = results(folder, "guessed", key), results(folder, "rows", key)
    assert guessed == rows
    assert odd or not went, "types that do not change stay in columns"
    assert sum(read) > 3, "most of the input is read as columns"
    assert len(rows["minutes"]) > 10


@pytest.mark.parametrize(
    ("declared", "key"), [(True, "ad"), (True, "[type, ad]"), (False, "ad")], ids=str
)
def test_a_crash_at_any_place_changes_nothing_also_where_types_are_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: bool, key: str
) -> None:
    if declared:
        monkeypatch.setattr(ReadSize, "note", lambda self, was_full: setattr(self, "bytes", 4096))
    else:
        small_reads(monkeypatch)
    folder = written(
        tmp_path, {"a": events(120, 3), "b": [*events(60, 4), "{no json", *events(60, 5)]}
    )
    path = pipeline(folder, declared, key=key)
    assert assert_survives_crashes(path, idle, every=19, run_sources=True) > 3


def test_pushed_rows_are_aggregated_on_columns_too(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, True)) as harness:
        harness.push(
            "events",
            [{"ad": 1, "type": "view", "cost": 0.5, "ts": 1_000}, {"ad": 1, "cost": "x", "ts": 1}],
        )
        harness.crash()
        harness.push("events", {"ad": 1, "type": "click", "cost": 0.25, "ts": 2_000})
        assert [(window.start, window.end) for window in harness.open_windows("minutes", 1)] == [
            (0, 10_000_000)
        ]
        assert harness.state("minutes", 1).keys() == {(0, 10_000_000)}
        harness.advance_watermark(10_000_000)
        [row] = harness.take("minutes")
        expected = {"ad": 1, "window_start": 0, "window_end": 10_000_000}
        assert row == {**expected, "views": 1, "spend": 0.75, "mean": 0.375, "most": 0.5}
        assert harness.counters["dead_letters"] == 1
        assert harness.state("minutes", 1) == {}


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
def test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once(
    tmp_path: Path, declared: bool
) -> None:
    """It is tried in columns, and then goes by rows."""
    with PipelineHarness(pipeline(tmp_path, declared)) as harness:
        harness.advance_watermark(10_000_000)
        tiny, bad, late = (
            {"cost": 2.0**-100, "ts": 11_000},
            {"ts": 12_000},
            {"cost": 1.0, "ts": 1_000},
        )
        harness.push("events", [{"ad": 1, "type": "view", **each} for each in (bad, late, tiny)])
        harness.advance_watermark(20_000_000)
        [row] = harness.take("minutes")
        assert row["spend"] == 2.0**-100
        assert (harness.counters["dead_letters"], harness.counters["late"]) == (1, 1)


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("function", ["min", "sum", "mean"])
def test_a_missing_field_is_a_dead_letter_whoever_counts_it(
    tmp_path: Path, declared: bool, function: str
) -> None:
    text = PIPELINE.format(
        folder=tmp_path, fields=FIELDS if declared else "", windowing="", key="ad"
    )
    text = text.replace("spend: {sum: cost}", "all: {count: cost}").replace(
        "mean: {mean: cost}", f"r: {{{function}: cost}}"
    )
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        text.replace("spend: {sum: spend}", "all: {sum: all}").replace(
            "      most: {max: cost}\n", ""
        )
    )
    with PipelineHarness(path) as harness:
        harness.push(
            "events",
            [{"ad": 1, "type": "view", "ts": 1}, {"ad": 1, "type": "view", "cost": 0.5, "ts": 1}],
        )
        harness.advance_watermark(10_000_000)
        [row] = harness.take("minutes")
        assert (row["views"], row["all"], row["r"]) == (1, 1, 0.5)
        assert harness.counters["dead_letters"] == 1


@pytest.mark.parametrize("steps", [[40], [15, 40], [10, 20, 30, 40]])
@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
def test_results_of_a_key_come_in_the_order_of_time_however_the_watermark_rises(
    tmp_path: Path, declared: bool, steps: list[int]
) -> None:
    with PipelineHarness(pipeline(tmp_path, declared)) as harness:
        for second in (21, 1, 35, 12, 2):
            harness.push("events", {"ad": 1, "type": "view", "cost": 0.5, "ts": second * 1_000})
        harness.crash()
        for second in steps:
            harness.advance_watermark(second * 1_000_000)
        assert [row["window_start"] // 1_000_000 for row in harness.take("minutes")] == [
            0,
            10,
            20,
            30,
        ]


def test_results_that_no_column_can_hold_come_in_the_order_of_time_too(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    text = PIPELINE.format(
        folder=tmp_path, fields=FIELDS.replace("cost: float", "cost: int"), windowing="", key="ad"
    )
    path.write_text(text)
    with PipelineHarness(path) as harness:
        for second in (21, 22, 1, 2, 12):
            harness.push("events", {"ad": 1, "type": "view", "cost": 2**62, "ts": second * 1_000})
        harness.advance_watermark(40_000_000)
        assert [row["window_start"] // 1_000_000 for row in harness.take("minutes")] == [0, 10, 20]


def test_a_result_that_cannot_be_carried_is_a_letter(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text("""
pipeline: p
streams:
  hits:
    source: {injection: {}}
    timestamp: at
    fields: {k: int, n: int, at: int}
    watermark: {max_delay: 0s, idle_after: never, max_future: never}
computations:
  sums:
    input: {hits: {key: k}}
    window: {tumbling: 10s}
    aggregate: {n: {sum: n}}
    then: {more: n * 16}
    output: sums
sinks: {sums: {stdout: {}}}
""")
    with PipelineHarness(str(path), shards=1) as harness:
        [shard] = harness._cluster.shards_of("sums")
        assert isinstance(shard.operator, ColumnOperator)
        harness.push("hits", [{"k": k, "n": n, "at": 5} for k, n in ((1, 3), (2, 2**60), (3, 4))])
        harness.finish()
        assert [(row["k"], row["more"]) for row in harness.read("sums")] == [(1, 48), (3, 64)]
        [letter] = harness.read("dead_letters")
    assert "cannot be carried" in letter["reason"]
