"""Plain data, and copies of values."""

from __future__ import annotations

import enum
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from millwheel.core.aggregates.families.distinct_values import Distinct
from millwheel.core.aggregates.plain_data import copied, is_plain
from millwheel.core.aggregates.stored_form import WHOLE
from millwheel.errors import CorruptionError


class Struct(msgspec.Struct):
    parts: list[int] = []


class Level(enum.IntEnum):
    HIGH = 1


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, "a", b"a", True, [], {}, [1, ["a", {"b": [None]}]], {1: 2, None: [3]}]
)
def test_numbers_text_lists_and_dicts_are_plain(value: Any) -> None:
    assert is_plain(value)


@pytest.mark.parametrize(
    "value",
    [
        {1},
        (1,),
        Decimal(1),
        Level.HIGH,
        [Level.HIGH],
        {"a": (1,)},
        {(1, 2): 1},
        Counter("a"),
        Struct(),
        [[{1}]],
    ],
)
def test_nothing_else_is(value: Any) -> None:
    assert not is_plain(value)


def test_a_copy_shares_nothing_that_could_be_changed() -> None:
    value = {"a": [1, {"b": [2]}], "c": Struct([3]), "d": "text"}
    copy = copied(value)
    assert copy == value
    copy["a"][1]["b"].append(9)
    copy["a"].append(9)
    copy["c"].parts.append(9)
    copy["e"] = 9
    assert value == {"a": [1, {"b": [2]}], "c": Struct([3]), "d": "text"}


# stored_form.py


def test_sets_anywhere_in_plain_data_come_back_and_the_rest_is_as_it_was() -> None:
    made = Distinct()
    made.update([1, 2, "x", (3, "y")])
    plain, (found, empty) = WHOLE.decode(WHOLE.encode([{"a": [1.5, None]}, [made, Distinct()]]))
    assert plain == {"a": [1.5, None]}
    assert (found == made, len(found), len(empty)) == (True, 4, 0)


def test_what_is_neither_plain_nor_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="type object is unsupported"):
        WHOLE.encode([object()])


def test_an_unknown_extension_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="extension 9"):
        WHOLE.decode(msgspec.msgpack.encode(msgspec.msgpack.Ext(9, b"")))
