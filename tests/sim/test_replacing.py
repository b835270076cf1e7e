"""A mistake that no longer fits the code is not a mistake that is caught."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.search import mutations as of_search
from tests.sim import mutations as of_simulator
from tests.sim.replacing import replaced


def owner() -> Any:
    return SimpleNamespace(work=lambda value: value)


@pytest.mark.parametrize(
    "wrong", [lambda: 1, lambda value: value.nothing, lambda value: len(value, 2)]
)
def test_a_replacement_that_fails_by_itself_is_an_error_although_its_caller_goes_on(
    wrong: Any,
) -> None:
    right = owner()
    with (
        pytest.raises(AssertionError, match="the replacement of work does not fit"),
        replaced(right, "work", wrong),
    ):
        with suppress(Exception):
            right.work(1)
    assert right.work(1) == 1


def test_what_a_replacement_raises_on_purpose_or_calls_is_none() -> None:
    def deep(value: Any) -> Any:
        return value.nothing

    def on_purpose(value: Any) -> Any:
        raise ValueError(value)

    for wrong in (lambda value: deep(value), on_purpose):
        right = owner()
        with replaced(right, "work", wrong), pytest.raises((AttributeError, ValueError)):
            right.work(1)


@pytest.mark.parametrize("mistakes", [of_simulator.MUTATIONS, of_search.MUTATIONS])
def test_each_deliberate_mistake_fits_the_code(mistakes: Any) -> None:
    for name, mutation in mistakes.items():
        try:
            with mutation.make():
                pass
        except AttributeError as ex:
            pytest.fail(f"{name} replaces what is not there any more: {ex}")
