"""Which records columns keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.record_entries import ranks_of
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.plan import ColumnPlan
from millwheel.core.expressions.language import compile_expression
from millwheel.core.rows.columns import first_rows_or_why
from millwheel.core.rows.kept_records import KeptRecords
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: at
    fields: {item: int, cents: float, who: str, at: int}
computations:
  best: {input: {bids: {key: item}}, top: {by: cents, k: 3}, output: best}
"""
FIELDS = {"item": "int", "cents": "float", "who": "str", "at": "int"}


@pytest.fixture
def records(tmp_path: Path) -> KeptRecords:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    spec = load_pipeline(tmp_path / "p.yaml")
    plan = first_rows_or_why(spec.computations[0], spec, compile_expression)
    assert isinstance(plan, ColumnPlan)
    return KeptRecords(plan, FIELDS, 10_000)


def row(item: Any = 1, cents: Any = 2.5, who: Any = "a", **more: Any) -> dict[str, Any]:
    return {"item": item, "cents": cents, "who": who, "at": 7, **more}


def test_records_in_rows_go_in_columns_if_these_hold_them_exactly(records: KeptRecords) -> None:
    values = [
        row(),
        row(cents=2),
        row(cents=float("nan")),
        row(who=None),
        row(item=2**63),
        row(more=1),
        "text",
        row(who=3),
    ]
    keys = [1, 1, 1, 1, 2**63, 1, 1, 1]
    batch, inside = records.in_columns("bids", keys, values, [7] * len(values))
    assert inside.tolist() == [True, False, False, True, False, False, False, False]
    assert batch.frame.to_dicts() == [row(), row(who=None)]
    assert batch.keys.to_list() == [1, 1]


def test_nulls_that_are_read_and_large_records_go_by_rows(records: KeptRecords) -> None:
    frame = pl.DataFrame(
        [row(), row(cents=None), row(who="x" * 200), row(cents=float("inf"))],
        {"item": pl.Int64, "cents": pl.Float64, "who": pl.String, "at": pl.Int64},
    )
    batch = ColumnBatch("bids", np.array([], np.int64), np.full(4, 7), frame["item"], frame)
    assert records.clean(batch, None, 300).tolist() == [True, False, False, False]
    kept = pl.Struct(dict(frame.schema))
    assert records.clean(batch, kept, 3_000).tolist() == [True, False, True, False]
    with pytest.raises(Inexact):
        records.clean(batch, pl.Struct({"item": pl.Int64}), 3_000)


def test_ranks_begin_with_each_code() -> None:
    assert ranks_of(np.array([0, 0, 1, 2, 2, 2])).tolist() == [0, 1, 0, 0, 1, 2]
