from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millwheel import Retraction
from millwheel.connect.connectors.external.changes import RowOutcome, changes_of, outcomes
from millwheel.connect.sinks.base import SinkRecord


def of(*values: Any) -> dict[Any, RowOutcome]:
    return outcomes(
        changes_of([SinkRecord("k", value, 0) for value in values]), lambda change: change.row["id"]
    )


def row(n: Any) -> dict[str, Any]:
    return {"id": 1, "n": n}


def test_the_last_row_stands() -> None:
    outcome = of(row(1), Retraction(row(1)), row(2))[1]
    assert outcome.row is not None
    assert (outcome.row.row, outcome.row.index, outcome.gone) == (row(2), 2, False)


def test_a_row_that_was_replaced_is_not_taken_back() -> None:
    outcome = of(row(1), row(2), Retraction(row(1)))[1]
    assert outcome.row is not None
    assert outcome.row.row == row(2)


def test_a_row_of_this_batch_that_is_taken_back_leaves_nothing() -> None:
    assert of(row(1), Retraction(row(1)))[1] == RowOutcome(gone=True)
    assert of(row(float("nan")), Retraction(row(float("nan"))))[1] == RowOutcome(gone=True)


def test_a_row_of_an_earlier_batch_is_removed_if_it_stands() -> None:
    outcome = of(Retraction(row(1)))[1]
    assert (outcome.row, outcome.gone, [back.row for back in outcome.backs]) == (
        None,
        False,
        [row(1)],
    )


steps = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans()), max_size=12)


@given(steps, st.dictionaries(st.integers(0, 1), st.integers(0, 2)))
def test_a_batch_comes_to_what_its_changes_come_to_one_by_one(
    done: list[tuple[int, int, bool]], before: Any
) -> None:
    one_by_one = dict(before)
    for identity, n, back in done:
        if not back:
            one_by_one[identity] = n
        elif one_by_one.get(identity) == n:
            del one_by_one[identity]
    values = [{"id": identity, "n": n} for identity, n, _ in done]
    records = [
        SinkRecord("k", Retraction(value) if back else value, 0)
        for value, (_, _, back) in zip(values, done, strict=True)
    ]
    together = dict(before)
    for identity, outcome in outcomes(changes_of(records), lambda change: change.row["id"]).items():
        if outcome.row is not None:
            together[identity] = outcome.row.row["n"]
        elif outcome.gone or together.get(identity) in [back.row["n"] for back in outcome.backs]:
            together.pop(identity, None)
    assert together == one_by_one
