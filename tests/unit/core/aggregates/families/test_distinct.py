"""Values are counted once, in rows and in columns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.columns import Inexact
from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.core.pipeline.work import AggregateSpec
from tests.unit.core.aggregates.both_forms import VALUES, both_bundles, made_of, same_in_both_forms

SPEC = AggregateSpec("x", "count_distinct", "f")


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_columns_have_the_accumulator_and_the_result_of_rows(
    kind: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=12))
    same_in_both_forms(SPEC, kind, values, data.draw(st.integers(0, 12)))


def test_records_that_the_condition_leaves_out_do_not_count() -> None:
    made = made_of(AggregateSpec("x", "count_distinct", "f", "f < 3"), "int")
    some, none = both_bundles(made, "int", [1, 2, 1, 3], 2), both_bundles(made, "int", [5, 6], 1)
    assert (made.to_acc(some), made.to_acc(none)) == (Distinct.of({1: 2, 2: 1}), Distinct())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [1.5]),
        ("int", ["a"]),
        ("int", [2**63]),
        ("float", ["a"]),
        ("float", [2**53 + 1]),
        ("str", [1]),
    ],
)
def test_values_of_another_type_fit_no_column(kind: str, values: list[Any]) -> None:
    with pytest.raises(Inexact):
        made_of(SPEC, kind).from_acc(Distinct.of(dict.fromkeys(values)))
