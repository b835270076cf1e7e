"""The estimates of columns are those of single records, whatever was put together with what, and in
which order."""

from __future__ import annotations

import random
from typing import Any

import datasketches
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Argument
from millwheel.core.aggregates.families.approx_distinct import (
    ApproxCountDistinct,
    Sketched,
    coupons,
)
from millwheel.core.aggregates.functions import make_aggregator
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.aggregates.both_forms import VALUES, acc_of_rows, both_bundles, made_of
from tests.unit.core.aggregates.test_base import _make, _over

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
    assert coupons(pl.Series(values)).to_list() == [
        None if value is None else coupon_of(value) for value in values
    ]


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
@settings(max_examples=30, deadline=None)
def test_sketches_of_many_values_are_put_together_in_any_order(
    bits: int, counts: list[int], many: bool, rng: random.Random
) -> None:
    aggregator = ApproxCountDistinct(bits)
    made = Sketched("a0", Argument(pl.col("f"), "int", None), aggregator)
    bundles = [
        [rng.randrange(10_000 if many else 60) for _ in range(count * (9 if many else 1))]
        for count in counts
    ]
    acc = b""
    for values in bundles:
        acc = aggregator.add_many(acc, values, [0] * len(values))
    expected = aggregator.result(acc)

    def together(lists: list[list[int]]) -> list[int]:
        frame = pl.DataFrame(
            {"key": [1] * len(lists), "a0": pl.Series(lists, dtype=pl.List(pl.UInt32))}
        )
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
    assert made.result(
        pl.DataFrame({"a0": pl.Series([whole], dtype=pl.List(pl.UInt32))})
    ).to_list() == [expected]
    stored = made.to_acc({"a0": whole})
    assert aggregator.result(stored) == expected
    assert made.from_acc(stored) == made.from_acc(acc) == [whole]
    more = aggregator.add_many(stored, [77_777], [0])
    assert aggregator.result(more) == aggregator.result(aggregator.add_many(acc, [77_777], [0]))


_LONGS = st.integers(-(2**63), 2**64 - 1)


@given(
    values=st.lists(st.one_of(_LONGS, st.text(max_size=3), st.floats(allow_nan=False)), max_size=50)
)
def test_small_distinct_counts_are_exact(values: list[Any]) -> None:
    exact, sketch = _make("count_distinct"), _make("approx_count_distinct")
    over = [(value, 0) for value in values]
    assert exact.result(_over(exact, over)) == len(set(values))
    assert (
        abs(
            sketch.result(_over(sketch, over))
            - len({str(float(v)) if isinstance(v, float) else v for v in values})
        )
        <= 2
    )


def test_large_distinct_counts_are_within_the_stated_error() -> None:
    made = _make("approx_count_distinct")
    acc = made.add_many(made.create(), [f"user{i}" for i in range(50_000)], range(50_000))
    assert abs(made.result(acc) - 50_000) < 0.05 * 50_000
    assert len(acc) < 5_000


@pytest.mark.parametrize(("bits", "count"), [(12, 384), (12, 385), (12, 3_000), (7, 8), (4, 500)])
def test_estimates_do_not_depend_on_the_order_of_values_nor_on_how_they_were_divided(
    bits: int, count: int
) -> None:
    made, found = make_aggregator("approx_count_distinct", {"lg_k": bits}), set()
    for seed in range(10):
        rng = random.Random(seed)
        values = list(range(count))
        rng.shuffle(values)
        size, acc = rng.choice([7, 60, 400, count]), made.create()
        for start in range(0, count, size):
            acc = made.add_many(acc, values[start : start + size], range(size))
        found.add(made.result(acc))
    assert len(found) == 1
