"""Batches of change logs in columns: their rows are brought, or taken back."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.changes import are_retractions, narrowed, retractions_of
from millwheel.core.windows.panes import RETRACTION_FIELD, retracted

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


def test_a_consumer_gets_what_it_looks_at() -> None:
    bids = pl.DataFrame({"price": [3, 4], "url": ["a", "b"]}).to_struct("bid")
    frame = pl.DataFrame([ROWS["a"], ROWS["n"], bids])
    found = narrowed(frame, ["a", "\0.bid.price", RETRACTION_FIELD])
    assert found.to_dicts() == [{"a": 1, "bid": {"price": 3}}, {"a": 2, "bid": {"price": 4}}]
    back = narrowed(retractions_of(frame), ["a", RETRACTION_FIELD])
    assert back.to_dicts() == [{"a": 1, RETRACTION_FIELD: 1}, {"a": 2, RETRACTION_FIELD: 1}]
