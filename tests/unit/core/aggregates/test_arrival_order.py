"""Windows that merge keep their records in the order of arrival, whoever grew when."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import Collected
from millwheel.core.aggregates.arrival_order import InOrder


def filled(made: InOrder, numbers: list[int]) -> Any:
    return made.add_numbered(made.create(), numbers, numbers, [0] * len(numbers))


@given(st.lists(st.integers(0, 2), max_size=30), st.permutations([0, 1, 2]))
def test_sessions_that_grew_alternately_merge_into_the_order_of_arrival(
    turns: list[int], order: list[int]
) -> None:
    made = InOrder(Collected())
    parts = [
        filled(made, [number for number, turn in enumerate(turns, 1) if turn == which])
        for which in range(3)
    ]
    merged = made.create()
    for which in order:
        merged = made.merge(merged, parts[which])
    assert made.result(merged) == list(range(1, len(turns) + 1))
    assert len(merged) == min(1, len(turns)), (
        "records that came directly after each other are one run"
    )


def test_one_session_alone_is_one_run_however_it_was_filled() -> None:
    made = InOrder(Collected())
    acc = made.add_many(made.create(), ["a", "b"], [1, 2])
    acc = made.add_many(acc, ["c"], [3])
    assert acc == [[1, 3, ["a", "b", "c"]]]


def test_a_merge_changes_neither_part() -> None:
    made = InOrder(Collected())
    one, other = filled(made, [1, 3]), filled(made, [2])
    made.merge(one, other)
    assert (made.result(one), made.result(other)) == ([1, 3], [2])


def test_records_whose_order_was_not_kept_come_first() -> None:
    made = InOrder(Collected())
    assert made.result(made.merge(filled(made, [5]), made.of_old(["old"]))) == ["old", 5]
