"""Terms: which constants columns hold, and what numpy computes for them."""

from __future__ import annotations

import operator

import polars as pl
import pytest

from millwheel.core.expressions.terms import (
    NoColumns,
    Term,
    by_numpy,
    by_steps,
    constant_of,
    exact_of,
    kinds,
    number_term,
)


@pytest.mark.parametrize("value", [2**53 + 1, float("inf"), float("nan"), True, "1"])
def test_a_constant_that_a_column_cannot_hold_exactly_has_no_term(value: object) -> None:
    with pytest.raises(NoColumns):
        number_term(value)


def test_constants_alone_and_other_kinds_have_no_column_form() -> None:
    number, text = number_term(1), Term(pl.col("s"), "str")
    kinds([number, text], "int", "str")
    for terms, kind in (([number], "int"), ([text], "int")):
        with pytest.raises(NoColumns):
            kinds(terms, kind)
    assert constant_of(number) == 1
    with pytest.raises(NoColumns):
        constant_of(text)


def test_exactness_is_that_of_all_terms() -> None:
    sure = pl.col("a") > 1
    assert exact_of([Term(pl.col("a"), "int", exact=(sure,)), number_term(1)]) == (sure,)


def test_numpy_divides_once() -> None:
    frame = pl.DataFrame({"f": [5.0, -0.0], "g": [3.0, 0.1]})
    found = by_numpy(operator.truediv, [pl.col("f"), pl.lit(3.0)], "float")
    assert repr(frame.select(found)["f"].to_list()) == repr([5.0 / 3.0, -0.0])


def test_a_function_of_steps_is_asked_once_for_each() -> None:
    asked: list[int] = []

    def act(starts: list[int]) -> list[str]:
        asked.extend(starts)
        return [str(start) for start in starts]

    frame = pl.DataFrame({"n": [25, -1, 20, 3, 29]})
    found = frame.select(by_steps(act, pl.col("n"), 10, "str"))["n"]  # type: ignore[arg-type]
    assert found.to_list() == ["20", "-10", "20", "0", "20"]
    assert asked == [-10, 0, 20]
    assert frame[:0].select(by_steps(act, pl.col("n"), 10, "str"))["n"].dtype == pl.String  # type: ignore[arg-type]
