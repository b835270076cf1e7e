"""Aggregates that choose among values, in rows and in columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Unfit
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.aggregates.both_forms import (
    VALUES,
    acc_of_rows,
    both_bundles,
    made_of,
    same_in_both_forms,
)
from tests.unit.core.aggregates.test_base import _make, _over


def test_first_and_last_are_by_time_and_then_by_arrival() -> None:
    rows = [("b", 5), ("c", 9), ("a", 1), ("a2", 1), ("d", 9)]
    first, last = _make("first"), _make("last")
    assert first.result(_over(first, rows)) == "a"
    assert last.result(_over(last, rows)) == "d"


def test_top_k_keeps_the_largest() -> None:
    made = _make("top_k")
    assert made.result(_over(made, [(v, 0) for v in (3, 9, 1, 9, 4)])) == [9, 9, 4]


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("function", "options"), [("min", {}), ("max", {}), ("top_k", {"k": 3})])
@given(data=st.data())
def test_columns_have_the_accumulator_and_the_result_of_rows(
    kind: str, function: str, options: dict[str, int], data: st.DataObject
) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    spec = AggregateSpec("x", function, "f", options=options)
    same_in_both_forms(spec, kind, values, data.draw(st.integers(0, 12)))


def test_records_that_the_condition_leaves_out_are_not_among_the_largest() -> None:
    made = made_of(AggregateSpec("x", "top_k", "f", "f < 3", {"k": 9}), "int")
    some, none = both_bundles(made, "int", [1, 2, 1, 3], 2), both_bundles(made, "int", [5, 6], 1)
    assert (made.to_acc(some), made.to_acc(none)) == ([2, 1, 1], [])


def test_which_of_two_equal_zeros_is_among_the_largest_does_not_depend_on_their_order() -> None:
    spec = AggregateSpec("x", "top_k", "f", options={"k": 1})
    assert repr(acc_of_rows(spec, [-0.0, 0.0])) == repr(acc_of_rows(spec, [0.0, -0.0])) == "[0.0]"


def test_the_largest_values_of_another_type_fit_no_column() -> None:
    with pytest.raises(Unfit):
        made_of(AggregateSpec("x", "top_k", "f", options={"k": 3}), "int").from_acc([2.5, 1])
