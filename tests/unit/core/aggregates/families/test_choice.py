"""Aggregates that choose among values, in rows and in columns."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.families.number_sets import among, first_seen
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
    with pytest.raises(Inexact):
        made_of(AggregateSpec("x", "top_k", "f", options={"k": 3}), "int").from_acc([2.5, 1])


# number_sets.py: Each number is counted in the first of the sets that has it.

sets = st.lists(
    st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=5), max_size=9
)


@given(sets)
def test_each_number_is_in_the_first_set_that_has_it(given_sets: list[list[int]]) -> None:
    expected: dict[int, int] = {}
    for index, numbers in enumerate(given_sets):
        for number in numbers:
            expected.setdefault(number, index)
    found = first_seen([[array("Q", sorted(numbers))] for numbers in given_sets])
    if found is None:
        assert max(expected) >> 64 - len(given_sets).bit_length()
        return
    assert dict(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected
    assert found[0].tolist() == sorted(expected)


@given(st.sets(st.one_of(st.integers(0, 50), st.integers(0, 2**64 - 1)), min_size=1), st.data())
def test_some_of_the_numbers_are_found_among_them(numbers: set[int], data: st.DataObject) -> None:
    some = data.draw(st.sets(st.sampled_from(sorted(numbers))))
    found = among(np.array(sorted(numbers), np.uint64), np.array(sorted(some), np.uint64))
    assert found.tolist() == [number in some for number in sorted(numbers)]
