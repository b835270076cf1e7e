"""Aggregations on columns in the real runtime: the rows are those of the row form, whatever the input and the crash."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.forms import plans_by_type
from millwheel.core.columns.state.inferred import PlansByType
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import windowing_from_spec
from millwheel.core.model.names import ChannelName, NodeName
from millwheel.core.model.ranges import KeyRange
from millwheel.core.model.records import Domain
from millwheel.core.model.timers import TimerQueue
from millwheel.core.pipeline.spec import AggregateSpec
from millwheel.core.windows.windows import Window
from millwheel.sources.files.lines import LineReader
from millwheel.testing import PipelineHarness, assert_survives_crashes
from millwheel.workers.bundle.bundle import Bundle
from millwheel.workers.delivery.combining import ConsumerGroups
from millwheel.workers.delivery.inbox import Arrival
from millwheel.workers.host.assembly import Assembly
from millwheel.workers.operators import columns
from millwheel.workers.operators.columns import ColumnOperator
from millwheel.workers.operators.grouped import GroupedOperator
from millwheel.workers.operators.windowed import WindowedOperator
from millwheel.workers.shard.bundle_sizes import ShardLimits
from millwheel.workers.sources.frames import ReadSize
from millwheel.workers.sources.source import SourceOperator
from millwheel.workers.state.column_segments import ColumnShard, segment_entry, segments_within
from millwheel.workers.state.overlay import Overlay
from tests.fakes.plain_storage import SimStore
from tests.unit.core.columns.test_windows import Row, batch_of, spec_of

PIPELINE = """
pipeline: columns
streams:
  events:
    source: {{files: {{path: "{folder}/*.jsonl", format: jsonl}}}}
    timestamp: {{field: ts, unit: ms}}
    {fields}
    watermark: {{max_delay: 3s, max_future: null}}
computations:
  minutes:
    input: {{events: {{key: {key}}}}}
    window: {{tumbling: 10s}}
    {windowing}
    aggregate:
      views: {{count: {{where: "type == 'view'"}}}}
      spend: {{sum: cost}}
      mean: {{mean: cost}}
      most: {{max: cost}}
    output: minutes
  totals:
    input: {{minutes: {{key: {key}}}}}
    window: {{tumbling: 1m}}
    aggregate: {{rows: count, spend: {{sum: spend}}}}
    output: totals
