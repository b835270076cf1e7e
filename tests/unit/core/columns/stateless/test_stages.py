"""Filters and projections over a batch: which records fit, and the order of what is made."""

from __future__ import annotations

import numpy as np
import polars as pl

from millwheel.core.columns.batch import ColumnBatch
from millwheel.core.columns.stateless.stages import (
    ColumnStep,
    StatelessPlan,
    Way,
    constant_column,
)

NUMBERS = pl.DataFrame(
    {"n": [1, None, 3, 4], "x": [0.5, 1.5, None, float("inf")]}, {"n": pl.Int64, "x": pl.Float64}
)


def batch(frame: pl.DataFrame) -> ColumnBatch:
    rows = np.arange(frame.height)
    keys = pl.Series("key", [f"k{row}" for row in rows], pl.String)
    return ColumnBatch("in", rows + 7, rows * 10, keys, frame, 5)


def test_records_fit_if_what_is_computed_with_is_clean_and_the_result_is_exact() -> None:
    exact = (pl.col("n") > 0, pl.col("n") < 4)
    assert ColumnStep({"n": "int"}, {}, exact).fitting(NUMBERS).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert ColumnStep({"x": "float"}, {}).fitting(NUMBERS).tolist() == [True, True, False, False]


def test_fields_that_are_only_passed_on_may_be_null_but_have_their_type() -> None:
    assert ColumnStep({}, {"n": "int", "x": "float"}).fitting(NUMBERS).all()
    for same in ({"n": "float"}, {"other": "int"}):
        assert not ColumnStep({}, same).fitting(NUMBERS).any()
    assert not ColumnStep({"n": "str"}, {}).fitting(NUMBERS).any()


def test_results_have_the_keys_and_times_of_their_records_in_their_order() -> None:
    kept = ColumnStep({"n": "int"}, {}, keeps=pl.col("n") != 3)
    made = ColumnStep(
        {}, {"x": "float"}, makes=(pl.col("x"), constant_column(1, pl.Int64).alias("c"))
    )
    plan = StatelessPlan((kept, made), (Way("a"), Way("b")), {"x": "float", "c": "int"}, (), False)
    passed = plan.passed(batch(NUMBERS))
    assert passed.for_rows.tolist() == [1]
    assert [part.stream for part in passed.parts] == ["a", "b"]
    for part in passed.parts:
        assert part.frame.to_dicts() == [{"x": 0.5, "c": 1}, {"x": float("inf"), "c": 1}]
        assert part.keys.to_list() == ["k0", "k3"]
        assert part.timestamps.tolist() == [0, 30]
        assert (len(part.seqs), part.ids, part.born_us) == (0, None, 5)


def test_records_take_the_first_way_or_each_and_what_none_takes_is_counted() -> None:
    frame = pl.DataFrame({"n": [1, 2, 3, 9]})
    ways = (Way("odd", pl.col("n") % 2 == 1), Way("few", pl.col("n") < 3))
    wanted = {
        (True, ()): ({"odd": [1, 3, 9], "few": [2]}, 0),
        (False, ()): ({"odd": [1, 3, 9], "few": [1, 2]}, 0),
    }
    for (first_only, rest), (rows, unmatched) in wanted.items():
        passed = StatelessPlan((), ways, {}, rest, first_only).passed(batch(frame))
        assert {part.stream: part.frame["n"].to_list() for part in passed.parts} == rows
        assert passed.unmatched == unmatched
    few = (Way("few", pl.col("n") < 3),)
    assert StatelessPlan((), few, {}).passed(batch(frame)).unmatched == 2
    parts = StatelessPlan((), few, {}, ("others",)).passed(batch(frame)).parts
    assert parts[1].frame["n"].to_list() == [3, 9]
