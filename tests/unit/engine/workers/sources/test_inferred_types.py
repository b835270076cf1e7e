"""Types of fields are guessed from records, and given up where they keep changing."""

from __future__ import annotations

from typing import Any

import pytest

from millwheel.engine.workers.sources.inferred_types import GuessedTypes, WholeRecords


def guess(names: str = "a b", accepted: bool = True) -> GuessedTypes:
    return GuessedTypes(names.split(), lambda fields: accepted)


def test_each_field_has_the_one_type_of_its_values() -> None:
    types = guess("a b c d")
    types.look(
        [
            {"a": 1, "b": 0.5, "c": "x", "d": True, "e": None},
            {"a": 2, "b": 1.0, "c": "", "d": False},
        ]
    )
    assert types.fields == {"a": "int", "b": "float", "c": "str", "d": "bool"}


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1}],
        [{"a": 1, "b": None}],
        [{"a": 1, "b": 2}, {"a": 1.0, "b": 2}],
        [{"a": [], "b": 1}],
        [[1, 2]],
        ["x"],
    ],
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


def test_what_whole_records_have_beside_declared_fields_is_inferred_once_they_were_missed() -> None:
    whole = WholeRecords({"b": "float", "a": "int"})
    values = [{"a": 1, "b": 2.0, "d": "x", "c": True}, {"a": 2, "c": False, "d": ""}]
    assert not whole.look(values)
    assert not whole.begins()
    whole.missed()
    assert whole.begins()
    assert not whole.look([{"a": 1, "c": None}])
    assert not whole.look([{"a": 1, "c": 1}, {"a": 1}])
    assert whole.look(values)
    assert not whole.begins(), "the types have been looked for"
    assert list(whole.fields.items()) == [("b", "float"), ("a", "int"), ("c", "bool"), ("d", "str")]
    assert not whole.look(values), "to read the same again in the same columns changes nothing"
    assert whole.look([{"a": 1}])
    assert whole.fields == {"b": "float", "a": "int"}


def test_whole_records_are_given_up_after_many_misses_in_a_row() -> None:
    whole = WholeRecords({"a": "int"})
    for _ in range(7):
        whole.missed()
    whole.hit()
    for _ in range(7):
        whole.missed()
    assert not whole.given_up()
    whole.missed()
    assert whole.given_up()
    assert not whole.look([{"a": 1, "b": 2}])
