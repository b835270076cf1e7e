"""Aggregators: exact, independent of order and grouping, and able to take back what they can."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.errors import RecordError

OPTIONS: dict[str, Mapping[str, Any]] = {"top_k": {"k": 3}, "quantile": {"q": 0.5}, "quantiles": {"q": [0.1, 0.9]}}
ORDER_MATTERS = {"collect"}

numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(-1e100, 1e100), st.floats(-100, 100))
records = st.lists(st.tuples(numbers, st.integers(-50, 50)), max_size=20)
functions = st.sampled_from(sorted(FUNCTIONS))


def _make(function: str) -> Aggregator[Any]:
    return make_aggregator(function, OPTIONS.get(function, {}))


def _over(made: Aggregator[Any], rows: list[tuple[Any, int]]) -> Any:
    acc = made.create()
    for value, timestamp in rows:
        acc = made.add(acc, made.check(value, "field"), timestamp)
    return acc


def _stored(acc: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(acc))


@given(function=functions, rows=records, data=st.data())
def test_results_do_not_depend_on_order_bundles_or_storage(function: str, rows: list[Any], data: Any) -> None:
    """Any order, any cut into parts, each part in one go or one by one, stored in between."""
    assume(len({timestamp for _, timestamp in rows}) == len(rows))  # equal times are decided by arrival
    made = _make(function)
    shuffled = data.draw(st.permutations(rows)) if function not in ORDER_MATTERS else rows
    cut = data.draw(st.integers(0, len(rows)))
    left, right = _over(made, shuffled[:cut]), made.create()
    if shuffled[cut:]:
        values = [made.check(value, "field") for value, _ in shuffled[cut:]]
        right = made.add_many(right, values, [timestamp for _, timestamp in shuffled[cut:]])
    before = _stored(right)
    merged = made.merge(_stored(left), right)
    assert right == before
    assert made.result(_stored(merged)) == made.result(_over(made, rows))


@pytest.mark.parametrize("function", ["sum", "mean"])
def test_a_float_that_was_subtracted_leaves_no_rounding_behind(function: str) -> None:
    made = _make(function)
    acc = _over(made, [(value, 0) for value in (2**60 + 1, 2**60 + 3, 7)])
    found = made.result(made.subtract(made.add(acc, 2.5, 0), 2.5, 0))
    assert type(found) is float
    assert found == float(Fraction(2**61 + 11, 3 if function == "mean" else 1))


@given(function=functions, rows=records, data=st.data())
def test_what_is_subtracted_was_never_there(function: str, rows: list[Any], data: Any) -> None:
    made = _make(function)
    assume(made.subtracts)
    kept = [row for row in rows if data.draw(st.booleans())]
    acc = _over(made, rows)
    gone = list(rows)
    for row in kept:
        gone.remove(row)
    for value, timestamp in gone:
        acc = made.subtract(acc, made.check(value, "field"), timestamp)
    expected = made.result(_over(made, kept))
    found = made.result(acc)
    if function == "sum" and any(type(value) is float for value, _ in rows):
        expected = float(expected)  # a sum that held a float stays one
    assert (sorted(found) == sorted(expected)) if function == "collect" else (found == expected)


@given(rows=st.lists(st.one_of(st.integers(-(2**62), 2**62), st.floats(-1e200, 1e200)), max_size=30))
def test_the_sum_is_the_exact_sum_rounded_once(rows: list[Any]) -> None:
    made = _make("sum")
    found = made.result(_over(made, [(value, 0) for value in rows]))
    exact = sum((Fraction(value) for value in rows), Fraction(0))
    if all(isinstance(value, int) for value in rows) and -(2**63) <= exact < 2**63:
        assert found == exact
    else:
        assert found == float(exact)


@given(rows=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_variance_is_as_exact_as_fractions(rows: list[float]) -> None:
    over = [(value, 0) for value in rows]
    variance = _make("variance")
    assert variance.result(_over(variance, over)) == pytest.approx(statistics.variance(rows), rel=1e-12, abs=1e-300)
    population = make_aggregator("variance", {"population": True})
    assert population.result(_over(population, over)) == pytest.approx(
        statistics.pvariance(rows), rel=1e-12, abs=1e-300
    )


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


def test_first_and_last_are_by_time_and_then_by_arrival() -> None:
    rows = [("b", 5), ("c", 9), ("a", 1), ("a2", 1), ("d", 9)]
    first, last = _make("first"), _make("last")
    assert first.result(_over(first, rows)) == "a"
    assert last.result(_over(last, rows)) == "d"


def test_no_records_have_a_result_too() -> None:
    results = {function: _make(function).result(_make(function).create()) for function in sorted(FUNCTIONS)}
    assert results == {
        "approx_count_distinct": 0, "collect": [], "count": 0, "count_distinct": 0, "first": None, "last": None,
        "max": None, "mean": None, "min": None, "quantile": None, "quantiles": [None, None], "stddev": None,
        "sum": 0, "top_k": [], "variance": None,
    }  # fmt: skip


def test_top_k_keeps_the_largest() -> None:
    made = _make("top_k")
    assert made.result(_over(made, [(v, 0) for v in (3, 9, 1, 9, 4)])) == [9, 9, 4]


@pytest.mark.parametrize("value", [None, True, "7", math.nan, math.inf, [1], {"a": 1}])
@pytest.mark.parametrize("function", ["sum", "mean", "variance", "stddev", "quantile"])
def test_what_is_no_finite_number_is_named_with_its_field(function: str, value: Any) -> None:
    with pytest.raises(RecordError, match=rf"{function} of field 'size' needs a finite number, not "):
        _make(function).check(value, "size")


@pytest.mark.parametrize(
    ("function", "value", "wanted"),
    [
        ("min", None, "a number or text"),
        ("max", math.nan, "a number or text"),
        ("top_k", [1], "a number or text"),
        ("count_distinct", {"a": 1}, "text, a number, bytes or a list"),
        ("count_distinct", None, "text, a number, bytes or a list"),
        ("approx_count_distinct", True, "text, a number or bytes"),
        ("variance", 1e200, "can be squared"),
    ],
)
def test_each_function_says_what_it_needs(function: str, value: Any, wanted: str) -> None:
    with pytest.raises(RecordError, match=wanted):
        _make(function).check(value, "field")


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(RecordError, match=r"not str 'xxx.*\.\.\.") as caught:
        _make("sum").check("x" * 1000, "size")
    assert len(str(caught.value)) < 200


def test_a_sum_beyond_every_float_is_a_fault_of_the_record() -> None:
    made = _make("sum")
    with pytest.raises(RecordError, match="left the range"):
        made.add_many(made.create(), [1.7e308, 1.7e308], [0, 0])


@pytest.mark.parametrize(
    ("function", "options", "fix"),
    [
        ("medain", {}, "there are approx_count_distinct, collect, count"),
        ("sum", {"k": 3}, "sum has no option 'k'; it has none"),
        ("top_k", {}, "top_k needs `k`"),
        ("top_k", {"k": 0}, "whole number of at least 1"),
        ("quantile", {}, "quantile needs `q`"),
        ("quantile", {"q": 95}, "between 0 and 1"),
        ("quantiles", {"q": 0.5}, "a list"),
        ("quantile", {"q": 0.5, "accuracy": 2.0}, "a share from"),
        ("variance", {"population": "yes"}, "must be true"),
        ("approx_count_distinct", {"lg_k": 30}, "from 4 to 21"),
        ("mine:Top", {}, "cannot be loaded here"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(function: str, options: dict[str, Any], fix: str) -> None:
    with pytest.raises(ValueError, match=fix):
        make_aggregator(function, options)


def test_a_class_of_ones_own_is_made_with_its_options() -> None:
    class Longest(Aggregator[str]):
        def __init__(self, least: int = 0) -> None:
            self.least = least

    made = make_aggregator("mine:Longest", {"least": 3}, lambda name: Longest)
    assert isinstance(made, Longest)
    assert made.least == 3
    with pytest.raises(ValueError, match="derive it from millwheel"):
        make_aggregator("mine:dict", {}, lambda name: dict)
    with pytest.raises(TypeError, match="Longest must define create"):
        made.create()
