from __future__ import annotations

import polars as pl

from millwheel.core.columns.arguments import Argument


def test_records_that_the_condition_leaves_out_count_nothing_and_have_no_value() -> None:
    frame = pl.DataFrame({"cost": [1.5, 2.5, 3.5], "click": [True, False, True]})
    some = Argument(pl.col("cost"), "float", pl.col("click"))
    every = Argument(pl.col("cost"), "float", None)
    shown = frame.select(
        counted=some.counted(), summed=some.or_zero(pl.col("cost")), value=some.or_null(), whole=every.or_null()
    )
    assert shown.to_dict(as_series=False) == {
        "counted": [1, 0, 1],
        "summed": [1.5, 0.0, 3.5],
        "value": [1.5, None, 3.5],
        "whole": [1.5, 2.5, 3.5],
    }