"""
FIELDS = "fields: {ad: int, type: str, cost: float, ts: int}"


def events(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "ad": min(int(rng.expovariate(0.4)), 9),
            "type": rng.choice(["view", "click"]),
            "cost": round(rng.lognormvariate(0, 1), 3),
            "ts": 1_000_000 + index * 40 + rng.randrange(-4_000, 4_000),
            "other": "x" * rng.randrange(5),
        }
        for index in range(count)
    ]


def written(folder: Path, files: Mapping[str, list[Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def pipeline(folder: Path, declared: bool, windowing: str = "", key: str = "ad") -> str:
    path = folder / f"pipeline-{declared}.yaml"
    path.write_text(PIPELINE.format(folder=folder, fields=FIELDS if declared else "", windowing=windowing, key=key))
    return str(path)


@contextmanager
def in_rows(wanted: bool = True) -> Iterator[None]:
    """Within it no computation has a column plan, whatever its fields."""
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(Assembly, "_column_plan", lambda self, computation: None)
        yield


def results(folder: Path, form: str, key: str = "ad", **options: Any) -> dict[str, Any]:
    """In ``columns``, in ``rows``, or in columns whose types are ``guessed``."""
    path = pipeline(folder, form == "columns", key=key)
    with in_rows(form == "rows"), PipelineHarness(path, run_sources=True, **options) as harness:
        harness.advance_processing_time(10**9)
        kinds = {type(shard.operator) for shard in harness._cluster.shards_of("minutes")}
        assert kinds == {WindowedOperator if form == "rows" else ColumnOperator}
        rows = {name: sorted(map(json.dumps, harness.read(name))) for name in ("minutes", "totals", "dead_letters")}
        return {**rows, "counters": harness.counters}


DIRTY: dict[str, list[Any]] = {
    "clean": [],
    "a broken line": ["{no json"],
    "a missing cost": [{"ad": 1, "type": "view", "ts": 1_001_000}],
    "no time": [{"ad": 1, "type": "view", "cost": 1.0}],
    "a whole cost": [{"ad": 1, "type": "view", "cost": 7, "ts": 1_002_000}],
    "a tiny cost": [{"ad": 1, "type": "view", "cost": 1e-14, "ts": 1_002_000}],
    "a huge cost": [{"ad": 1, "type": "view", "cost": 1e25, "ts": 1_002_000}],
}


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
    "a square beyond 64 bits": [{"ad": 1, "type": "click", "cost": 1.0, "size": 2**40, "ts": 1_002_000}],
    "no size": [{"ad": 1, "type": "click", "cost": 1.0, "size": None, "ts": 1_002_000}],
    "a revenue beyond all floats": [{"ad": 1, "type": "click", "cost": 1e308, "size": 9, "ts": 1_002_000}],
}


@pytest.mark.parametrize(
    "window", ["tumbling: 10s", "sliding: 20s, every: 10s", "cumulative: 20s, every: 10s", "session: 2s"]
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
        folder=folder, fields=FIELDS.replace("ts: int", "ts: int, size: int"), windowing="", key="ad"
    )
    text = text.replace("      most: {max: cost}\n", CALCULATIONS).replace("tumbling: 10s", window, 1)

    def said(row: dict[str, Any]) -> str:
        """Rows without a plan do not know that the sum of no floats is one, too."""
        return json.dumps({**row, "paid": float(row["paid"])} if "paid" in row else row)

    def found(text: str, form: type, rows: bool) -> dict[str, Any]:
        path.write_text(text)
        with in_rows(rows), PipelineHarness(str(path), run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            assert {type(shard.operator) for shard in harness._cluster.shards_of("minutes")} == {form}
            read = {name: sorted(map(said, harness.read(name))) for name in ("minutes", "dead_letters")}
            return {**read, "counters": harness.counters}

    expected = found(text, WindowedOperator, rows=True)
    form = GroupedOperator if window.startswith("cumulative") else ColumnOperator
    assert found(text, form, rows=False) == expected
    several = text.replace("stddev", "approx_count_distinct")
    assert found(several, GroupedOperator, rows=False) == found(several, WindowedOperator, rows=True)
    assert len(expected["minutes"]) > 10


LISTS = """
      kinds: {count_distinct: type}
      costs: {count_distinct: {of: cost, where: "type == 'view'"}}
      half: {quantile: {of: "cost - 1", where: "type == 'view'"}, q: 0.5}
"""
LONG_LISTS = """
      shares: {quantiles: cost, q: [0.1, 0.9]}
      best: {top_k: cost, k: 2}
