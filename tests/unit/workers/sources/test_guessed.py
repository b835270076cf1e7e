"""Types of fields are guessed from records, and given up where they keep changing."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.workers.sources.guessed import GuessedTypes


def guess(names: str = "a b", accepted: bool = True) -> GuessedTypes:
    return GuessedTypes(names.split(), lambda fields: accepted)


def test_each_field_has_the_one_type_of_its_values() -> None:
    types = guess("a b c d")
    types.look([{"a": 1, "b": 0.5, "c": "x", "d": True, "e": None}, {"a": 2, "b": 1.0, "c": "", "d": False}])
    assert types.fields == {"a": "int", "b": "float", "c": "str", "d": "bool"}


@pytest.mark.parametrize(
    "values",
    [[{"a": 1}], [{"a": 1, "b": None}], [{"a": 1, "b": 2}, {"a": 1.0, "b": 2}], [{"a": [], "b": 1}], [[1, 2]], ["x"]],
)
def test_fields_without_one_plain_type_are_not_known(values: list[Any]) -> None:
    types = guess()
    types.look(values)
    assert types.fields is None


def test_types_that_a_consumer_cannot_use_are_none() -> None:
    types = guess(accepted=False)
    types.look([{"a": 1, "b": 2}])
    assert types.fields is None


def test_who_is_wrong_too_often_in_a_row_is_not_asked_again() -> None:
    types = guess()
    for _ in range(20):
        types.look([{"a": 1, "b": 2}])
        types.hit()
        types.missed()
    types.look([{"a": 1, "b": 2}])
    assert types.fields is not None
    for _ in range(8):
        types.missed()
    types.look([{"a": 1, "b": 2}])
    assert types.fields is None


def test_input_without_columns_is_given_up() -> None:
    types = guess()
    types.look([{"a": 1, "b": 2}])
    types.give_up()
    types.look([{"a": 1, "b": 2}])
    assert types.fields is None
