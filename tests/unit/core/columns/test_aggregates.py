"""Aggregates in columns, and the accumulators of the row form."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.columns.aggregates import column_aggregate
from millwheel.core.columns.expressions import NoColumns
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregateSpec
from tests.unit.core.columns.test_windows import Row, batch_of, plan_of


def test_a_sum_beyond_64_bits_is_noticed_and_kept_exactly() -> None:
    plan = plan_of()
    assert plan is not None
    groups = plan.group(batch_of([Row(1, "click", 1.0, 2**62, 5)] * 3))
    with pytest.raises(Unfit):
        plan.results(groups)
    [(key, group)] = plan.row_groups(groups)
    assert (key, group.count, group.acc[4]) == (1, 3, [str(3 * 2**62)])


FIELDS = {"size": "int", "small": "int", "cost": "float", "kind": "str"}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "size": st.integers(-(2**62), 2**62),
            "small": st.integers(-(2**47), 2**47),
            "cost": st.integers(-(2**20), 2**20).map(lambda n: n / 4),
            "kind": st.sampled_from("ab"),
        }
    ),
    min_size=1,
    max_size=10,
)
SPECS = [
    AggregateSpec("x", "count"),
    AggregateSpec("x", "count", condition="kind == 'a'"),
    AggregateSpec("x", "sum", "size"),
    AggregateSpec("x", "sum", "cost", condition="kind == 'a'"),
    AggregateSpec("x", "mean", "cost"),
    AggregateSpec("x", "mean", "size"),
    AggregateSpec("x", "stddev", "cost", condition="kind == 'a'"),
    AggregateSpec("x", "variance", "small", options={"population": True}),
    AggregateSpec("x", "min", "cost", condition="kind == 'a'"),
    AggregateSpec("x", "max", "kind"),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.function} {spec.argument} {spec.condition}")
@given(rows=ROWS)
def test_either_form_goes_on_where_the_other_stopped(spec: AggregateSpec, rows: list[dict[str, Any]]) -> None:
    """The accumulators of a group in columns are those of the row form, and back."""
    made = column_aggregate(spec, "a0", FIELDS, compile_expression)
    types = {"size": pl.Int64, "small": pl.Int64, "cost": pl.Float64, "kind": pl.String}
    staged = pl.DataFrame(rows, types).with_columns(made.staged())
    [row] = staged.with_columns(made.prepared()).select(made.merged()).cast(made.dtypes).to_dicts()
    in_rows = compile_aggregation([spec], compile_expression)
    acc = in_rows.create()
    for value in rows:
        acc = in_rows.add_many(acc, [in_rows.prepare(value)], [0])
    there = made.to_acc(row)
    assert in_rows.result([there])["x"] == in_rows.result(acc)["x"]
    assert made.to_acc(dict(zip(made.dtypes, made.from_acc(there), strict=True))) == there


def test_what_has_no_column_form_is_refused() -> None:
    for spec in (
        AggregateSpec("x", "first", "size"),
        AggregateSpec("x", "sum", "size % 2"),
        AggregateSpec("x", "sum", "kind"),
        AggregateSpec("x", "count", "other"),
        AggregateSpec("x", "collect", "size"),
        AggregateSpec("x", "stddev", "kind"),
    ):
        with pytest.raises(NoColumns):
            column_aggregate(spec, "a0", FIELDS, compile_expression)


def test_an_accumulator_that_columns_cannot_hold_says_so() -> None:
    whole = column_aggregate(AggregateSpec("x", "sum", "size"), "a0", FIELDS, compile_expression)
    with pytest.raises(Unfit):
        whole.from_acc([1, 0.5])
    floats = column_aggregate(AggregateSpec("x", "sum", "cost"), "a0", FIELDS, compile_expression)
    for acc in ([0, 2.0**-100], [0, 2.0**61]):
        with pytest.raises(Unfit):
            floats.from_acc(acc)
