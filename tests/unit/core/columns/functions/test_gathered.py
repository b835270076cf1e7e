"""What columns gather, the row form takes: its accumulator is the one that single records give."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.columns.aggregates import column_aggregate
from millwheel.core.columns.expressions import NoColumns
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregateSpec
from tests.unit.core.columns.functions.test_lists import VALUES, acc_of_rows, both_bundles, made_of

SPEC = AggregateSpec("x", "approx_count_distinct", "f")


@pytest.mark.parametrize("kind", ["int", "float", "str"])
@given(data=st.data())
def test_the_estimate_is_that_of_single_records(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    row = both_bundles(made_of(SPEC, kind), kind, values, data.draw(st.integers(0, 12)))
    result = make_aggregator("approx_count_distinct", {}, None).result
    assert result(made_of(SPEC, kind).to_acc(row)) == result(acc_of_rows(SPEC, values))


@pytest.mark.parametrize(
    ("function", "kind", "options"),
    [
        ("first", "int", {}),
        ("collect", "str", {}),
        ("quantile", "str", {"q": 0.5}),
        ("count_distinct", "bool", {}),
        ("stddev", "str", {}),
    ],
)
def test_other_functions_and_fields_have_no_such_form(function: str, kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(NoColumns):
        column_aggregate(AggregateSpec("x", function, "f", options=options), "a0", {"f": kind}, compile_expression)


def test_the_state_stays_in_rows() -> None:
    made = made_of(SPEC, "int")
    assert not made.holds
    with pytest.raises(Unfit):
        made.from_acc(b"")
    with pytest.raises(Unfit):
        made.result(pl.DataFrame())