"""


@pytest.mark.parametrize("most", [columns.MOST_BYTES, 3000], ids=["in columns", "too much for columns"])
@pytest.mark.parametrize("window", ["tumbling: 10s", "sliding: 20s, every: 10s", "session: 2s"])
@pytest.mark.parametrize("more", [LISTS, LISTS + LONG_LISTS], ids=["numbers", "lists"])
def test_values_and_bins_in_columns_are_those_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, window: str, more: str
) -> None:
    monkeypatch.setattr(columns, "MOST_BYTES", most)
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=20))
    by_bytes = LineReader.read_frame
    monkeypatch.setattr(LineReader, "read_frame", lambda self, position, most: by_bytes(self, position, 4096))
    went: list[bool] = []
    go_on = ColumnOperator._go_on_in_rows

    def noted(self: ColumnOperator, bundle: Bundle) -> None:
        if self._spec.name == "minutes":
            went.append(True)
        go_on(self, bundle)

    monkeypatch.setattr(ColumnOperator, "_go_on_in_rows", noted)
    folder = written(tmp_path, {"a": events(300, 1), "b": events(250, 2)})
    path = folder / "lists.yaml"
    text = PIPELINE.format(folder=folder, fields=FIELDS, windowing="", key="ad")
    path.write_text(text.replace("      most: {max: cost}\n", more, 1).replace("tumbling: 10s", window, 1))
    found = []
    for rows in (False, True):
        with in_rows(rows), PipelineHarness(str(path), run_sources=True) as harness:
            harness.advance_processing_time(10**9)
            [form] = {type(shard.operator) for shard in harness._cluster.shards_of("minutes")}
            assert (form is ColumnOperator) == (not rows)
            found.append({"minutes": sorted(map(json.dumps, harness.read("minutes"))), "counters": harness.counters})
    assert found[0] == found[1]
    assert len(found[0]["minutes"]) > 10
    assert bool(went) == (most == 3000)


UNDECLARED: dict[str, list[Any]] = {
    "all of one kind": [],
    "a broken line": ["{no json"],
    "a field is missing": [{"ad": 1, "type": "view", "ts": 1_001_000}],
    "a whole number among floats": [{"ad": 1, "type": "view", "cost": 7, "ts": 1_002_000}],
    "only whole numbers for long": [{"ad": 2, "type": "view", "cost": n, "ts": 1_002_000 + n} for n in range(80)],
    "a key of another kind": [{"ad": "x", "type": "view", "cost": 1.5, "ts": 1_002_000}],
    "text for a number": [{"ad": 1, "type": "view", "cost": "1.5", "ts": 1_002_000}],
    "a tiny float": [{"ad": 1, "type": "view", "cost": 1e-14, "ts": 1_002_000}],
    "a huge number that nobody needs": ['{"ad": 1, "type": "view", "cost": 1.5, "ts": 1002000, "other": 1e999}'],
    "a time as text": [{"ad": 1, "type": "view", "cost": 1.5, "ts": "1970-01-01T00:16:42Z"}],
}


@pytest.mark.parametrize("form", ["columns", "guessed"])
def test_a_field_that_is_twice_in_a_key_goes_by_rows(tmp_path: Path, form: str) -> None:
    folder = written(tmp_path, {"a": events(60, 1)})
    with PipelineHarness(pipeline(folder, form == "columns", key="[ad, ad]"), run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        found = harness.read("minutes")
    with in_rows(), PipelineHarness(pipeline(folder, False, key="[ad, ad]"), run_sources=True) as harness:
        harness.advance_processing_time(10**9)
        assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, harness.read("minutes")))
    assert found


@pytest.mark.parametrize("key", ["ad", "[ad, type]"])
@pytest.mark.parametrize("odd", UNDECLARED.values(), ids=UNDECLARED)
def test_fields_that_nobody_declared_are_guessed_and_the_results_are_those_of_rows(
    tmp_path: Path, odd: list[Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bool] = []
    read_frame = SourceOperator._read_frame
    monkeypatch.setattr(SourceOperator, "_read_frame", lambda *args: read.append(read_frame(*args)) or read[-1])
    by_bytes = LineReader.read_frame
    monkeypatch.setattr(LineReader, "read_frame", lambda self, position, most: by_bytes(self, position, 4096))
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=20))
    went: list[bool] = []
    go_on = ColumnOperator._go_on_in_rows
    monkeypatch.setattr(ColumnOperator, "_go_on_in_rows", lambda *args: went.append(True) or go_on(*args))
    first, second = events(300, 1), events(250, 2)
    folder = written(tmp_path, {"a": [*first[:150], *odd, *first[150:]], "b": second})
    guessed, rows = results(folder, "guessed", key), results(folder, "rows", key)
    assert guessed == rows
    assert odd or not went, "types that do not change stay in columns"
    assert sum(read) > 3, "most of the input is read as columns"
    assert len(rows["minutes"]) > 10


@pytest.mark.parametrize("key", ["ad", "[type, ad]"])
def test_a_crash_at_any_place_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr(ReadSize, "told", lambda self, was_full: setattr(self, "bytes", 4096))
    folder = written(tmp_path, {"a": events(120, 3), "b": [*events(60, 4), "{no json", *events(60, 5)]})

    def story(harness: PipelineHarness) -> None:
        harness.advance_processing_time(10**9)

    assert assert_survives_crashes(pipeline(folder, True, key=key), story, every=3, run_sources=True) > 10


def test_a_crash_at_any_place_changes_nothing_where_types_are_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_bytes = LineReader.read_frame
    monkeypatch.setattr(LineReader, "read_frame", lambda self, position, most: by_bytes(self, position, 4096))
    monkeypatch.setattr(ShardLimits, "__init__", partialmethod(ShardLimits.__init__, bundle=20))
    folder = written(tmp_path, {"a": events(120, 3), "b": [*events(60, 4), "{no json", *events(60, 5)]})

    def story(harness: PipelineHarness) -> None:
        harness.advance_processing_time(10**9)

    assert assert_survives_crashes(pipeline(folder, False), story, every=3, run_sources=True) > 10


def test_pushed_rows_are_aggregated_on_columns_too(tmp_path: Path) -> None:
    with PipelineHarness(pipeline(tmp_path, True)) as harness:
        harness.push("events", [{"ad": 1, "type": "view", "cost": 0.5, "ts": 1_000}, {"ad": 1, "cost": "x", "ts": 1}])
        harness.crash()
        harness.push("events", {"ad": 1, "type": "click", "cost": 0.25, "ts": 2_000})
        assert [(window.start, window.end) for window in harness.open_windows("minutes", 1)] == [(0, 10_000_000)]
        assert harness.state("minutes", 1).keys() == {(0, 10_000_000)}
        harness.advance_watermark(10_000_000)
        [row] = harness.take("minutes")
        expected = {"ad": 1, "window_start": 0, "window_end": 10_000_000}
        assert row == {**expected, "views": 1, "spend": 0.75, "mean": 0.375, "most": 0.5}
        assert harness.counters["dead_letters"] == 1
        assert harness.state("minutes", 1) == {}


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
def test_a_bundle_that_no_column_can_hold_has_its_dead_letters_once(tmp_path: Path, declared: bool) -> None:
    """It is tried in columns, and then goes by rows."""
    with PipelineHarness(pipeline(tmp_path, declared)) as harness:
        harness.advance_watermark(10_000_000)
        tiny, bad, late = {"cost": 2.0**-100, "ts": 11_000}, {"ts": 12_000}, {"cost": 1.0, "ts": 1_000}
        harness.push("events", [{"ad": 1, "type": "view", **each} for each in (bad, late, tiny)])
        harness.advance_watermark(20_000_000)
        [row] = harness.take("minutes")
        assert row["spend"] == 2.0**-100
        assert (harness.counters["dead_letters"], harness.counters["late"]) == (1, 1)


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("function", ["min", "sum", "mean"])
def test_a_missing_field_is_a_dead_letter_whoever_counts_it(tmp_path: Path, declared: bool, function: str) -> None:
    text = PIPELINE.format(folder=tmp_path, fields=FIELDS if declared else "", windowing="", key="ad")
    text = text.replace("spend: {sum: cost}", "all: {count: cost}").replace(
        "mean: {mean: cost}", f"r: {{{function}: cost}}"
    )
    path = tmp_path / "pipeline.yaml"
    path.write_text(text.replace("spend: {sum: spend}", "all: {sum: all}").replace("      most: {max: cost}\n", ""))
    with PipelineHarness(path) as harness:
        harness.push("events", [{"ad": 1, "type": "view", "ts": 1}, {"ad": 1, "type": "view", "cost": 0.5, "ts": 1}])
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
        assert [row["window_start"] // 1_000_000 for row in harness.take("minutes")] == [0, 10, 20, 30]


def test_results_that_no_column_can_hold_come_in_the_order_of_time_too(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    text = PIPELINE.format(folder=tmp_path, fields=FIELDS.replace("cost: float", "cost: int"), windowing="", key="ad")
    path.write_text(text)
    with PipelineHarness(path) as harness:
        for second in (21, 22, 1, 2, 12):
            harness.push("events", {"ad": 1, "type": "view", "cost": 2**62, "ts": second * 1_000})
        harness.advance_watermark(40_000_000)
        assert [row["window_start"] // 1_000_000 for row in harness.take("minutes")] == [0, 10, 20]


def undeclared(store: dict[bytes, bytes], aggregates: tuple[AggregateSpec, ...]) -> tuple[ColumnOperator, Overlay]:
    """The operator of a shard of a computation whose input declares no fields."""
    spec, given_pipeline = spec_of(aggregates=aggregates)
    plans = plans_by_type(spec, windowing_from_spec(spec), compile_expression)
    assert isinstance(plans, PlansByType)
    overlay = Overlay(SimStore(store))
    rows = GroupedOperator(spec, given_pipeline, plans, overlay, lambda stream, values: values, 100)
    shard = ColumnShard("shard", SimStore(store), 0)
    return ColumnOperator(spec, plans, shard, rows, lambda stream, values: values), overlay


def run_bundle(operator: ColumnOperator, overlay: Overlay, batch: ColumnBatch | None, watermark: int) -> Bundle:
    timers = {domain: TimerQueue(domain) for domain in Domain}
    arrivals = [Arrival(ChannelName("c"), 1, 0, batch, None, 0)] if batch is not None else []
    bundle = Bundle(1, 0, watermark, arrivals, overlay, timers)
    operator.run(bundle)
    return bundle


def test_shards_that_met_different_types_go_on_in_rows_when_they_are_merged() -> None:
    aggregates = (AggregateSpec("spend", "sum", "cost"), AggregateSpec("most", "max", "cost"))
    merged: dict[bytes, bytes] = {}
    for number, (ad, dtype) in enumerate([(1, pl.Int64), (2, pl.Float64)]):
        store: dict[bytes, bytes] = {}
        operator, overlay = undeclared(store, aggregates)
        batch = batch_of([Row(ad, "click", 2.0, 1, 5), Row(ad, "click", 3.0, 1, 6)])
        run_bundle(operator, overlay, replace(batch, frame=batch.frame.with_columns(pl.col("cost").cast(dtype))), 0)
        store.update(overlay.take()[0])
        [segment] = segments_within(SimStore(store), KeyRange(0, 2**64), 0)
        assert dict(segment.types) == {"ad": "int", "cost": "int" if dtype == pl.Int64 else "float"}
        merged.update([segment_entry("shard", number, segment)])
    operator, overlay = undeclared(merged, aggregates)
    assert operator.wakes_at(0) == 0
    assert operator.due_at() == 9
    run_bundle(operator, overlay, None, 0)
    assert not operator._windows
    assert operator.open_windows(1) == operator.open_windows(2) == [Window(0, 10)]


def groups_in_columns(operator: ColumnOperator, batch: ColumnBatch) -> ColumnBatch:
    """What a source makes of records for this computation."""
    assert operator._by_type is not None
    plan = operator._by_type.of(batch)
    assert plan is not None
    found = ConsumerGroups(operator._by_type, None).groups(NodeName(operator._spec.name), batch)
    assert isinstance(found, ColumnBatch)
    return found


@pytest.mark.parametrize("combined", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("dtypes", [(pl.Int64, pl.Float64), (pl.Float64, pl.Int64), (pl.Float64, pl.Float64)])
def test_groups_of_other_types_than_the_open_windows_go_on_in_rows(
    dtypes: tuple[Any, Any], combined: tuple[bool, bool]
) -> None:
    aggregates = (AggregateSpec("spend", "sum", "cost"), AggregateSpec("most", "max", "cost"))
    operator, overlay = undeclared({}, aggregates)
    for dtype, grouped in zip(dtypes, combined, strict=True):
        batch = batch_of([Row(1, "click", 2.0, 1, 5), Row(2, "click", 3.0, 1, 6)])
        batch = replace(batch, frame=batch.frame.with_columns(pl.col("cost").cast(dtype)))
        run_bundle(operator, overlay, groups_in_columns(operator, batch) if grouped else batch, 0)
    assert operator._in_rows == (dtypes[0] != dtypes[1])
    if not operator._in_rows:
        assert dict(operator._windows.types)["cost"] == "float"
        return
    overlay.take()
    answered = [operator._rows._cells.load(key, Window(0, 10)) for key in (1, 2)]
    assert all(answered), "each window is in rows"
