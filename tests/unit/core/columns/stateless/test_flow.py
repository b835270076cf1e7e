"""Types of streams follow from the expressions that make their fields."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.changes import are_retractions, retractions_of
from millwheel.core.columns.stateless.flow import follows_types, types_of
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import PipelineSpec
from millwheel.core.windows.panes import RETRACTION_FIELD, retracted
from millwheel.language.spec import load_pipeline

PIPELINE = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: {field: at, unit: us}
    fields: {at: int, auction: int, price: float, url: str}
  bare:
    source: {files: {path: in, format: jsonl}}
    timestamp: {field: at, unit: us}
computations:
  made: {input: bids, map: {auction: auction, price: "price * 2", n: "len(url)"}, output: made}
  again: {input: made, filter: n > 1, map: {ratio: "n / auction", big: "n > 3"}, output: again}
  kept: {input: made, filter: n > 1, output: kept}
  ways: {input: kept, branch: {few: n < 3, many: otherwise}}
  passed: {input: bids, filter: auction > 1, output: passed}
  unknown: {input: bare, map: {auction: auction}, output: unknown}
  counts: {input: {made: {key: auction}}, window: {tumbling: 10s}, aggregate: {n: count},
    output: counts}
  one: {input: made, map: {x: auction}, output: both}
  other: {input: made, map: {x: price}, output: both}
"""


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    return load_pipeline(tmp_path / "p.yaml")


MADE = {"auction": "int", "price": "float", "n": "int"}


@pytest.mark.parametrize(
    ("stream", "types"),
    [
        ("bids", {"at": "int", "auction": "int", "price": "float", "url": "str"}),
        ("made", MADE),
        ("again", {"ratio": "float", "big": "bool"}),
        ("kept", MADE),
        ("few", MADE),
        ("many", MADE),
        ("passed", {}),  # with fields that nobody has declared
        ("bare", {}),
        ("unknown", {}),
        ("counts", {}),
        ("both", {}),
        ("dead_letters", {}),
    ],
)
def test_types_follow_from_expressions(
    spec: PipelineSpec, stream: str, types: dict[str, str]
) -> None:
    assert types_of(stream, spec, compile_expression) == types


def test_types_of_sources_are_those_that_are_declared(spec: PipelineSpec) -> None:
    assert not follows_types("bids", spec)
    assert not follows_types("bare", spec)
    assert follows_types("made", spec)


# changes.py: Batches of change logs in columns.

ROWS = pl.DataFrame({"a": [1, 2], "n": ["x", None]})


def batch(frame: pl.DataFrame) -> ColumnBatch:
    none = np.array([], np.int64)
    return ColumnBatch("s", none, np.arange(frame.height), frame["a"], frame)


def test_rows_are_taken_back_in_columns_as_in_rows() -> None:
    back = batch(retractions_of(ROWS))
    assert back.rows().values == [retracted(row) for row in ROWS.to_dicts()]
    assert are_retractions(back) is True
    assert are_retractions(batch(ROWS)) is False
    assert are_retractions(batch(retractions_of(ROWS.clear()))) is True


@pytest.mark.parametrize("marks", [[1, None], [1, 2], ["1", "1"]])
def test_each_record_is_asked_where_a_source_has_marked_them(marks: list[object]) -> None:
    frame = ROWS.with_columns(pl.Series(RETRACTION_FIELD, marks))
    assert are_retractions(batch(frame)) is None
