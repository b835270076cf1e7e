"""What a formula reads, and formulas that read nothing."""

from __future__ import annotations

import pytest

from millwheel.core.expressions.formulas import foreign_formula, formula_of


def test_a_formula_names_what_it_reads_in_the_order_of_its_text_and_each_once() -> None:
    formula = formula_of("b.x / a.y + b.x - c")
    assert formula.used == (("b", "x"), ("a", "y"), ("c", ""))
    assert formula.computations == ("b", "a", "c")


@pytest.mark.parametrize("formula", ["1 + 1", "clicks + clicks.n"])
def test_formulas_that_ask_nothing_or_are_not_clear_are_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="write"):
        formula_of(formula)


def test_a_formula_of_a_client_may_call_only_what_has_a_bounded_cost() -> None:
    assert foreign_formula("a.x + 1").used == (("a", "x"),)
    assert formula_of("matches(a.x, b.y)").computations == ("a", "b")
    with pytest.raises(ValueError, match="matches"):
        foreign_formula("matches(a.x, b.y)")
