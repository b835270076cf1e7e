"""Aggregate functions by name."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.columns import Argument, calculated
from millwheel.core.aggregates.functions import column_aggregate, make_aggregator
from millwheel.core.aggregates.own import OwnAggregator
from millwheel.core.aggregates.specs import compile_aggregation
from millwheel.core.expressions.language import compile_expression
from millwheel.core.expressions.terms import NoColumns
from millwheel.core.pipeline.work import AggregateSpec


@pytest.mark.parametrize(
    ("function", "options", "fix"),
    [
        ("medain", {}, "there are approx_count_distinct, collect, count"),
        ("sum", {"k": 3}, "sum has no option 'k'; it has none"),
        ("top_k", {}, "top_k needs `k`"),
        ("top_k", {"k": 0}, "whole number of at least 1"),
        ("quantile", {}, "quantile needs `q`"),
        ("quantile", {"q": 95}, "between 0 and 1"),
        ("quantiles", {"q": 0.5}, "a list"),
        ("quantile", {"q": 0.5, "accuracy": 2.0}, "a share from"),
        ("variance", {"population": "yes"}, "must be true"),
        ("approx_count_distinct", {"lg_k": 30}, "from 4 to 21"),
        ("mine:Top", {}, "cannot be loaded here"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(
    function: str, options: dict[str, Any], fix: str
) -> None:
    with pytest.raises(ValueError, match=fix):
        make_aggregator(function, options)


def test_a_class_of_ones_own_is_made_with_its_options() -> None:
    class Longest(Aggregator[str]):
        def __init__(self, least: int = 0) -> None:
            self.least = least

    made = make_aggregator("mine:Longest", {"least": 3}, lambda name: Longest)
    assert isinstance(made, OwnAggregator)
    assert isinstance(made.wrapped, Longest)
    assert made.wrapped.least == 3
    with pytest.raises(ValueError, match="derive it from millwheel"):
        make_aggregator("mine:dict", {}, lambda name: dict)
    with pytest.raises(TypeError, match="Longest must define create"):
        made.create()


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


@pytest.mark.parametrize(
    "spec", SPECS, ids=lambda spec: f"{spec.function} {spec.argument} {spec.condition}"
)
@given(rows=ROWS)
def test_either_form_goes_on_where_the_other_stopped(
    spec: AggregateSpec, rows: list[dict[str, Any]]
) -> None:
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
        AggregateSpec("x", "sum", "size ** 2"),
        AggregateSpec("x", "sum", "kind"),
        AggregateSpec("x", "count", "other"),
        AggregateSpec("x", "collect", "size"),
        AggregateSpec("x", "stddev", "kind"),
    ):
        with pytest.raises(NoColumns):
            column_aggregate(spec, "a0", FIELDS, compile_expression)


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
def test_other_functions_and_fields_have_no_such_form(
    function: str, kind: str, options: dict[str, Any]
) -> None:
    with pytest.raises(NoColumns):
        column_aggregate(
            AggregateSpec("x", function, "f", options=options),
            "a0",
            {"f": kind},
            compile_expression,
        )


# columns.py


def test_records_that_the_condition_leaves_out_count_nothing_and_have_no_value() -> None:
    frame = pl.DataFrame({"cost": [1.5, 2.5, 3.5], "click": [True, False, True]})
    some = Argument(pl.col("cost"), "float", pl.col("click"))
    every = Argument(pl.col("cost"), "float", None)
    shown = frame.select(
        counted=some.counted(),
        summed=some.or_zero(pl.col("cost")),
        value=some.or_null(),
        whole=every.or_null(),
    )
    assert shown.to_dict(as_series=False) == {
        "counted": [1, 0, 1],
        "summed": [1.5, 0.0, 3.5],
        "value": [1.5, None, 3.5],
        "whole": [1.5, 2.5, 3.5],
    }


def test_a_value_that_columns_may_not_have_matters_only_where_the_record_counts() -> None:
    tree = compile_expression("cost / size").tree
    fields = {"cost": "int", "size": "int"}
    frame = pl.DataFrame({"cost": [3, 5], "size": [2, 0], "click": [True, False]})
    every, some = calculated(tree, fields, None), calculated(tree, fields, pl.col("click"))
    assert [frame.select(check).item() for check in every.exactness_checks()] == [False]
    assert [frame.select(check).item() for check in some.exactness_checks()] == [True]
    assert frame.select(x=some.or_null())["x"].to_list() == [1.5, None]
    assert frame.select(x=some.or_zero(some.field.cast(pl.Int64)))["x"].to_list() == [1, 0]


def test_a_field_needs_no_check() -> None:
    assert Argument(pl.col("cost"), "float", None).exactness_checks() == []
