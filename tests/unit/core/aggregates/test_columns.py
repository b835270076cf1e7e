from __future__ import annotations

import polars as pl

from millwheel.core.aggregates.columns import Argument, calculated
from millwheel.core.expressions.language import compile_expression


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
    assert [frame.select(check).item() for check in every.unfit()] == [False]
    assert [frame.select(check).item() for check in some.unfit()] == [True]
    assert frame.select(x=some.or_null())["x"].to_list() == [1.5, None]
    assert frame.select(x=some.or_zero(some.field.cast(pl.Int64)))["x"].to_list() == [1, 0]


def test_a_field_needs_no_check() -> None:
    assert Argument(pl.col("cost"), "float", None).unfit() == []
