"""An aggregate over records of one field, in rows and in columns."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import ColumnAggregate, Inexact
from millwheel.core.aggregates.functions import column_aggregate, make_aggregator
from millwheel.core.expressions.language import compile_expression
from millwheel.core.lazy_polars import dtype
from millwheel.core.pipeline.work import AggregateSpec

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.one_of(st.integers(-3, 3), st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1])),
    "float": st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, 2.0**60, -2.5, 5e-324, 1e-308, 0.1]),
        st.floats(-1e140, 1e140),
    ),
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
    [row] = (
        parts.with_columns(k=1)
        .group_by("k")
        .agg(made.merged())
        .select(list(made.dtypes))
        .to_dicts()
    )
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
    except Inexact:
        assert isinstance(result, list)
    back = dict(zip(made.dtypes, made.from_acc(acc), strict=True))
    assert pl.DataFrame([back], made.dtypes).height == 1
    assert made.to_acc(back) == acc
