"""The aggregation of a window: several aggregates, one, or none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.core.aggregates.aggregation import FILTERED, Buffered, Named, NamedAggregation
from millwheel.core.aggregates.families.numeric import CountRecords, Sum
from millwheel.core.expressions.language import compile_expression
from millwheel.core.machines.specs import machine_from_spec
from millwheel.errors import RecordError
from tests.unit.core.machines.test_specs import _computation, _run


def test_without_aggregates_a_pane_holds_its_records() -> None:
    machine = machine_from_spec(_computation(condition="n > 0"), compile_expression)
    [pane] = _run(machine, [({"n": 1}, 4), ({"n": 0}, 5), ({"n": 2}, 3)]).panes
    assert pane.result == [[{"n": 1}, 4], [{"n": 2}, 3]]


def _named() -> NamedAggregation:
    return NamedAggregation(
        [
            Named("n", CountRecords()),
            Named("sum", Sum(), "size", lambda value: value["size"]),
            Named(
                "large",
                Sum(),
                "size",
                lambda value: value["size"],
                lambda value: value["size"] > 10,
            ),
        ],
        lambda value: value["size"] >= 0,
    )


@given(st.lists(st.integers(-5, 30), max_size=20), st.data())
def test_records_added_at_once_one_by_one_or_in_parts_have_one_result(
    sizes: list[int], data: Any
) -> None:
    made = _named()
    prepared = [
        each for each in (made.prepare({"size": size}) for size in sizes) if each is not FILTERED
    ]
    cut = data.draw(st.integers(0, len(prepared)))
    parts = []
    for piece in (prepared[:cut], prepared[cut:]):
        acc = made.create()
        if piece:
            acc = made.add_many(acc, piece, [0] * len(piece))
        parts.append(acc)
    kept = [size for size in sizes if size >= 0]
    assert made.result(made.merge(*parts)) == {
        "n": len(kept),
        "sum": sum(kept),
        "large": sum(size for size in kept if size > 10),
    }


def test_a_record_that_is_taken_out_was_never_there() -> None:
    made = _named()
    rows = [made.prepare({"size": size}) for size in (3, 20)]
    acc = made.add_many(made.create(), rows, [0, 0])
    assert made.result(made.subtract(acc, rows[1], 0)) == {"n": 1, "sum": 3, "large": 0}


def test_the_aggregate_that_cannot_use_a_record_is_named() -> None:
    made = NamedAggregation(
        [Named("n", CountRecords()), Named("sum", Sum(), "size", lambda value: value["size"])]
    )
    with pytest.raises(RecordError) as caught:
        made.prepare({"size": "much"})
    assert caught.value.aggregate == "sum"


def test_user_code_gets_its_records_with_their_times_and_may_not_change_them() -> None:
    made = Buffered(lambda value: value != "no")
    assert made.prepare("no") is FILTERED
    acc = made.add_many(made.create(), ["a", "b"], [1, 2])
    made.result(acc).clear()
    assert made.result(made.merge(acc, [["c", 3]])) == [["a", 1], ["b", 2], ["c", 3]]
    assert made.result(made.subtract(acc, "a", 2)) == [["a", 1], ["b", 2], ["c", 3]], (
        "another record of that value"
    )
    assert made.result(made.subtract(acc, "b", 2)) == [["a", 1], ["c", 3]]
