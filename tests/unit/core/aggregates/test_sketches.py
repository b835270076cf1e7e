"""Sketches are within the error that they state."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.functions import make_aggregator
from tests.unit.core.aggregates.test_base import _make, _over


@given(
    rows=st.lists(st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-6 or x == 0), min_size=1, max_size=60),
    q=st.floats(0, 1),
)
def test_quantiles_are_within_one_percent(rows: list[float], q: float) -> None:
    made = make_aggregator("quantile", {"q": q})
    true = sorted(rows)[math.floor(q * (len(rows) - 1))]
    assert made.result(_over(made, [(value, 0) for value in rows])) == pytest.approx(true, rel=0.0101)


_LONGS = st.integers(-(2**63), 2**64 - 1)


@given(values=st.lists(st.one_of(_LONGS, st.text(max_size=3), st.floats(allow_nan=False)), max_size=50))
def test_small_distinct_counts_are_exact(values: list[Any]) -> None:
    exact, sketch = _make("count_distinct"), _make("approx_count_distinct")
    over = [(value, 0) for value in values]
    assert exact.result(_over(exact, over)) == len(set(values))
    assert (
        abs(sketch.result(_over(sketch, over)) - len({str(float(v)) if isinstance(v, float) else v for v in values}))
        <= 2
    )


def test_large_distinct_counts_are_within_the_stated_error() -> None:
    made = _make("approx_count_distinct")
    acc = made.add_many(made.create(), [f"user{i}" for i in range(50_000)], range(50_000))
    assert abs(made.result(acc) - 50_000) < 0.05 * 50_000
    assert len(acc) < 5_000


@pytest.mark.parametrize(("bits", "count"), [(12, 384), (12, 385), (12, 3_000), (7, 8), (4, 500)])
def test_estimates_do_not_depend_on_the_order_of_values_nor_on_how_they_were_divided(bits: int, count: int) -> None:
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
