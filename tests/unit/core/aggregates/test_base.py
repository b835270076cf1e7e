"""Aggregators: exact, independent of order and grouping, and able to take back what they can."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millwheel.core.aggregates.base import Aggregator
from millwheel.core.aggregates.functions import FUNCTIONS, make_aggregator
from millwheel.core.aggregates.results import shown_by, shows_each
from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec
from millwheel.core.pipeline.work import AggregationSpec, WindowSpec
from millwheel.errors import RecordError

OPTIONS: dict[str, Mapping[str, Any]] = {
    "top_k": {"k": 3},
    "quantile": {"q": 0.5},
    "quantiles": {"q": [0.1, 0.9]},
    "max_by": {"by": "n"},
    "min_by": {"by": "n"},
    "top_rows": {"by": ["n desc", "n"], "k": 3},
}
ORDER_MATTERS = {"collect"}

numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(-1e100, 1e100), st.floats(-100, 100)
)
records = st.lists(st.tuples(numbers, st.integers(-50, 50)), max_size=20)
functions = st.sampled_from(sorted(FUNCTIONS))


def _make(function: str) -> Aggregator[Any]:
    return make_aggregator(function, OPTIONS.get(function, {}))


def _checked(made: Aggregator[Any], value: Any) -> Any:
    """What is added of a value, or of a record that has it."""
    whole = [[value for _ in made.orders], {"n": value}] if made.of_rows else value
    return made.check(whole, "field")


def _over(made: Aggregator[Any], rows: list[tuple[Any, int]]) -> Any:
    acc = made.create()
    for value, timestamp in rows:
        acc = made.add(acc, _checked(made, value), timestamp)
    return acc


def _stored(acc: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(acc))


@given(function=functions, rows=records, data=st.data())
def test_results_do_not_depend_on_order_bundles_or_storage(
    function: str, rows: list[Any], data: Any
) -> None:
    """Any order, any cut into parts, each part in one go or one by one, stored in between."""
    # equal times are decided by arrival
    assume(len({timestamp for _, timestamp in rows}) == len(rows))
    made = _make(function)
    shuffled = data.draw(st.permutations(rows)) if function not in ORDER_MATTERS else rows
    cut = data.draw(st.integers(0, len(rows)))
    left, right = _over(made, shuffled[:cut]), made.create()
    if shuffled[cut:]:
        values = [_checked(made, value) for value, _ in shuffled[cut:]]
        right = made.add_many(right, values, [timestamp for _, timestamp in shuffled[cut:]])
    before = _stored(right)
    merged = made.merge(_stored(left), right)
    assert right == before
    assert made.result(_stored(merged)) == made.result(_over(made, rows))


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
        acc = made.subtract(acc, _checked(made, value), timestamp)
    expected = made.result(_over(made, kept))
    found = made.result(acc)
    if function == "sum" and any(type(value) is float for value, _ in rows):
        expected = float(expected)  # a sum that held a float stays one
    assert (sorted(found) == sorted(expected)) if function == "collect" else (found == expected)


def test_no_records_have_a_result_too() -> None:
    results = {
        function: _make(function).result(_make(function).create()) for function in sorted(FUNCTIONS)
    }
    assert results == {
        "approx_count_distinct": 0, "collect": [], "count": 0, "count_distinct": 0, "first": None,
        "first_row": None, "last_row": None, "max_by": None, "min_by": None, "top_rows": [],
        "last": None,
        "max": None, "mean": None, "min": None, "quantile": None, "quantiles": [None, None],
        "stddev": None,
        "sum": 0, "top_k": [], "variance": None,
    }  # fmt: skip


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


# results.py: Fields that are made of results, and results that are left out.


def spec(stage: AggregationStage = AggregationStage.WHOLE, **fields: Any) -> ComputationSpec:
    work = AggregationSpec(window=WindowSpec("global"), **fields)
    return ComputationSpec("c", (), work=work, stage=stage)


def test_each_field_may_read_those_before_it() -> None:
    shown = shown_by(spec(then={"mean": "total / n", "twice": "mean * 2"}), compile_expression)
    assert shown({"n": 2, "total": 6}) == {"n": 2, "total": 6, "mean": 3.0, "twice": 6.0}


def test_a_condition_reads_what_has_been_made() -> None:
    shown = shown_by(spec(then={"mean": "total / n"}, having="mean > 2"), compile_expression)
    assert shown({"n": 2, "total": 6}) == {"n": 2, "total": 6, "mean": 3.0}
    assert shown({"n": 3, "total": 6}) is None
    with pytest.raises(RecordError, match="division by zero"):
        shown({"n": 0, "total": 6})


def test_parts_of_a_divided_key_are_not_results_yet() -> None:
    assert shows_each(spec(having="n > 1"))
    partial = spec(AggregationStage.PARTIAL, having="n > 1")
    assert not shows_each(partial)
    assert not shows_each(spec())
    assert shown_by(partial, compile_expression)({"acc": b""}) == {"acc": b""}
