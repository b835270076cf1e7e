"""What is made of results over columns is what is made of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.results import shown_by
from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.results import ResultColumns, why_results_in_rows
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec, WindowSpec
from millwheel.errors import RecordError


def spec(**fields: Any) -> ComputationSpec:
    work = AggregationSpec(window=WindowSpec("tumbling"), **fields)
    return ComputationSpec("c", (), ("out", "copy"), work=work)


def results(rows: list[dict[str, Any]]) -> ColumnBatch:
    schema = {"k": pl.String, "n": pl.Int64, "most": pl.Float64, "all": pl.List(pl.Int64)}
    frame, stamps = pl.DataFrame(rows, schema), np.arange(len(rows))
    return ColumnBatch("", np.array([], np.int64), stamps, frame["k"], frame)


ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b"]),
        "n": st.integers(-2, 3) | st.just(2**62),
        "most": st.none() | st.sampled_from([0.5, -0.0, 1e300]),
        "all": st.just([1, 2]),
    }
).map(lambda row: {name: row[name] for name in ("k", "n", "most", "all")})


@pytest.mark.parametrize(
    "fields",
    [
        {"then": {"mean": "most / n", "twice": "mean * 2"}, "having": "twice < 1"},
        {"then": {"more": "n * 4", "same": "most", "one": "1"}},
        {"having": "most != null"},
        {"having": "n > 0 and k == 'a'"},
    ],
)
@given(st.lists(ROWS, max_size=6))
@settings(deadline=None, max_examples=50)
def test_what_fits_is_shown_as_in_rows(fields: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    passed = ResultColumns(spec(**fields), compile_expression).passed(results(rows))
    assert passed is not None
    shown = shown_by(spec(**fields), compile_expression)
    for_rows = {*passed.for_rows.tolist()}
    want = [(at, shown(dict(row))) for at, row in enumerate(rows) if at not in for_rows]
    for stream in ("out", "copy"):
        found = [
            (at, row)
            for part in passed.parts
            if part.stream == stream
            for at, row in zip(part.timestamps.tolist(), part.frame.to_dicts(), strict=True)
        ]
        assert repr(found) == repr([(at, row) for at, row in want if row is not None])


def test_a_result_of_which_nothing_can_be_made_does_not_fit() -> None:
    made = spec(then={"mean": "most / n"})
    rows = [{"k": "a", "n": n, "most": 1.0, "all": []} for n in (1, 0, 2)]
    passed = ResultColumns(made, compile_expression).passed(results(rows))
    assert passed is not None
    assert passed.for_rows.tolist() == [1]
    with pytest.raises(RecordError):
        shown_by(made, compile_expression)(rows[1])


def test_what_has_no_column_form_is_made_of_each() -> None:
    columns = ResultColumns(spec(then={"square": "n ** 2"}), compile_expression)
    assert columns.passed(results([])) is None
    assert "`n ** 2`" in why_results_in_rows(spec(then={"square": "n ** 2"}), compile_expression)
    assert not why_results_in_rows(spec(having="n > 2"), compile_expression)
    assert not why_results_in_rows(spec(), compile_expression)
    # of a list only rows know the length, but only the types tell
    columns = ResultColumns(spec(having="len(all) > 1"), compile_expression)
    assert columns.passed(results([])) is None


def test_all_are_looked_at_where_one_that_does_not_fit_is_shown() -> None:
    rows = [{"k": "a", "n": n, "most": 1.0, "all": []} for n in (1, 2**62)]
    with pytest.raises(Inexact):
        ResultColumns(spec(then={"more": "n * 4"}), compile_expression).shown(results(rows))
    rows[1]["n"] = 0
    made = ResultColumns(spec(then={"mean": "most / n"}), compile_expression)
    parts, letters = made.shown(results(rows))
    assert [part.frame["mean"].to_list() for part in parts] == [[1.0], [1.0]]
    assert letters.tolist() == [1]
    parts, letters = ResultColumns(spec(), compile_expression).shown(results(rows))
    assert [(part.stream, len(part)) for part in parts] == [("out", 2), ("copy", 2)]
    assert not len(letters)
