"""What columns gather, the row form takes: its accumulator is the one that single records give."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from millwheel.core.aggregates.distinct import Distinct
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.columns.arguments import Argument
from millwheel.core.columns.expressions import NoColumns
from millwheel.core.columns.fixed_sums import Unfit
from millwheel.core.columns.functions.gathered import gathered
from millwheel.core.pipeline.spec import AggregateSpec

rng = random.Random(7)
VALUES: dict[str, list[Any]] = {
    "int": [rng.randrange(-5, 5) for _ in range(40)],
    "float": [rng.choice([0.0, -0.0, 1e-300, 1e140, rng.gauss(0, 3), 0.1]) for _ in range(40)],
    "str": [rng.choice(["a", "b", "", "ä"]) for _ in range(40)],
}
SPECS = [
    *((AggregateSpec("x", "quantile", "f", options={"q": 0.5}), kind) for kind in ("int", "float")),
    *((AggregateSpec("x", name, "f"), kind) for name in ("count_distinct", "approx_count_distinct") for kind in VALUES),
    *((AggregateSpec("x", "top_k", "f", options={"k": 3}), kind) for kind in VALUES),
]


def acc_of(spec: AggregateSpec, kind: str, values: list[Any], condition: pl.Expr | None = None) -> Any:
    made = gathered(spec, "a0", Argument(pl.col("f"), kind, condition))
    frame = pl.DataFrame({"f": pl.Series(values), "k": [1] * len(values)})
    assert all(frame.select(each.alias("fits") for each in made.unfit()).row(0) if made.unfit() else ()), "unfit"
    [row] = frame.with_columns(made.prepared()).group_by("k").agg(made.merged()).iter_rows(named=True)
    return made.to_acc(row)


@pytest.mark.parametrize(("spec", "kind"), SPECS, ids=lambda part: getattr(part, "function", part))
def test_the_accumulator_is_that_of_single_records(spec: AggregateSpec, kind: str) -> None:
    rows = make_aggregator(spec.function, spec.options, None).growing()
    acc = rows.create()
    for value in VALUES[kind]:
        acc = rows.add(acc, rows.check(value, "f"), 0)
    assert repr(acc_of(spec, kind, VALUES[kind])) == repr(acc)


def test_records_that_the_condition_leaves_out_are_not_gathered() -> None:
    spec = AggregateSpec("x", "count_distinct", "f")
    assert acc_of(spec, "int", [1, 2, 1, 3], pl.col("f") < 3) == Distinct.of({1: 2, 2: 1})
    assert acc_of(spec, "int", [5, 6], pl.col("f") < 3) == Distinct()


@pytest.mark.parametrize(
    ("function", "kind"), [("first", "int"), ("collect", "str"), ("quantile", "str"), ("count_distinct", "bool")]
)
def test_other_functions_and_fields_have_no_such_form(function: str, kind: str) -> None:
    with pytest.raises(NoColumns):
        gathered(AggregateSpec("x", function, "f"), "a0", Argument(pl.col("f"), kind, None))


def test_the_state_stays_in_rows() -> None:
    made = gathered(AggregateSpec("x", "count_distinct", "f"), "a0", Argument(pl.col("f"), "int", None))
    assert not made.holds
    with pytest.raises(Unfit):
        made.from_acc({})
    with pytest.raises(Unfit):
        made.result(pl.DataFrame())
