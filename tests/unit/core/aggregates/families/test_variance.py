"""variance and stddev in columns give the bits of the row form, whatever the bundles."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import ColumnAggregate, Inexact
from millwheel.core.aggregates.functions import column_aggregate, make_aggregator
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.aggregates.test_base import _make, _over

floats = st.one_of(
    st.floats(2.0**-37, 2.0**47),
    st.floats(2.0**-37, 2.0**47).map(lambda number: -number),
    st.integers(-1000, 1000).map(float),
    st.sampled_from(
        [0.0, -0.0, 0.1, 2.0**47, 2.0**-37, 1.0 + 2.0**-37, 2.0**47 - 2.0**-5, 1e9 + 0.1]
    ),
)
whole = st.one_of(st.integers(-(2**47), 2**47), st.integers(-3, 3))
options = st.sampled_from([("variance", {}), ("stddev", {}), ("stddev", {"population": True})])


def column_form(
    kind: str, function: str = "stddev", options: Mapping[str, Any] = MappingProxyType({})
) -> ColumnAggregate:
    return column_aggregate(
        AggregateSpec("x", function, "f", options=options), "a0", {"f": kind}, compile_expression
    )


def grouped(made: ColumnAggregate, values: list[Any], kind: Any) -> pl.DataFrame:
    frame = pl.DataFrame({"f": pl.Series(values, dtype=kind)})
    assert all(
        frame.select(
            each.alias(str(index)) for index, each in enumerate(made.exactness_checks())
        ).row(0)
    )
    return (
        frame.with_columns(made.staged())
        .select(made.prepared())
        .select(made.merged())
        .cast(made.dtypes)
    )


def same_in_both_forms(
    named: tuple[str, dict[str, Any]], values: list[Any], cut: int, kind: str, dtype: Any
) -> None:
    function, given_options = named
    rows = make_aggregator(function, given_options, None)
    made = column_form(kind, function, given_options)
    bundles = [grouped(made, part, dtype) for part in (values[:cut], values[cut:])]
    together = pl.concat(bundles).select(made.merged())
    acc = rows.create()
    for value in values:
        acc = rows.add(acc, rows.check(value, "f"), 0)
    assert made.result(together).to_list() == [rows.result(acc)]
    [row] = together.to_dicts()
    there = made.to_acc(row)
    assert repr(there) == repr(acc)
    try:
        back = made.from_acc(there)
    except Inexact:
        assert sum(map(abs, values)) >= 2**59
    else:
        assert made.to_acc(dict(zip(made.dtypes, back, strict=True))) == there


@given(named=options, values=st.lists(floats, min_size=1, max_size=12), cut=st.integers(0, 12))
def test_floats(named: tuple[str, dict[str, Any]], values: list[float], cut: int) -> None:
    same_in_both_forms(named, values, cut, "float", pl.Float64)


@given(named=options, values=st.lists(whole, min_size=1, max_size=12), cut=st.integers(0, 12))
def test_whole_numbers(named: tuple[str, dict[str, Any]], values: list[int], cut: int) -> None:
    same_in_both_forms(named, values, cut, "int", pl.Int64)


@pytest.mark.parametrize("value", [1e-12, 2.0**48, -1e30, 2.0**-37 / 3])
def test_floats_whose_squares_columns_cannot_hold_are_noticed(value: float) -> None:
    made = column_form("float")
    frame = pl.DataFrame({"f": [1.0, value]})
    assert not all(
        frame.select(
            each.alias(str(index)) for index, each in enumerate(made.exactness_checks())
        ).row(0)
    )


@pytest.mark.parametrize("value", [2**47 + 1, -(2**63)])
def test_whole_numbers_whose_squares_columns_cannot_hold_are_noticed(value: int) -> None:
    made = column_form("int")
    assert not pl.DataFrame({"f": [1, value]}).select(made.exactness_checks()).item()


@pytest.mark.parametrize(
    ("kind", "acc"),
    [
        ("int", [1, [0, 0.5], [0, 0.25]]),
        ("int", [1, [2**40], [str(2**110)]]),
        ("float", [1, [0, 2.0**-100], [0, 2.0**-100]]),
        ("float", [1, [0, 1.0], [0, 2.0**110]]),
        ("float", [1, [0, 1.0], [0, 2.0**-181]]),
    ],
)
def test_an_accumulator_that_columns_cannot_hold_says_so(kind: str, acc: Any) -> None:
    with pytest.raises(Inexact):
        column_form(kind).from_acc(acc)


@given(rows=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_variance_is_as_exact_as_fractions(rows: list[float]) -> None:
    over = [(value, 0) for value in rows]
    variance = _make("variance")
    assert variance.result(_over(variance, over)) == pytest.approx(
        statistics.variance(rows), rel=1e-12, abs=1e-300
    )
    population = make_aggregator("variance", {"population": True})
    assert population.result(_over(population, over)) == pytest.approx(
        statistics.pvariance(rows), rel=1e-12, abs=1e-300
    )
