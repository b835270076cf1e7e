"""Consumers that take columns get them although another one needs whole records; the results stay
those of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.forms.sources import MadeColumns
from millwheel.core.expressions.inner_fields import inner_name
from millwheel.core.model.names import NodeName
from millwheel.core.model.records import Batch
from millwheel.engine.workers.delivery.beside import BesideColumns
from millwheel.engine.workers.host.assembly import Assembly, Factories
from millwheel.engine.workers.shard.admission import ShardLimits
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.testing import PipelineHarness
from millwheel.tools.testing import pipeline_harness as harness_module

PIPELINE = """pipeline: mixed
streams:
  hits:
    source: {files: {path: in, format: jsonl}}
    timestamp: at
    id: {field: id, horizon: 1h}
    watermark: {max_delay: 1s}
    FIELDS
computations:
  sums: {input: {hits: {key: k}}, window: {tumbling: 10s}, aggregate: {n: count,
    cost: {sum: cost}}, output: sums}
  all: {input: hits, filter: cost > 0, output: all}
sinks:
  sums: {files: {path: out}}
  all: {files: {path: out}}
"""
FIELDS = "fields: {at: int, k: str, id: str, cost: float}"
ROWS = [
    {"at": 10, "k": "a", "id": "1", "cost": 0.5, "more": [1]},
    {"at": 20, "k": "b", "id": "2", "cost": 1.0},
]


def beside(
    tmp_path: Path, fields: str = FIELDS, least: int = 1, text: str = PIPELINE
) -> BesideColumns:
    (tmp_path / "p.yaml").write_text(text.replace("FIELDS", fields))
    spec = load_pipeline(tmp_path / "p.yaml")
    outside = Factories(lambda *_: None, lambda *_: None)  # type: ignore[arg-type,return-value]
    made = Assembly(spec, "", None, outside, ShardLimits(columns_from=least))  # type: ignore[arg-type]
    form = made._sources.form_of(spec.stream("hits"))
    assert form.made is not None
    return made._sources.beside_of(spec.stream("hits"), form.made)


def batch(values: list[Any], **more: Any) -> Batch:
    count = len(values)
    ids = more.get("ids", [value.get("id") for value in values])
    return Batch(
        "hits",
        list(range(1, count + 1)),
        [value["at"] for value in values],
        ["p"] * count,
        values,
        ids,
        7,
    )


@pytest.mark.parametrize("fields", [FIELDS, ""])
def test_windows_get_columns_and_the_others_the_records_as_they_are(
    tmp_path: Path, fields: str
) -> None:
    found = beside(tmp_path, fields).split(batch(ROWS), (), None)
    assert found is not None
    by_node, refused = dict(found[0]), found[1]
    columns, rows = by_node[NodeName("sums")], by_node[NodeName("all")]
    assert not refused
    assert isinstance(columns, ColumnBatch)
    assert isinstance(rows, Batch)
    assert rows.values == ROWS
    assert (columns.keys.to_list(), columns.timestamps.tolist(), columns.seqs.tolist()) == (
        ["a", "b"],
        [10, 20],
        [1, 2],
    )
    assert columns.frame["cost"].to_list() == [0.5, 1.0]
    assert columns.ids is not None
    assert columns.ids.to_list() == ["1", "2"]


def test_late_records_are_in_neither(tmp_path: Path) -> None:
    found = beside(tmp_path).split(batch(ROWS), {0}, None)
    assert found is not None
    assert [list(np.asarray(each.timestamps)) for _, each in found[0]] == [[20], [20]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cost": 1},
        {"cost": None},
        {"cost": float("nan")},
        {"cost": "1"},
        {"k": 2},
        {"id": 2},
        {"id": [2]},
        {"id": 1.5},
    ],
)
@pytest.mark.parametrize("fields", [FIELDS, ""])
def test_a_read_with_a_record_that_does_not_fit_goes_as_rows(
    tmp_path: Path, fields: str, wrong: Any
) -> None:
    assert beside(tmp_path, fields).split(batch([ROWS[0], {**ROWS[1], **wrong}]), (), None) is None


def test_a_field_that_is_missing_or_a_number_that_is_too_large_goes_as_rows(tmp_path: Path) -> None:
    made = beside(tmp_path)
    assert made.split(batch([{"at": 1, "k": "a", "id": "x"}]), (), None) is None
    assert made.split(batch([{**ROWS[0], "id": 2**70}]), (), None) is None
    assert made.split(batch(ROWS, ids=[None, "2"]), (), None) is not None


def test_few_records_go_as_rows_and_what_never_fits_is_not_tried_for_ever(tmp_path: Path) -> None:
    assert beside(tmp_path, least=3).split(batch(ROWS), (), None) is None
    made, wrong = beside(tmp_path), batch([{**ROWS[0], "cost": "x"}])
    for _ in range(8):
        assert made.split(batch(ROWS), (), None) is not None
        assert made.split(wrong, (), None) is None
    for _ in range(8):
        assert made.split(wrong, (), None) is None
    assert made.split(batch(ROWS), (), None) is None


def test_fields_within_fields_are_in_records_of_their_own() -> None:
    names = {"at", inner_name("bid", "price"), inner_name("bid", "by", "name")}
    asked: list[Any] = []
    made = MadeColumns(
        frozenset({"sums"}), frozenset(names), lambda fields: not asked.append(fields)
    )
    columns = BesideColumns(made, {}, 1, None, None)  # type: ignore[arg-type]
    rows = [
        {"at": 1, "bid": {"price": 3, "by": {"name": "a", "age": 7}}, "other": [1]},
        {"at": 2, "bid": {"by": {"name": "b"}, "price": 5}},
    ]
    found = columns.columns(batch(rows, ids=None))
    assert found is not None
    assert [found.frame.to_dicts()[0].pop("bid"), found.frame.to_dicts()[1]] == [
        {"by": {"name": "a"}, "price": 3},
        {"at": 2, "bid": {"by": {"name": "b"}, "price": 5}},
    ]
    assert asked == [dict(zip(sorted(names), ("str", "int", "int"), strict=True))]
    for other in ({"at": 3, "bid": None}, {"at": 3, "bid": {"price": 1}}, {"at": 3, "bid": "x"}):
        assert columns.columns(batch([*rows, other], ids=None)) is None


def _whole(needs: frozenset[str] = frozenset(), fields: Any = ()) -> BesideColumns:
    made = MadeColumns(frozenset({"all"}), needs, lambda fields: True, whole=True)
    return BesideColumns(made, dict(fields), 1, None, None)  # type: ignore[arg-type]


def test_records_that_are_passed_on_have_all_of_their_fields_in_their_order() -> None:
    rows: list[Any] = [
        {"z": 1, "at": 10, "bid": {"price": 3, "by": {"name": "a"}}, "note": None},
        {"z": 2, "at": 20, "bid": {"price": None, "by": {"name": "b"}}, "note": "x"},
    ]
    found = _whole().columns(batch(rows, ids=None))
    assert found is not None
    assert [list(row.items()) for row in found.frame.to_dicts()] == [
        list(row.items()) for row in rows
    ]
    declared = _whole(fields={"at": "int", "z": "int"}).columns(batch(rows, ids=None))
    assert declared is not None
    assert declared.frame.columns == ["at", "z", "bid", "note"]


@pytest.mark.parametrize(
    "other",
    [
        {"z": 2, "at": 20},
        {"note": "x", "z": 2, "at": 20},
        {"z": 2, "at": 20, "note": "x", "more": 1},
        {"z": 2, "at": 20, "note": ["x"]},
        {"z": 2, "at": 20, "note": 1},
        {"z": 2, "at": 20, "note": {}},
        {"z": 2, "at": 20, "note": {"a": 1}},
        {"z": None, "at": 20, "note": "x"},
        ["z", "at", "note"],
    ],
)
def test_records_that_are_passed_on_and_not_alike_go_as_rows(other: Any) -> None:
    rows: list[Any] = [{"z": 1, "at": 10, "note": "x"}, other]
    held = Batch("hits", [1, 2], [10, 20], ["p"] * 2, rows, None, 7)
    assert _whole(frozenset({"z"})).columns(held) is None


@pytest.mark.parametrize("name", ["*", "^a$", "__retraction__", inner_name("bid", "price")])
def test_a_name_that_no_column_can_have_is_passed_on_in_rows(name: str) -> None:
    assert _whole().columns(batch([{"at": 1, name: 1}], ids=None)) is None


def test_what_is_passed_on_and_what_is_read_are_columns_of_their_own(tmp_path: Path) -> None:
    # a filter that takes the key as it comes names records by their ids
    made = beside(tmp_path, "", text=PIPELINE.replace("input: hits,", "input: {hits: {key: k}},"))
    alike = [{**row, "more": "x"} for row in ROWS]
    by_node = dict((made.split(batch(alike), (), None) or ([], []))[0])
    whole, few = by_node[NodeName("all")], by_node[NodeName("sums")]
    assert isinstance(whole, ColumnBatch)
    assert isinstance(few, ColumnBatch)
    assert whole.frame.columns == ["at", "k", "id", "cost", "more"]
    assert few.frame.columns == ["cost", "k"]
    by_node = dict((made.split(batch(ROWS), (), None) or ([], []))[0])
    assert isinstance(by_node[NodeName("all")], Batch)
    assert isinstance(by_node[NodeName("sums")], ColumnBatch)


def test_types_that_no_consumer_can_use_are_no_columns() -> None:
    made = MadeColumns(
        frozenset({"sums"}), frozenset({"k"}), lambda fields: fields != {"k": "bool"}
    )
    columns = BesideColumns(made, {}, 1, None, None)  # type: ignore[arg-type]
    assert columns.columns(batch([{"at": 1, "k": True}], ids=None)) is None
    assert columns.columns(batch([{"at": 1, "k": "a"}], ids=None)) is not None


@pytest.mark.parametrize("fields", [FIELDS, ""])
def test_the_results_are_those_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str
) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE.replace("FIELDS", fields))
    hits = [
        {"at": n * 400_000, "k": "abc"[n % 3], "id": str(n % 90), "cost": n / 7} for n in range(100)
    ]
    hits[50]["cost"] = 3  # one read goes as rows
    told = []
    for least in (1, 1_000_000):
        limits = ShardLimits(settle_us=0, gather_us=0, columns_from=least)
        monkeypatch.setattr(harness_module, "ShardLimits", lambda limits=limits, **more: limits)
        with PipelineHarness(tmp_path / "p.yaml") as harness:
            for first in range(0, 100, 20):
                harness.push("hits", hits[first : first + 20])
            harness.crash()
            harness.finish()
            rows = sorted(map(repr, harness.take("sums")))
            told.append((rows, sorted(map(repr, harness.take("all"))), harness.counters_of("sums")))
    assert told[0] == told[1]
