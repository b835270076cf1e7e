"""Deliberate mistakes about fields that are times and decimals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.core.decimals.declared import DecimalForm
from millwheel.core.instants import declared as instants
from millwheel.tools.testing import questions
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=20, features="times", variants="reference")
def clocks_of_all_texts_are_those_of_utc() -> Context:
    """The offset that a text says is not taken off."""
    right = instants.texts_us

    def wrong(texts: Sequence[str]) -> Any:
        return right([text[:-6] if text[-6:-5] in ("+", "-") else text for text in texts])

    return replaced(instants, "texts_us", wrong)


@mistake(within=30, features="decimals", variants="reference")
def a_decimal_loses_the_digits_that_have_no_room() -> Context:
    """It is cut, and no dead letter says so."""

    def wrong(self: DecimalForm, number: Any, value: Any) -> int:
        return int(number.scaleb(self.scale)) if number.is_finite() else right(self, number, value)

    right = DecimalForm._units
    return replaced(DecimalForm, "_units", wrong)


@mistake(within=20, features="decimals slices", variants="reference")
def answers_have_decimals_as_whole_units() -> Context:
    """600 is told for 6.00."""
    return replaced(questions, "shown_answer", lambda answer, scales: answer)
