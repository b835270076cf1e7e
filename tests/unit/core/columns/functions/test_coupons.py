"""The estimates of columns are those of single records, whatever was put together with what, and in which order."""

from __future__ import annotations

import random
from typing import Any

import datasketches
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.aggregates.sketches import ApproxCountDistinct
from millwheel.core.columns.aggregates import column_aggregate
from millwheel.core.columns.arguments import Argument
from millwheel.core.columns.expressions import NoColumns
from millwheel.core.columns.functions.coupons import Sketched, coupons
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregateSpec
from tests.unit.core.columns.functions.test_lists import VALUES, acc_of_rows, both_bundles, made_of

SPEC = AggregateSpec("x", "approx_count_distinct", "f")
FAR = {
    "int": [0, 1, -1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 1.5, -1e308, 5e-324],
    "str": ["", "a", "ä" * 50, "\0"],
}


@pytest.mark.parametrize("kind", ["int", "float", "str"])
def test_coupons_are_those_of_the_library(kind: str) -> None:
    rng = random.Random(3)
    more: dict[str, Any] = {
        "int": lambda: rng.randrange(-(2**63), 2**63),
        "float": lambda: rng.gauss(0, 1e5),
        "str": lambda: str(rng.random()),
    }
    values = [*FAR[kind], *(more[kind]() for _ in range(2_000)), None]
    assert coupons(pl.Series(values)).to_list() == [None if value is None else coupon_of(value) for value in values]


def coupon_of(value: Any) -> int | None:
    sketch = datasketches.hll_sketch(12)
    sketch.update(value)
    return int.from_bytes(bytes(sketch.serialize_compact())[8:12], "little") or None


@pytest.mark.parametrize("kind", ["int", "float", "str"])
@given(data=st.data())
def test_the_estimate_is_that_of_single_records(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    row = both_bundles(made_of(SPEC, kind), kind, values, data.draw(st.integers(0, 12)))
    result = make_aggregator("approx_count_distinct", {}, None).result
    assert result(made_of(SPEC, kind).to_acc(row)) == result(acc_of_rows(SPEC, values))


@given(
    bits=st.sampled_from([4, 6, 7, 8, 10]),
    counts=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    many=st.booleans(),
    rng=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_sketches_of_many_values_are_put_together_in_any_order(
    bits: int, counts: list[int], many: bool, rng: random.Random
) -> None:
    aggregator = ApproxCountDistinct(bits)
    made = Sketched("a0", Argument(pl.col("f"), "int", None), aggregator)
    bundles = [[rng.randrange(10_000 if many else 60) for _ in range(count * (9 if many else 1))] for count in counts]
    acc = b""
    for values in bundles:
        acc = aggregator.add_many(acc, values, [0] * len(values))
    expected = aggregator.result(acc)

    def together(lists: list[list[int]]) -> list[int]:
        frame = pl.DataFrame({"key": [1] * len(lists), "a0": pl.Series(lists, dtype=pl.List(pl.UInt32))})
        found: list[int] = frame.group_by("key").agg(made.merged())["a0"].to_list()[0]
        return found

    grouped = [
        pl.DataFrame({"key": [1] * len(values), "a0": coupons(pl.Series(values, dtype=pl.Int64))})
        .group_by("key")
        .agg(made.grouped())["a0"]
        .to_list()
        for values in bundles
    ]
    lists = [each[0] for each in grouped if each]
    whole = together(lists or [[]])
    rng.shuffle(lists)
    assert together(lists or [[]]) == whole == together([together(lists[:2] or [[]]), *lists[2:]])
    assert made.result(pl.DataFrame({"a0": pl.Series([whole], dtype=pl.List(pl.UInt32))})).to_list() == [expected]
    stored = made.to_acc({"a0": whole})
    assert aggregator.result(stored) == expected
    assert made.from_acc(stored) == made.from_acc(acc) == [whole]
    more = aggregator.add_many(stored, [77_777], [0])
    assert aggregator.result(more) == aggregator.result(aggregator.add_many(acc, [77_777], [0]))


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
