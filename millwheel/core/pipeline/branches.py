"""Branches: which of several streams a record goes to. Retractions go the way of the record that they take back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millwheel.core.expressions.language import compile_expression
from millwheel.core.pipeline.spec import BranchSpec
from millwheel.core.windows.panes import as_retraction

Choose = Callable[[Any], Sequence[str]]
"""A record's value -> the streams it goes to, none if no branch takes it."""


def compile_branches(branches: Sequence[BranchSpec], match_all: bool) -> Choose:
    """RecordError for values on which a condition cannot be evaluated. ValueError for text that is not a condition."""
    tests = [(each.stream, compile_expression(each.condition).evaluate) for each in branches if each.condition]
    rest = [each.stream for each in branches if not each.condition]

    def choose(value: Any) -> Sequence[str]:
        back = as_retraction(value)
        asked = value if back is None else back.value
        found = []
        for stream, holds in tests:
            if holds(asked):
                found.append(stream)
                if not match_all:
                    break
        return found or rest

    return choose
