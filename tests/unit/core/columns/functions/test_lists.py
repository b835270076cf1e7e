"""count_distinct and top_k in columns are those of the row form, whatever the bundles."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.distinct import Distinct
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.columns.aggregates import ColumnAggregate, column_aggregate
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.lazy_polars import dtype
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregateSpec

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.one_of(st.integers(-3, 3), st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1])),
    "float": st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0**60, -2.5, 5e-324, 1e-308, 0.1]), st.floats(-1e140, 1e140)),
    "str": st.sampled_from(["a", "b", "", "ä", "\U0001f40c", "\uffff"]),
}


def made_of(spec: AggregateSpec, kind: str) -> ColumnAggregate:
    return column_aggregate(spec, "a0", {"f": kind}, compile_expression)


def bundle_of(made: ColumnAggregate, kind: str, values: list[Any]) -> pl.DataFrame:
    """A groups frame of one group; none for no records."""
    frame = pl.DataFrame({"f": pl.Series(values, dtype=dtype(kind)), "k": [1] * len(values)})
    staged = frame.with_columns(made.staged()).with_columns(made.prepared())
    return staged.group_by("k").agg(made.grouped()).select(list(made.dtypes)).cast(made.dtypes)


def both_bundles(made: ColumnAggregate, kind: str, values: list[Any], cut: int) -> dict[str, Any]:
    """The group of all values, which came in two bundles."""
    parts = pl.concat([bundle_of(made, kind, values[:cut]), bundle_of(made, kind, values[cut:])])
    [row] = parts.with_columns(k=1).group_by("k").agg(made.merged()).select(list(made.dtypes)).to_dicts()
    return row


def acc_of_rows(spec: AggregateSpec, values: list[Any]) -> Any:
    rows = make_aggregator(spec.function, spec.options, None).growing()
    acc = rows.create()
    for value in values:
        acc = rows.add(acc, rows.check(value, "f"), 0)
    return acc


def same_in_both_forms(spec: AggregateSpec, kind: str, values: list[Any], cut: int) -> None:
    made = made_of(spec, kind)
    row = both_bundles(made, kind, values, cut)
    acc = made.to_acc(row)
    assert acc == acc_of_rows(spec, values)
    result = make_aggregator(spec.function, spec.options, None).growing().result(acc)
    try:
        assert repr(made.result(pl.DataFrame([row], made.dtypes)).to_list()) == repr([result])
    except Unfit:
        assert isinstance(result, list)
    back = dict(zip(made.dtypes, made.from_acc(acc), strict=True))
    assert pl.DataFrame([back], made.dtypes).height == 1
    assert made.to_acc(back) == acc


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(
    "spec", [AggregateSpec("x", "count_distinct", "f"), AggregateSpec("x", "top_k", "f", options={"k": 3})]
)
@given(data=st.data())
def test_the_accumulator_and_the_result_are_those_of_rows(kind: str, spec: AggregateSpec, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    same_in_both_forms(spec, kind, values, data.draw(st.integers(0, 12)))


@pytest.mark.parametrize("function", ["count_distinct", "top_k"])
def test_records_that_the_condition_leaves_out_do_not_count(function: str) -> None:
    options = {"k": 9} if function == "top_k" else {}
    made = made_of(AggregateSpec("x", function, "f", "f < 3", options), "int")
    some, none = both_bundles(made, "int", [1, 2, 1, 3], 2), both_bundles(made, "int", [5, 6], 1)
    assert made.to_acc(some) == ([2, 1, 1] if function == "top_k" else Distinct.of({1: 2, 2: 1}))
    assert made.to_acc(none) == ([] if function == "top_k" else Distinct())


def test_which_of_two_equal_zeros_is_among_the_largest_does_not_depend_on_their_order() -> None:
    spec = AggregateSpec("x", "top_k", "f", options={"k": 1})
    assert repr(acc_of_rows(spec, [-0.0, 0.0])) == repr(acc_of_rows(spec, [0.0, -0.0])) == "[0.0]"


@pytest.mark.parametrize(
    ("kind", "values"),
    [("int", [1.5]), ("int", ["a"]), ("int", [2**63]), ("float", ["a"]), ("float", [2**53 + 1]), ("str", [1])],
)
def test_values_of_another_type_fit_no_column(kind: str, values: list[Any]) -> None:
    with pytest.raises(Unfit):
        made_of(AggregateSpec("x", "count_distinct", "f"), kind).from_acc(Distinct.of(dict.fromkeys(values)))


def test_the_largest_values_of_another_type_fit_no_column() -> None:
    with pytest.raises(Unfit):
        made_of(AggregateSpec("x", "top_k", "f", options={"k": 3}), "int").from_acc([2.5, 1])
